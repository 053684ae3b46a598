"""Building on a device, vectors -> codecs and segments: training, assignment and encoding there, block by block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from logt._internal.arrays import unit_dtype
from logt._internal.threads import Workers, split_range
from logt._internal.types import Array, Floats, Ids, Metric
from logt.errors import DeviceMemoryError
from logt.gpu.copies import Downloads
from logt.gpu.device import Device
from logt.gpu.host import Codes
from logt.gpu.lists import rotation_of
from logt.gpu.pursuit import DevicePursuit, nearest
from logt.gpu.rows import DeviceRows
from logt.gpu.search import DeviceSearcher
from logt.lists.codec import Codec, CodecSettings
from logt.lists.residual import Bands
from logt.lists.segment import MAX_FLAT, ListSegment, aligned_bytes

_ROUNDS = 8  # of k-means
_PER_CENTROID = 32  # vectors that a centroid is trained with
_SAMPLE = 8192  # vectors that deviations are computed from


class DeviceBuilder:
    """What `Sketched` builds with, in place of the processor: a codec from a sample, a segment from vectors."""

    def __init__(self, device: Device, metric: Metric):
        self.device, self.metric = device, metric

    def train(
        self,
        X: Floats,
        settings: CodecSettings,
        rng: np.random.Generator,
        workers: Workers,
        *,
        normalized: bool = True,
    ) -> Codec:
        """Train on vectors X, as `Codec.train`."""
        device, xp = self.device, self.device.xp
        device.require(
            4 * X.nbytes + device.workspace,
            f"training on {len(X):,} vectors",
            "set `units`: fewer need fewer vectors",
        )
        with device.active():
            given = device.put(X)
            mean = given.mean(axis=0, dtype=np.float64).astype(np.float32)
            V = given - mean
            spherical = normalized and float(xp.square(mean).sum()) < 0.25
            Y = device.get(self._kmeans(V, settings.units, rng, workers, spherical))
            mean = device.get(mean)
        device.release()
        sample = X if len(X) <= _SAMPLE else X[np.sort(rng.choice(len(X), _SAMPLE, replace=False))]
        return Codec.from_memory_vectors(
            Y, sample, mean, settings, workers, normalized=normalized, pursuit=self._pursuit
        )

    def _pursuit(self, codec: Codec) -> Callable[[Floats], tuple[Array, Floats]]:
        """Return what encodes some rotated vectors of the host."""

        def pursue(Z: Floats) -> tuple[Array, Floats]:
            with self.device.active():
                unit, weight = DevicePursuit(self.device, self.device.put(codec.memory_vectors), codec.entries)(
                    self.device.put(Z)
                )
                return self.device.get(unit), self.device.get(weight)

        return pursue

    def _kmeans(self, V: Any, M: int, rng: np.random.Generator, workers: Workers, spherical: bool) -> Any:
        """Return M centroids of V, of norm 1 if `spherical`: as `_internal.kmeans`, with all centroids each round."""
        xp, put, N = self.device.xp, self.device.put, len(V)
        if _PER_CENTROID * M < N:
            V = V[put(np.sort(rng.choice(N, _PER_CENTROID * M, replace=False)))]
        Y = V[put(rng.choice(len(V), M, replace=False))]
        for done in range(_ROUNDS):
            label, value = nearest(self.device, V, Y, spherical=spherical)
            order = xp.argsort(label * len(V) + xp.arange(len(V)))
            counts = xp.bincount(label, minlength=M)
            first = xp.zeros(M + 1, np.int64)
            xp.cumsum(counts, out=first[1:])
            Y = self.device.kernels.sums(V, order, first)
            if spherical:
                Y /= xp.maximum(xp.sqrt(xp.square(Y).sum(axis=1, keepdims=True)), np.float32(1e-12))
            else:
                Y /= xp.maximum(counts, 1)[:, None].astype(np.float32)
            empty = xp.flatnonzero(counts == 0)
            if len(empty):  # they take the vectors that are represented worst
                Y[empty] = V[xp.argsort(value)[: len(empty)]]
            workers.report("k-means", done + 1, _ROUNDS)
        return Y

    def rows(self, rows: Any) -> DeviceRows:
        """Return vectors as they are read for the device."""
        return rows if isinstance(rows, DeviceRows) else DeviceRows(self.device, rows, rows.shape[1], self.metric)

    def encode(self, codec: Codec, rows: Any, ids: Ids, workers: Workers, *, distances: bool) -> ListSegment:
        """Return the segment of some vectors, whose ids increase; rows: a `DeviceRows`, or vectors on the host."""
        rows = self.rows(rows)
        if len(rows) <= MAX_FLAT:
            with self.device.active():
                X = self.device.get(rows.block(slice(0, len(rows))))
            return ListSegment.build(codec, X, ids, distances=distances, workers=workers)
        try:
            with self.device.active():
                segment = _Encoder(self.device, codec, len(rows)).segment(rows, ids, distances, workers)
        finally:
            self.device.release()
        return segment

    def searcher(self, segments: Sequence[ListSegment]) -> DeviceSearcher | None:
        """Return what reads all of some segments; None on a CPU, which has its own, or if they do not fit."""
        if not self.device.cuda:
            return None
        try:
            return DeviceSearcher(self.device, segments, self.metric)
        except DeviceMemoryError:
            return None


class DeviceBands:
    """The bands of a codec on a device.

    deviation, step, bits: of each coded dimension. sign_from, low_from: where each bit of the packed codes comes
    from, as dimension · 8 + place in its field; -1 for padding.
    """

    def __init__(self, device: Device, bands: Bands):
        self.bands, coded = bands, bands.coded
        self.deviation = device.put(bands.per_dim(bands.deviation)[:coded].astype(np.float32))
        self.step = device.put(bands.steps)
        self.bits = device.put(bands.per_dim(bands.bits)[:coded].astype(np.uint8))
        sources = [np.arange(count) * 8 + shift for count, shift in bands.planes()]
        parts = sources[0], np.concatenate([np.empty(0, np.int64), *sources[1:]])
        padded = [np.full(8 * size, -1, np.int32) for size in bands.code_bytes]
        for table, part in zip(padded, parts, strict=True):
            table[: len(part)] = part
        self.sign_from, self.low_from = map(device.put, padded)


class _Encoder:
    """Encodes the vectors of one segment with a codec."""

    def __init__(self, device: Device, codec: Codec, rows: int):
        self.device, self.codec = device, codec
        xp, bands = device.xp, codec.bands
        each = sum(bands.code_bytes) + 8 * codec.entries + 16 + 2 * codec.dim
        device.require(
            rows * each + 2 * codec.units**2 + device.workspace,
            f"a segment of {rows:,} vectors and {codec.units:,} units",
            "use a smaller segment_size",
        )
        self.rotation = device.put(rotation_of(codec))
        self.mean = device.put(codec.mean)
        self.Y = device.put(codec.memory_vectors)
        self.bands = DeviceBands(device, codec.bands)
        self.pursue = DevicePursuit(device, self.Y, codec.entries)
        sign_bytes, low_bytes = codec.bands.code_bytes
        empty: Callable[..., Any] = xp.empty
        self.unit, self.weight = empty((rows, codec.entries), np.uint32), empty((rows, codec.entries), np.int8)
        self.scale, self.factor, self.square = (empty(rows, np.float32) for _ in range(3))
        self.sign_bits, self.low_bits = empty((rows, sign_bytes), np.uint8), empty((rows, low_bytes), np.uint8)

    def segment(self, rows: DeviceRows, ids: Ids, distances: bool, workers: Workers) -> ListSegment:
        """Return the segment of all rows."""
        codec, N = self.codec, len(rows)
        refinement = np.empty((N, codec.dim) if codec.refine else (0, 0), np.int8)
        refinement_scale = np.empty(N if codec.refine else 0, np.float32)
        size = max(256, min(1 << 16, self.device.workspace // (2 * max(codec.units, 16 * codec.dim))))
        parts = split_range(N, size)
        with Downloads(self.device.xp if self.device.cuda else None) as downloads:
            for number, part in enumerate(parts):
                codes = self._encode(rows, part)
                if codec.refine:
                    downloads.start(codes.refinement, refinement[part])
                    downloads.start(codes.refinement_scale, refinement_scale[part])
                workers.report("encoding", number + 1, len(parts))
            return self._sorted(ids, refinement, refinement_scale, distances, downloads)

    def _encode(self, rows: DeviceRows, part: slice) -> Codes:
        """Encode some rows and return their codes."""
        Z = (rows.block(part) - self.mean) @ self.rotation.T
        unit, weight = self.pursue(Z)
        codes: Codes = self.device.kernels.encode(Z, unit, weight, self.Y, self.bands)
        self.unit[part], self.weight[part] = unit, codes.weight
        self.scale[part], self.factor[part], self.square[part] = codes.scale, codes.factor, codes.square
        self.sign_bits[part], self.low_bits[part] = codes.sign_bits, codes.low_bits
        return codes

    def _sorted(
        self, ids: Ids, refinement: Array, refinement_scale: Floats, distances: bool, downloads: Downloads
    ) -> ListSegment:
        """Return the segment, in the order of its lists."""
        xp, codec, N = self.device.xp, self.codec, len(ids)
        first = self.unit[:, 0].astype(np.int64)
        row = xp.argsort(first * N + xp.arange(N))
        starts = self.device.get(xp.searchsorted(first[row], xp.arange(codec.units + 1))).astype(np.int64)

        def fetched(array: Any, out: Any = None) -> Any:
            out = np.empty(array.shape, array.dtype) if out is None else out
            downloads.start(array, out)
            return out

        return ListSegment(
            ids=ids,
            removed=None,
            codec=codec,
            row=fetched(row.astype(np.uint32)),
            starts=starts,
            unit=fetched(self.unit[row, 1:].T.astype(unit_dtype(codec.units))),
            weight=fetched(self.weight[row].T),
            scale=fetched(self.scale[row]),
            factor=fetched(self.factor[row]),
            bias=fetched(-self.square[row]) if distances else np.empty(0, np.float32),
            sign_bits=fetched(self.sign_bits[row], aligned_bytes(N, self.sign_bits.shape[1])),
            low_bits=fetched(self.low_bits[row], aligned_bytes(N, self.low_bits.shape[1])),
            refinement=refinement,
            refinement_scale=refinement_scale,
        )

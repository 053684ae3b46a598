"""The codec of the default index, vectors <-> codes: a mean, memory vectors, and the bands of the residual.

A vector is v = x − mean, rotated (residual.py): z = Σ_t weight_t · y[unit_t] + residual. Its first entry is the
nearest memory vector, whose inverted list it is in. Memory vectors are kept in 4 bits per coordinate, and everything
else is computed from what is kept, so that their rounding costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logt import _kernels
from logt._internal.arrays import unit_dtype
from logt._internal.int8 import to_int8
from logt._internal.kmeans import group_means, kmeans
from logt._internal.nearest import UnitFinder
from logt._internal.threads import SERIAL, Workers, split_range
from logt._internal.types import Array, Floats, Ids
from logt._internal.validation import check_array
from logt.lists.book import book_bytes, pack_book, unpack_book
from logt.lists.measured import Measured, measured_from_arrays, measured_to_arrays
from logt.lists.pursuit import NearestPursuit
from logt.lists.residual import Bands, signs
from logt.lists.unit_groups import group_units, group_vectors, units_to_compare

_ROWS = 512  # vectors encoded by one task
_QUERIES = 512  # of a sample, from which the number of groups that are compared follows
_FLOATS = (
    "mean",
    "deviation",
    "book_scale",
    "book_deviation",
    "list_weight",
    "list_bias",
    "unit_norm",
    "captured",
)
_NUMBERS = ("entries", "refine", "normalized", "compared")
_SAMPLE = 8192  # vectors that deviations are computed from
_TINY = 1e-37  # instead of a norm of 0, or its square


class CodecSettings(NamedTuple):
    """What a codec is trained for.

    units: memory vectors. entries: of U per vector. bits: per dimension of the residual. refine: keep a refinement.
    """

    units: int
    entries: int
    bits: int
    refine: bool


@dataclass(frozen=True, eq=False)
class Encoded:
    """The codes of some vectors.

    unit, weight: the entries, (rows, L), the first being the nearest memory vector. scale: of the weights.
    sign_bits, low_bits, factor: the residual. square: ‖v‖². refinement, refinement_scale: what those bits leave out,
    if it is kept.
    """

    unit: Array
    weight: NDArray[np.int8]
    scale: Floats
    sign_bits: NDArray[np.uint8]
    low_bits: NDArray[np.uint8]
    factor: Floats
    square: Floats
    refinement: NDArray[np.int8] | None = None
    refinement_scale: Floats | None = None


@dataclass(frozen=True, eq=False)
class Codec:
    """Memory vectors, and how vectors are encoded with them.

    mean: subtracted from each vector. bands: of the dimensions, with their bits. book: the memory vectors, rotated,
    in 4 bits per coordinate: those of the units, then those of groups of units. book_scale: of each. book_deviation:
    of their coordinates in each band. list_weight, list_bias: rank the lists. 2·q·μ + bias estimates the best
    −‖q − v‖² in a list, but for ‖q‖²: μ = list_weight · y is about the mean of its vectors, and the bias
    −(mean ‖v‖² + ‖μ‖²) / 2 is halfway from the mean of −‖q − v‖² to −‖q − μ‖². unit_norm: of the memory vectors of
    units. group_starts: the units of group g are group_starts[g]:group_starts[g + 1]; [0] if there are no groups.
    compared: units of the best groups that a search compares with a query, at least. entries: L. refine: a refinement
    is kept. normalized: vectors have norm 1, as under cosine. captured: the energy of vectors that the memory vectors
    capture, 0 if unknown. measured: what was measured of searches. kinds: the same for queries of some kind, by its
    name.
    """

    mean: Floats
    bands: Bands
    book: NDArray[np.uint8]
    book_scale: Floats
    book_deviation: Floats
    list_weight: Floats
    list_bias: Floats
    unit_norm: Floats
    group_starts: Ids
    entries: int
    refine: bool
    normalized: bool
    compared: int = 0
    captured: float = 0.0
    measured: Measured = field(default_factory=Measured)
    kinds: Mapping[str, Measured] = field(default_factory=dict)

    def of_kind(self, name: str | None) -> Measured:
        """Return what was measured with queries of a kind, or with the usual ones if the codec does not know it."""
        return self.measured if name is None else self.kinds.get(name, self.measured)

    # ----------------------------------------------------------------------------------------------- training

    @classmethod
    def train(
        cls,
        X: Floats,
        settings: CodecSettings,
        rng: np.random.Generator,
        workers: Workers = SERIAL,
        *,
        normalized: bool = True,
    ) -> Codec:
        """Train on vectors X (N ≥ 1 rows); normalized: all have norm 1, as under cosine."""
        mean = X.mean(axis=0, dtype=np.float64).astype(np.float32)
        V = X - mean
        spherical = normalized and float(np.square(mean).sum()) < 0.25  # norms of v differ little
        label = kmeans(V, settings.units, rng, workers, spherical=spherical)
        Y = group_means(V, label, settings.units, Workers(workers.threads), normalize=spherical)
        sample = X if len(X) <= _SAMPLE else X[np.sort(rng.choice(len(X), _SAMPLE, replace=False))]
        return cls.from_memory_vectors(Y, sample, mean, settings, workers, normalized=normalized)

    @classmethod
    def from_memory_vectors(
        cls,
        Y: Floats,
        sample: Floats,
        mean: Floats,
        settings: CodecSettings,
        workers: Workers = SERIAL,
        *,
        normalized: bool,
        pursuit: Callable[[Codec], Callable[[Floats], tuple[Array, Floats]]] | None = None,
    ) -> Codec:
        """Return the codec with memory vectors Y of x − mean; its statistics are those of a sample of vectors x.

        pursuit: returns what encodes rotated vectors, if not this processor.
        """
        V = sample - mean
        silent = Workers(workers.threads)
        bands = Bands.allocate(_variance(V, Y, silent), settings.bits, len(V))
        order, starts = group_units(Y)
        rotated = bands.rotate(Y[order])
        deviation = _band_deviations(rotated, bands)
        book, scale = pack_book(rotated, bands, deviation)
        unknown, known = np.ones(len(Y), np.float32), (settings.entries, settings.refine, normalized)
        draft = cls(mean, bands, book, scale, deviation, unknown, unknown * 0, unknown, np.zeros(1, np.int64), *known)
        Z = bands.rotate(V)
        unit, weight = draft._pursue(Z, silent) if pursuit is None else pursuit(draft)(Z)
        return draft._with_statistics(Z, unit, weight)._with_groups(starts, Z[:: -(-len(Z) // _QUERIES)])

    def _pursue(self, Z: Floats, workers: Workers) -> tuple[Array, Floats]:
        """Return (units, weights) of rotated vectors."""
        pursue = self._pursuit(len(Z), workers)
        found = workers.map(lambda part: pursue(Z[part]), split_range(len(Z), _ROWS))
        unit, weight = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return unit, weight

    def _with_statistics(self, Z: Floats, unit: Array, weight: Floats) -> Codec:
        """Return the codec with deviations of the residual and means of the lists, from rotated vectors and codes."""
        left = Z - self._combine(unit, weight)
        deviation = _band_deviations(left, self.bands)
        lists, squares = unit[:, 0], np.maximum(np.square(self._finder.norm), np.float32(_TINY))
        along = np.einsum("ij,ij->i", Z, self.memory_vectors[lists]) / squares[lists]
        counts = np.bincount(lists, minlength=self.units)
        mean_weight = _list_means(along, lists, counts)
        mean_square = _list_means(np.square(Z).sum(axis=1), lists, counts)
        return replace(
            self,
            bands=replace(self.bands, deviation=deviation),
            list_weight=mean_weight,
            list_bias=-(mean_square + np.square(mean_weight) * squares) / np.float32(2),
            unit_norm=np.sqrt(squares),
        )

    def _with_groups(self, starts: Ids, Z: Floats) -> Codec:
        """Return the codec with the memory vectors of groups of units, after those of the units. Z: a sample."""
        if len(starts) == 1:
            return self
        lists = self.memory_vectors * self.list_weight[:, None]
        means, bias = group_vectors(lists, self.list_bias, starts)
        scores = 2 * Z @ lists.T + self.list_bias, 2 * Z @ means.T + bias
        book, scale = pack_book(means, self.bands, self.book_deviation)
        return replace(
            self,
            book=np.concatenate([self.book, book]),
            book_scale=np.concatenate([self.book_scale, scale]),
            list_weight=np.concatenate([self.list_weight, np.ones_like(bias)]),
            list_bias=np.concatenate([self.list_bias, bias]),
            group_starts=starts,
            compared=units_to_compare(*scores, starts),
        )

    # ---------------------------------------------------------------------------------------------- properties

    @property
    def units(self) -> int:
        return len(self.book) - self.groups

    @property
    def groups(self) -> int:
        """The number of groups of units."""
        return len(self.group_starts) - 1

    @property
    def dim(self) -> int:
        return len(self.mean)

    @property
    def operations(self) -> int:
        """Multiplications to compare one query with all memory vectors."""
        return self.units * self.dim

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    @cached_property
    def memory_vectors(self) -> Floats:
        """Ŷ (units, dim), rotated."""
        units = self.units
        return unpack_book(self.book[:units], self.book_scale[:units], self.bands, self.book_deviation)

    @cached_property
    def _finder(self) -> UnitFinder:
        return UnitFinder(self.memory_vectors)

    # ------------------------------------------------------------------------------------------------ encoding

    def encode(self, rows: Any, workers: Workers = SERIAL) -> Encoded:
        """Encode all rows; they are read a few at a time."""
        N = len(rows)
        sign_bytes, low_bytes = self.bands.code_bytes
        out = Encoded(
            np.empty((N, self.entries), unit_dtype(self.units)),
            np.empty((N, self.entries), np.int8),
            *(np.empty(N, np.float32), np.empty((N, sign_bytes), np.uint8), np.empty((N, low_bytes), np.uint8)),
            *(np.empty(N, np.float32), np.empty(N, np.float32)),
            refinement=np.empty((N, self.dim), np.int8) if self.refine else None,
            refinement_scale=np.empty(N, np.float32) if self.refine else None,
        )
        pursue = self._pursuit(N, Workers(workers.threads))

        def fill(part: slice) -> None:
            Z = self.bands.rotate(rows[part] - self.mean)
            unit, weight = pursue(Z)
            scale = np.maximum(np.abs(weight).max(axis=1), np.float32(1e-30)) / 127
            out.unit[part], out.scale[part] = unit, scale
            out.weight[part] = np.rint(weight / scale[:, None])
            left = Z - self._combine(unit, out.weight[part] * scale[:, None])
            fields, out.factor[part] = self.bands.quantize(left)
            out.sign_bits[part], out.low_bits[part] = self.bands.pack(fields)
            out.square[part] = np.square(Z, dtype=np.float64).sum(axis=1)
            if out.refinement is not None and out.refinement_scale is not None:
                left -= self.bands.dequantize(fields, out.factor[part])
                out.refinement[part], out.refinement_scale[part] = to_int8(left)

        workers.map(fill, split_range(N, _ROWS), "encoding")
        return out

    def _pursuit(self, rows: int, workers: Workers = SERIAL) -> NearestPursuit:
        """Return the encoder of `rows` rotated vectors."""
        return NearestPursuit(self.memory_vectors, self._finder, self.entries, rows, workers)

    def _combine(self, unit: Array, weight: Floats) -> Floats:
        """Return Σ_t weight_t · y[unit_t]."""
        Y = self.memory_vectors
        total: Floats = weight[:, :1] * Y[unit[:, 0]]
        for t in range(1, unit.shape[1]):
            total += weight[:, t : t + 1] * Y[unit[:, t]]
        return total

    def decode(self, codes: Encoded) -> Floats:
        """Return the vectors that codes represent, approximately."""
        Z = self._combine(codes.unit, codes.weight * codes.scale[:, None])
        Z += self.bands.dequantize(self.bands.unpack(codes.sign_bits, codes.low_bits), codes.factor)
        if codes.refinement is not None and codes.refinement_scale is not None:
            Z += codes.refinement * codes.refinement_scale[:, None]
        return self.bands.rotate_back(Z) + self.mean

    def captured_energy(self, X: Floats) -> float:
        """Return the mean fraction of ‖v‖² along the memory vector nearest to each row of X."""
        Z = self.bands.rotate(X - self.mean)
        lengths = np.linalg.norm(Z, axis=1, keepdims=True) * self.unit_norm
        cosines = (Z @ self.memory_vectors.T / np.maximum(lengths, np.float32(_TINY))).max(axis=1)
        return float(np.square(np.maximum(cosines, 0)).mean())

    # ------------------------------------------------------------------------------------------------- storage

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays to store."""
        return {
            "mean": self.mean,
            "order": self.bands.order,
            "band_size": self.bands.size,
            "band_bits": self.bands.bits,
            "deviation": self.bands.deviation,
            "book": self.book,
            "book_scale": self.book_scale,
            "book_deviation": self.book_deviation,
            "list_weight": self.list_weight,
            "list_bias": self.list_bias,
            "unit_norm": self.unit_norm,
            "group_starts": self.group_starts,
            "numbers": np.array([getattr(self, name) for name in _NUMBERS], np.int64),
            "captured": np.array([self.captured], np.float32),
            **measured_to_arrays(self.measured, self.kinds),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Codec:
        """Build from stored arrays; raise ValueError if they do not fit together."""
        given = {name: check_array(arrays[name], np.float32, 1) for name in _FLOATS}
        order = check_array(arrays["order"], np.int32, 1)
        size, bits, numbers = (check_array(arrays[n], np.int64, 1) for n in ("band_size", "band_bits", "numbers"))
        book = check_array(arrays["book"], np.uint8, 2)
        starts = check_array(arrays["group_starts"], np.int64, 1)
        dim, units = len(given["mean"]), len(book) - len(starts) + 1
        inside = len(order) == dim and order.min(initial=0) >= 0 and order.max(initial=0) < dim
        if not inside or (np.bincount(order, minlength=dim) != 1).any():
            raise ValueError("the order of dimensions is not a permutation")
        fit = len(size) == len(bits) == len(given["deviation"]) == len(given["book_deviation"]) > 0
        if not fit or size.min() < 1 or size.max() > dim or size.sum() != dim or (bits[1:] > bits[:-1]).any():
            raise ValueError("the bands do not fit the dimension")
        if (
            bits.max() > 8
            or bits.min() < 0
            or bits.max() < 1
            or len(given["captured"]) != 1
            or len(numbers) != len(_NUMBERS)
        ):
            raise ValueError("the codec has impossible numbers")
        per_row = (len(given[name]) for name in ("book_scale", "list_weight", "list_bias"))
        if units < 1 or len(given["unit_norm"]) != units or any(count != len(book) for count in per_row):
            raise ValueError("the memory vectors do not fit together")
        if book.shape[1] != book_bytes(dim) or not 1 <= numbers[0] <= 64:
            raise ValueError("the memory vectors do not fit the dimension")
        ends = starts[[0, -1]].tolist() if len(starts) else []
        if ends not in ([0, 0], [0, units]) or (starts[1:] <= starts[:-1]).any():
            raise ValueError("the groups do not hold each unit once")
        entries, refine, normalized, compared = numbers.tolist()
        measured, kinds = measured_from_arrays(arrays)
        return cls(
            bands=Bands(order, size, bits, given.pop("deviation")),
            book=book,
            group_starts=starts,
            entries=entries,
            refine=bool(refine),
            normalized=bool(normalized),
            captured=float(given.pop("captured")[0]),
            measured=measured,
            kinds=kinds,
            compared=min(max(compared, 0), units),
            **given,
        )

    def add_to(self, searcher: _kernels.ListSearcher, measured: Measured, *, distances: bool) -> int:
        """Add the codec to a searcher and return its number there.

        measured: with the kind of queries to search for. distances: rank lists by distance.
        """
        bands = self.bands
        columns = (bands.starts, bands.size, bands.bits, bands.deviation, self.book_deviation)
        return searcher.add_codec(
            self.mean,
            bands.order,
            signs(self.dim),
            np.ascontiguousarray(np.stack(columns, axis=1), np.float64),
            self.book,
            self.book_scale,
            self.list_weight,
            self.list_bias if distances else np.zeros_like(self.list_bias),
            self.group_starts,
            self.compared,
            measured.margins,
            measured.near,
            *bands.code_bytes,
        )


def _variance(V: Floats, Y: Floats, workers: Workers) -> NDArray[np.float64]:
    """Return the mean square of each dimension of what the nearest memory vector leaves of v."""
    squares = np.maximum(np.square(Y).sum(axis=1), _TINY)
    finder = UnitFinder(Y)

    def left(rows: slice) -> NDArray[np.float64]:
        nearest = finder.find(V[rows]).nearest
        along = np.einsum("ij,ij->i", V[rows], Y[nearest]) / squares[nearest]
        sums: NDArray[np.float64] = np.square(V[rows] - along[:, None] * Y[nearest]).sum(axis=0, dtype=np.float64)
        return sums

    total: NDArray[np.float64] = np.sum(workers.map(left, split_range(len(V), 1024)), axis=0)
    return total / len(V)


def _list_means(values: Floats, unit: Array, counts: Array) -> Floats:
    """Return the mean value of each list, and the mean of all values for an empty list."""
    sums = np.bincount(unit, values, minlength=len(counts))
    means = np.where(counts > 0, sums / np.maximum(counts, 1), values.mean())
    return means.astype(np.float32)


def _band_deviations(Z: Floats, bands: Bands) -> Floats:
    """Return the root mean square of the coordinates in each band, none much smaller than the others."""
    parts = np.split(Z, np.cumsum(bands.size)[:-1], axis=1)
    energy = np.array([np.square(part).mean() for part in parts])
    total = float(np.square(Z).mean())
    deviation = np.sqrt(np.maximum(energy, 1e-6 * total)) if total > 0 else np.ones(len(energy))
    return deviation.astype(np.float32)

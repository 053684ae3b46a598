"""The inverted lists of one codec on a device, segments -> arrays: all segments together, list by list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from logt._internal.arrays import array_module, unit_dtype
from logt._internal.threads import split_range
from logt._internal.types import Array, Floats, Ids
from logt.gpu.device import Device
from logt.gpu.host import ROWS
from logt.lists.codec import Codec
from logt.lists.residual import Bands
from logt.lists.segment import ListSegment

_BLOCK = 1 << 17  # rows that are moved together
_NARROW = 8  # a filter that passes at most 1/8 is searched completely
_NONE = -np.inf  # the bias of a vector that is not found


class Layout:
    """How the codes of a tile of 16 vectors are laid out: see scan.cu.

    blocks: of 32 dimensions. bits: per 8 dimensions. planes: of each block. table: the place of each byte of a row
    in the tile, (rows, bytes). offset, part_bits: where blocks start, and the bits, on the device. step: what one
    step of a code changes in each dimension.
    """

    def __init__(self, bands: Bands, device: Device):
        self.blocks = -(-bands.coded // 32)
        per_dim = np.zeros(self.blocks * 32, np.int64)
        per_dim[: bands.coded] = bands.per_dim(bands.bits)[: bands.coded]
        self.bits = per_dim[::8].astype(np.uint8)
        self.planes = self.bits.reshape(-1, 4).max(axis=1).astype(np.int64)
        self.first_plane = np.concatenate([[0], np.cumsum(self.planes)])
        self.table = device.put(self._byte_table())
        self.per_dim, self.coded = per_dim, bands.coded
        steps = np.zeros(self.blocks * 32, np.float32)
        steps[: bands.coded] = bands.steps
        starts = (self.first_plane * 4 * ROWS).astype(np.int32)
        self.offset, self.part_bits = device.put(starts), device.put(self.bits)
        self.step = device.put(steps)

    @property
    def row_bytes(self) -> int:
        """The bytes of the codes of one vector."""
        return int(self.first_plane[-1]) * 4

    def _byte_table(self) -> Ids:
        """Return the table: byte t of plane p of row g + 8·h is byte 2·(4·g + t)·planes + 2·p + h of its block."""
        planes = np.repeat(self.planes, self.planes)  # of the block of each plane
        starts = np.repeat(self.first_plane[:-1], self.planes)
        within = np.arange(len(planes)) - starts
        lane = 4 * (np.arange(ROWS) % 8)[:, None, None] + np.arange(4)  # (rows, 1, parts)
        first: Ids = (starts * 4 * ROWS + 2 * within)[:, None] + 2 * planes[:, None] * lane
        return (first + (np.arange(ROWS) // 8)[:, None, None]).reshape(ROWS, -1)

    def pack(self, fields: Any) -> Any:
        """Return the planes (rows, planes, 4) of integers (rows, coded)."""
        xp, rows = array_module(fields), len(fields)
        padded = xp.zeros((rows, self.blocks * 32), np.uint8)
        padded[:, : self.coded] = fields
        out = xp.empty((rows, int(self.first_plane[-1]), 4), np.uint8)
        for a, b in self._runs():
            mine, planes = slice(32 * a, 32 * b), int(self.planes[a])
            run = out[:, self.first_plane[a] : self.first_plane[b]].reshape(rows, b - a, planes, 4)
            for p in range(planes):
                shift = np.maximum(self.per_dim[mine] - 1 - p, 0).astype(np.uint8)
                used = xp.asarray((self.per_dim[mine] > p).astype(np.uint8))
                bit = padded[:, mine] >> xp.asarray(shift) & used
                run[:, :, p] = xp.packbits(bit.ravel(), bitorder="little").reshape(rows, b - a, 4)
            out[:, self.first_plane[a] : self.first_plane[b]] = run.reshape(rows, -1, 4)
        return out

    def unpack(self, planes: Any) -> Any:
        """Return the integers (rows, coded) of planes."""
        xp, rows = array_module(planes), len(planes)
        fields = xp.zeros((rows, self.blocks * 32), np.uint8)
        for a, b in self._runs():
            mine, count = slice(32 * a, 32 * b), int(self.planes[a])
            run = planes[:, self.first_plane[a] : self.first_plane[b]].reshape(rows, b - a, count, 4)
            for p in range(count):
                part = xp.ascontiguousarray(run[:, :, p])
                bit = xp.unpackbits(part.ravel(), bitorder="little").reshape(rows, 32 * (b - a))
                shift = np.maximum(self.per_dim[mine] - 1 - p, 0).astype(np.uint8)
                fields[:, mine] |= bit << xp.asarray(shift)
        return fields[:, : self.coded]

    def _runs(self) -> list[tuple[int, int]]:
        """Return (first, last) of each run of blocks with as many planes."""
        cuts = [0, *(np.flatnonzero(np.diff(self.planes)) + 1).tolist(), self.blocks]
        return list(pairwise(cuts))


@dataclass(frozen=True, eq=False)
class DeviceLists:
    """Vectors by position, list by list; each list starts at a tile. What is in no list comes after them all.

    codes: (tiles, bytes). unit, weight: (positions, entries). scale, factor: of the weights and of the residual.
    bias: added to scores, -inf where there is no vector, or one that is not found. stretch: of scores, or None.
    refinement, refinement_scale: None if they are not kept. ids: -1 where there is no vector. tile, tiles: of each
    list, the last of which holds vectors that are in none. rows, visible: vectors of each list, and those that are
    found; the same on the host. Y: the memory vectors. rotation: of queries. weight_of, bias_of: rank the lists.
    deviation: the largest of a coordinate of residuals, for vectors of factor 1. variance: of all coordinates, in
    units of its square: products of squares are outside of the range of float32 where norms are large or small.
    """

    device: Device
    codec: Codec
    layout: Layout
    codes: Any
    unit: Any
    weight: Any
    scale: Any
    factor: Any
    bias: Any
    refinement: Any
    refinement_scale: Any
    ids: Any
    tile: Any
    tiles: Any
    rows: Array
    visible: Array
    Y: Any
    rotation: Any
    mean: Any
    weight_of: Any
    bias_of: Any
    deviation: float
    variance: Any
    stretch: Any = None

    @property
    def positions(self) -> int:
        """The number of positions."""
        return len(self.ids)

    @cached_property
    def counts(self) -> tuple[Any, Any]:
        """The vectors of each list, and those that are found, on the device."""
        return self.device.put(self.rows), self.device.put(self.visible)

    @property
    def nbytes(self) -> int:
        """The bytes on the device."""
        arrays = (getattr(self, name) for name in self.__dataclass_fields__)
        return sum(int(array.nbytes) for array in arrays if hasattr(array, "nbytes"))

    @classmethod
    def from_segments(cls, device: Device, segments: Sequence[ListSegment], *, distances: bool) -> DeviceLists:
        """Copy the segments of one codec."""
        codec, xp = segments[0].codec, device.xp
        layout = Layout(codec.bands, device)
        listed, starts, tile, tiles = _arrange(segments, codec.units)
        total = int(tiles.sum()) * ROWS
        refine = codec.refine
        stride = -(-codec.dim // 4) * 4
        Y = device.put(codec.memory_vectors)
        deviation = float(codec.bands.deviation.max()) or 1.0
        bias_of = codec.list_bias[: codec.units] if distances else np.zeros(codec.units, np.float32)
        lists = cls(
            device,
            codec,
            layout,
            codes=xp.zeros((total // ROWS, layout.row_bytes * ROWS), np.uint8),
            unit=xp.zeros((total, codec.entries), unit_dtype(codec.units)),
            weight=xp.zeros((total, codec.entries), np.int8),
            scale=xp.zeros(total, np.float32),
            factor=xp.zeros(total, np.float32),
            bias=xp.full(total, _NONE, np.float32),
            refinement=xp.zeros((total, stride), np.int8) if refine else None,
            refinement_scale=xp.zeros(total, np.float32) if refine else None,
            ids=xp.full(total, -1, np.int64),
            tile=device.put(tile),
            tiles=device.put(tiles),
            rows=listed.sum(axis=0),
            visible=np.zeros(codec.units + 1, np.int64),
            Y=Y,
            rotation=device.put(rotation_of(codec)),
            mean=device.put(codec.mean),
            weight_of=device.put(codec.list_weight[: codec.units]),
            bias_of=device.put(bias_of),
            deviation=deviation,
            variance=device.put(codec.bands.per_dim(np.square(codec.bands.deviation / np.float32(deviation)))),
        )
        for number, segment in enumerate(segments):
            lists._copy(segment, _positions(listed[number], starts[number]))
            lists.visible[:] += _visible_by_list(segment, codec.units)
        return lists

    def _copy(self, segment: ListSegment, positions: Ids) -> None:
        """Copy one segment. positions: where its vectors are here."""
        put, bands, found = self.device.put, self.codec.bands, segment.live
        for part in self._blocks(len(segment)):
            position, row = put(positions[part]), segment.row[part]
            fields = bands.unpack(put(segment.sign_bits[part]), put(segment.low_bits[part]))
            codes = self.layout.pack(fields).reshape(len(row), -1)
            self.codes[(position // ROWS)[:, None], self.layout.table[position % ROWS]] = codes
            unit = segment.unit[:, part]
            if not segment.flat:
                stored = np.arange(part.start, part.stop)
                first = np.searchsorted(segment.starts, stored, side="right") - 1
                unit = np.concatenate([first[None].astype(unit.dtype), unit])
            self.unit[position] = put(np.ascontiguousarray(unit.T))
            self.weight[position] = put(np.ascontiguousarray(segment.weight[:, part].T))
            self.scale[position], self.factor[position] = put(segment.scale[part]), put(segment.factor[part])
            bias = segment.bias[part] if len(segment.bias) else np.zeros(len(row), np.float32)
            self.bias[position] = put(np.where(found[row], bias, np.float32(_NONE)))
            self.ids[position] = put(segment.ids[row])
        if self.refinement is not None:
            by_row = positions[segment.position]
            for part in self._blocks(len(segment)):
                position = put(by_row[part])
                self.refinement[position, : self.codec.dim] = put(segment.refinement[part])
                self.refinement_scale[position] = put(segment.refinement_scale[part])

    def _blocks(self, count: int) -> list[slice]:
        """Return parts of so many rows whose codes are moved together: each byte has a place of 8 bytes meanwhile."""
        return split_range(count, max(1024, min(_BLOCK, self.device.workspace // (32 * self.layout.row_bytes))))

    def _planes(self, position: Any) -> Any:
        """Return the planes (rows, planes, 4) of the codes at some positions."""
        codes = self.codes[(position // ROWS)[:, None], self.layout.table[position % ROWS]]
        return codes.reshape(len(position), -1, 4)

    # ------------------------------------------------------------------------------------------------ filters

    def filtered(self, number: Any, passing: Any) -> DeviceLists | None:
        """Return the lists in which only vectors that pass are found; None if there are none.

        number: of the vector at each position in `passing`, -1 for none. If at most one of _NARROW vectors passes,
        the result has these alone, in no list: a search compares all of them.
        """
        bias, counts = self.device.kernels.hide(self, number, passing)
        visible = self.device.get(counts)
        if not visible.any():
            return None
        if int(visible.sum()) * _NARROW <= int(self.rows.sum()):
            return self.chosen(self.device.xp.flatnonzero(bias > _NONE))
        masked = replace(self, bias=bias, visible=visible)
        masked.__dict__.update(counts=(self.counts[0], counts))  # known
        return masked

    def chosen(self, position: Any) -> DeviceLists:
        """Return the vectors of some positions alone, in no list: a search compares all of them."""
        xp, count = self.device.xp, len(position)
        total = -(-count // ROWS) * ROWS
        padded = xp.zeros(total, np.int64)
        padded[:count] = position
        codes = xp.empty((total // ROWS, self.codes.shape[1]), np.uint8)
        for part in self._blocks(total):
            at, planes = xp.arange(part.start, part.stop), self._planes(padded[part])
            codes[(at // ROWS)[:, None], self.layout.table[at % ROWS]] = planes.reshape(len(at), -1)
        bias, ids = self.bias[padded], self.ids[padded]
        bias[count:], ids[count:] = _NONE, -1
        empty = np.zeros(self.codec.units + 1, np.int64)
        rows, tiles = empty.copy(), empty.copy()
        rows[-1], tiles[-1] = count, total // ROWS
        refine = self.refinement is not None
        return replace(
            self,
            codes=codes,
            unit=self.unit[padded],
            weight=self.weight[padded],
            scale=self.scale[padded],
            factor=self.factor[padded],
            bias=bias,
            refinement=self.refinement[padded] if refine else None,
            refinement_scale=self.refinement_scale[padded] if refine else None,
            ids=ids,
            tile=self.device.put(empty),
            tiles=self.device.put(tiles),
            rows=rows,
            visible=rows,
            stretch=None if self.stretch is None else self.stretch[padded],
        )

    # ------------------------------------------------------------------------------------------------ vectors

    def decode(self, part: slice) -> Any:
        """Return the vectors of some positions, rotated and without the mean, as the codes represent them."""
        xp = self.device.xp
        fields = self.layout.unpack(self._planes(xp.arange(part.start, part.stop)))
        Z = self.codec.bands.dequantize(fields, self.factor[part])
        weight = self.weight[part] * self.scale[part, None]
        for e in range(weight.shape[1]):
            Z += weight[:, e : e + 1] * self.Y[self.unit[part, e]]
        if self.refinement is not None:
            Z += self.refinement[part, : self.codec.dim] * self.refinement_scale[part, None]
        return Z


def rotation_of(codec: Codec) -> Floats:
    """Return the matrix whose rows are multiplied with a vector to rotate it."""
    return np.ascontiguousarray(codec.bands.rotate(np.eye(codec.dim, dtype=np.float32)).T)


def bytes_needed(device: Device, segments: Sequence[ListSegment]) -> int:
    """Return the bytes that the segments of one codec have on a device."""
    codec = segments[0].codec
    code = Layout(codec.bands, device).row_bytes + codec.entries * (1 + np.dtype(unit_dtype(codec.units)).itemsize)
    each = code + 4 * 3 + 8 + (-(-codec.dim // 4) * 4 + 4 if codec.refine else 0)
    positions = int(_arrange(segments, codec.units)[3].sum()) * ROWS
    return positions * each + 4 * (codec.units + codec.dim) * codec.dim


def _arrange(segments: Sequence[ListSegment], units: int) -> tuple[Array, Array, Array, Array]:
    """Return (vectors of each segment by list, where they start, the first tile of each list, its tiles)."""
    sizes = []
    for segment in segments:
        one = np.zeros(units + 1, np.int64)
        if segment.flat:
            one[-1] = len(segment)
        else:
            one[:-1] = np.diff(segment.starts)
        sizes.append(one)
    listed = np.stack(sizes)
    tiles = -(-listed.sum(axis=0) // ROWS)
    tile = np.cumsum(tiles) - tiles
    return listed, tile * ROWS + np.cumsum(listed, axis=0) - listed, tile, tiles


def _positions(sizes: Array, starts: Array) -> Ids:
    """Return where the vectors of a segment are, whose lists have these sizes and start at these positions."""
    before = np.cumsum(sizes) - sizes
    positions: Ids = np.repeat(starts - before, sizes) + np.arange(int(sizes.sum()))
    return positions


def _visible_by_list(segment: ListSegment, units: int) -> Array:
    visible = np.zeros(units + 1, np.int64)
    here = segment.live[segment.row]
    if segment.flat:
        visible[-1] = np.count_nonzero(here)
    else:
        counts = np.concatenate([[0], np.cumsum(here)])
        visible[:-1] = np.diff(counts[segment.starts])
    return visible

"""Segments of the default index: inverted lists of sparse codes and residual codes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logt import _kernels
from logt._internal.arrays import unit_dtype
from logt._internal.segment import Segment, StoredPart, check_ids
from logt._internal.threads import SERIAL, Workers
from logt._internal.types import Array, Floats, Ids
from logt._internal.validation import check_array, check_type
from logt.lists.codec import Codec, Encoded
from logt.lists.inverted_lists import sort_into_lists

MAX_FLAT = 1024
"""Up to this many rows, a segment has no lists, and a search scans all of it."""

_NO_FLOATS, _NO_BYTES = np.empty(0, np.float32), np.empty((0, 0), np.int8)


@dataclass(frozen=True, eq=False)
class ListSegment(Segment):
    """Codes in list order: position p holds row[p]; the list of unit j is the positions starts[j]:starts[j + 1].

    unit: (L - 1, rows), the first entry being the list's unit; (L, rows) in a small segment, whose `starts` is empty.
    weight: (L, rows). bias: −‖v‖², empty under inner product. sign_bits, low_bits, factor: the residual. refinement,
    refinement_scale: what the residual's bits leave out, by row; empty if that is not kept.
    """

    codec: Codec
    row: NDArray[np.uint32]
    starts: Ids
    unit: Array
    weight: NDArray[np.int8]
    scale: Floats
    factor: Floats
    bias: Floats
    sign_bits: NDArray[np.uint8]
    low_bits: NDArray[np.uint8]
    refinement: NDArray[np.int8]
    refinement_scale: Floats

    @classmethod
    def build(cls, codec: Codec, rows: Any, ids: Ids, *, distances: bool, workers: Workers = SERIAL) -> ListSegment:
        """Encode vectors, whose ids increase."""
        return cls.from_encoded(codec, codec.encode(rows, workers), ids, distances=distances)

    @classmethod
    def from_encoded(cls, codec: Codec, codes: Encoded, ids: Ids, *, distances: bool) -> ListSegment:
        """Sort encoded vectors into lists."""
        flat = len(ids) <= MAX_FLAT
        if flat:
            row, starts = np.arange(len(ids), dtype=np.uint32), np.empty(0, np.int64)
        else:
            row, starts = sort_into_lists(codes.unit[:, 0], codec.units)
        unit = codes.unit[row] if flat else codes.unit[row, 1:]
        return cls(
            ids,
            None,
            codec,
            row,
            starts,
            np.ascontiguousarray(unit.T),
            np.ascontiguousarray(codes.weight[row].T),
            codes.scale[row],
            codes.factor[row],
            -codes.square[row] if distances else _NO_FLOATS,
            _aligned(codes.sign_bits, row),
            _aligned(codes.low_bits, row),
            _NO_BYTES if codes.refinement is None else codes.refinement,
            _NO_FLOATS if codes.refinement_scale is None else codes.refinement_scale,
        )

    @property
    def model(self) -> Codec:
        return self.codec

    @property
    def flat(self) -> bool:
        """Whether there are no lists."""
        return not len(self.starts)

    @cached_property
    def position(self) -> NDArray[np.uint32]:
        """The position of each row."""
        position = np.empty_like(self.row)
        position[self.row] = np.arange(len(position), dtype=np.uint32)
        return position

    # ------------------------------------------------------------------------------------------------ changes

    def compact(self) -> ListSegment:
        return self if self.removed is None else merge_segments([self])

    def encoded(self, rows: Array | slice) -> Encoded:
        """Return the codes of some rows, in their order."""
        at = self.position[rows]
        unit = self.unit[:, at].T
        if not self.flat:
            first = np.searchsorted(self.starts, at, side="right") - 1
            unit = np.concatenate([first[:, None].astype(unit.dtype), unit], axis=1)
        refine = len(self.refinement_scale) > 0
        return Encoded(
            np.ascontiguousarray(unit),
            np.ascontiguousarray(self.weight[:, at].T),
            *(self.scale[at], self.sign_bits[at], self.low_bits[at], self.factor[at]),
            -self.bias[at] if len(self.bias) else np.zeros(len(at), np.float32),
            refinement=self.refinement[rows] if refine else None,
            refinement_scale=self.refinement_scale[rows] if refine else None,
        )

    def reconstruct(self, rows: Ids | slice = slice(None)) -> Floats:
        return self.codec.decode(self.encoded(rows))

    # ------------------------------------------------------------------------------------------------- search

    @cached_property
    def compiled(self) -> _kernels.SegmentArrays:
        """The arrays as kernels take them."""
        return self.compile()

    def compile(self, **others: Array) -> _kernels.SegmentArrays:
        """Return the arrays as kernels take them, with others instead of some."""
        names = {field.name for field in fields(self)} - {"removed", "codec"}
        return _kernels.SegmentArrays(**{name: getattr(self, name) for name in names} | others)

    # ------------------------------------------------------------------------------------------------- storage

    def bytes_by_part(self) -> dict[str, int]:
        cached = self.position.nbytes if "position" in vars(self) else 0
        return {
            "codes": sum(part.nbytes for part in (self.unit, self.weight, self.scale)),
            "residual codes": sum(part.nbytes for part in (self.sign_bits, self.low_bits, self.factor)),
            "lists": self.row.nbytes + self.starts.nbytes + cached,
            "ids": self.ids.nbytes,
            "norms": self.bias.nbytes,
            "deletions": 0 if self.removed is None else self.removed.nbytes,
        }

    @property
    def mapped_bytes(self) -> int:
        """The bytes of the refinement, which is mapped from a file and read a little at a time."""
        return self.refinement.nbytes + self.refinement_scale.nbytes

    @property
    def entries(self) -> int:
        return int(np.count_nonzero(self.weight))

    def list_order(self) -> tuple[Ids, Ids]:
        if self.flat:
            return super().list_order()
        live = self.live[self.row]
        ends = np.concatenate([[0], np.cumsum(live)])[self.starts]
        return self.row[live].astype(np.int64), np.diff(ends)

    @property
    def stored_parts(self) -> dict[str, StoredPart]:
        names = ("ids", "row", "starts", "unit", "weight", "scale", "factor", "bias", "sign_bits", "low_bits")
        arrays = {name: getattr(self, name) for name in names}
        parts = {"segment": StoredPart(arrays, (self.ids, self.row, self.bias))}
        if self.codec.refine:  # in a file of its own, which may stay on disk
            arrays = {"refinement": self.refinement, "refinement_scale": self.refinement_scale}
            parts["refinement"] = StoredPart(arrays, (self.refinement,))
        return parts

    @classmethod
    def from_arrays(cls, codec: Codec, arrays: Mapping[str, Array]) -> ListSegment:
        """Build from stored arrays; raise ValueError if they do not fit together."""
        ids = check_ids(arrays["ids"])
        rows, L = len(ids), codec.entries
        row, starts = check_type(arrays["row"], np.uint32, 1), check_type(arrays["starts"], np.int64, 1)
        if len(row) != rows or not _kernels.is_permutation(row):
            raise ValueError("the lists do not hold each vector once")
        if len(starts):
            fits = len(starts) == codec.units + 1 and starts[0] == 0 and starts[-1] == rows
            if not fits or (starts[1:] < starts[:-1]).any():  # differences might overflow
                raise ValueError("the lists do not fit the units")
        unit = check_type(arrays["unit"], unit_dtype(codec.units), 2)
        weight = check_type(arrays["weight"], np.int8, 2)
        if unit.shape != (L - bool(len(starts)), rows) or weight.shape != (L, rows):
            raise ValueError("the codes do not fit the vectors")
        if unit.max(initial=0) >= codec.units:
            raise ValueError("a code refers to a memory vector that does not exist")
        scale, factor, bias = (check_array(arrays[name], np.float32, 1) for name in ("scale", "factor", "bias"))
        sign_bits, low_bits = (check_type(arrays[name], np.uint8, 2) for name in ("sign_bits", "low_bits"))
        if (sign_bits.shape[1], low_bits.shape[1]) != codec.bands.code_bytes or not len(sign_bits) == len(
            low_bits
        ) == rows:
            raise ValueError("the residual codes do not fit the vectors")
        if not len(scale) == len(factor) == rows or len(bias) not in (0, rows):
            raise ValueError("arrays of one segment differ in length")
        more, more_scale = _NO_BYTES, _NO_FLOATS
        if codec.refine:
            more = check_type(arrays["refinement"], np.int8, 2)
            more_scale = check_array(arrays["refinement_scale"], np.float32, 1)
            if more.shape != (rows, codec.dim) or len(more_scale) != rows:
                raise ValueError("the refinement does not fit the vectors")
        return cls(
            ids, None, codec, row, starts, unit, weight, scale, factor, bias, sign_bits, low_bits, more, more_scale
        )


def by_codec(segments: Iterable[ListSegment]) -> dict[int, list[ListSegment]]:
    """Return the segments of each codec, by the identity of the codec."""
    groups: dict[int, list[ListSegment]] = {}
    for segment in segments:
        groups.setdefault(id(segment.codec), []).append(segment)
    return groups


def merge_segments(segments: Sequence[ListSegment], rows: Sequence[Ids] | None = None) -> ListSegment:
    """Return one segment with rows of several that share a codec, the live ones by default.

    Their estimates do not change.
    """
    first = segments[0]
    used = [np.flatnonzero(segment.live) for segment in segments] if rows is None else rows
    parts = [segment.encoded(mine) for segment, mine in zip(segments, used, strict=True)]
    ids = np.concatenate([segment.ids[mine] for segment, mine in zip(segments, used, strict=True)])
    order = np.argsort(ids)
    gathered = {
        field.name: _gather([getattr(part, field.name) for part in parts], order) for field in fields(Encoded)
    }
    return ListSegment.from_encoded(first.codec, Encoded(**gathered), ids[order], distances=len(first.bias) > 0)


def _gather(parts: Sequence[Array | None], order: Ids) -> Any:
    """Return the rows of several arrays in one order, or None if there are none."""
    known = [part for part in parts if part is not None]
    return np.concatenate(known)[order] if known else None


def _aligned(code: NDArray[np.uint8], rows: Array) -> NDArray[np.uint8]:
    """Return a copy of some rows that starts at a multiple of 64 bytes: the fewest cache lines are read."""
    copy = aligned_bytes(len(rows), code.shape[1])
    np.take(code, rows, axis=0, out=copy)
    return copy


def aligned_bytes(rows: int, width: int) -> NDArray[np.uint8]:
    """Return space for codes that starts at a multiple of 64 bytes."""
    space = np.empty(rows * width + 64, np.uint8)
    first = -space.ctypes.data % 64
    return space[first : first + rows * width].reshape(rows, width)

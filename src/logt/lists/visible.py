"""Visible rows, (segment, mask or list of rows) -> the arrays that a search of the segment reads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from logt import _kernels
from logt._internal.segment import as_row_mask
from logt._internal.types import Array, Ids, Mask
from logt.lists.segment import ListSegment

COMPLETE = 32
"""Of N vectors of a segment, a filter that passes at most COMPLETE · √N is searched completely, without lists."""

_NO_MASK, _NO_STARTS, _NO_ROWS = np.empty(0, bool), np.empty(0, np.int64), np.empty(0, np.uint32)


@dataclass(frozen=True, eq=False)
class VisibleRows:
    """The rows of a segment that a search can find.

    arrays: those of the segment, with a mask of the visible rows, empty if all are visible. If few rows are visible,
    the codes of these alone, in no list; `position` is then that of each in the segment, where its residual stays.
    """

    count: int
    arrays: _kernels.SegmentArrays
    row: NDArray[np.uint32]
    mask: Mask
    position: NDArray[np.uint32] | None = None

    @classmethod
    def of(cls, segment: ListSegment, rows: Mask | Ids | None, *, in_place: bool = False) -> VisibleRows:
        """rows: a mask or a list; None means all live ones. in_place: keep positions, as a graph needs."""
        if rows is None:
            mask = _NO_MASK if segment.removed is None else segment.live
            return cls(segment.count, segment.compiled, segment.row, mask)
        masked, size = rows.dtype == bool, len(segment)
        count = int(np.count_nonzero(rows)) if masked else len(rows)
        if in_place or count > COMPLETE * size**0.5:
            mask = np.ascontiguousarray(rows) if masked else as_row_mask(rows, size)
            return cls(count, segment.compiled, segment.row, mask)
        position = np.sort(segment.position[np.flatnonzero(rows) if masked else rows])
        row, unit = segment.row[position], segment.unit.take(position, axis=1)
        if not segment.flat:
            first = np.searchsorted(segment.starts, position, "right") - 1
            unit = np.concatenate([first[None].astype(unit.dtype), unit])
        taken = {name: getattr(segment, name)[position] for name in ("scale", "factor")}
        bias = segment.bias[position] if len(segment.bias) else segment.bias
        weight = segment.weight.take(position, axis=1)
        arrays = segment.compile(starts=_NO_STARTS, unit=unit, weight=weight, bias=bias, row=row, **taken)
        return cls(count, arrays, row, _NO_MASK, position)

    def add_to(self, searcher: _kernels.ListSearcher, codec: int) -> None:
        """Add the rows to a searcher. codec: the number of theirs."""
        residual = _NO_ROWS if self.position is None else self.position
        searcher.add_segment(codec, self.arrays, self.mask, self.count, residual)

    def by_list(self, segment: ListSegment) -> Array | None:
        """Return the number of visible rows of each list, None if they are in no list."""
        if segment.flat or self.position is not None or not self.count:
            return None
        if not len(self.mask):
            return np.diff(segment.starts)
        before = np.concatenate([[0], np.cumsum(self.mask[segment.row], dtype=np.int64)])
        return np.diff(before[segment.starts])

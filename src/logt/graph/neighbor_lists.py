"""Neighbor lists, (neighbors, similarities) -> bytes, as they are stored and as the kernels read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logt._internal.types import Array, Floats, Ids, Mask
from logt._internal.validation import check_array

_LEVELS = 255  # similarities as bytes; 0 means no neighbor
_BLOCK = 1 << 16  # rows that are checked together


def _high_type(count: int) -> Any:
    """Return the type of the upper bits of row numbers."""
    return np.uint8 if count <= 1 << 24 else np.uint16


def _to_levels(similarity: Floats, bounds: Floats) -> NDArray[np.uint8]:
    """Return similarities as bytes, from 1 to 255 between the bounds."""
    step = (bounds[1] - bounds[0]) / (_LEVELS - 1)
    levels: NDArray[np.uint8] = np.clip(np.rint((similarity - bounds[0]) / step) + 1, 1, _LEVELS).astype(np.uint8)
    return levels


@dataclass(frozen=True, eq=False)
class NeighborLists:
    """The neighbors of each row, nearest first: five bytes each, four below 2**24 rows.

    low, high: the row of each neighbor is low + 65536 · high, (N, k). level: its similarity, from 1 to 255 between
    the two bounds; 0 means no neighbor, here and after it.
    """

    low: NDArray[np.uint16]
    high: Array
    level: NDArray[np.uint8]
    bounds: Floats

    @classmethod
    def encode(cls, neighbors: NDArray[np.int32], similarity: Floats, k: int) -> NeighborLists:
        """Create lists of k neighbors. neighbors, similarity: (N, k), or fewer columns so far; -1 for none."""
        N, width = neighbors.shape
        known = neighbors >= 0
        least = min(float(similarity.min(where=known, initial=1.0)), 1 - 1e-3)
        bounds = np.array([max(least, -1.0), 1], np.float32)
        low, level = np.zeros((N, k), np.uint16), np.zeros((N, k), np.uint8)
        high = np.zeros((N, k), _high_type(N))
        rows = np.where(known, neighbors, 0)
        low[:, :width], high[:, :width] = rows & 0xFFFF, rows >> 16
        level[:, :width] = np.where(known, _to_levels(similarity, bounds), 0)
        return cls(low, high, level, bounds)

    def __len__(self) -> int:
        return len(self.level)

    @property
    def k(self) -> int:
        return int(self.level.shape[1])

    @property
    def counts(self) -> Ids:
        """The number of neighbors of each row."""
        counts: Ids = np.count_nonzero(self.level, axis=1)
        return counts

    @property
    def neighbors(self) -> NDArray[np.int32]:
        """(N, k), -1 for no neighbor."""
        return self._rows(slice(None))

    def _largest(self, part: slice) -> int:
        """Return the largest row that is a neighbor, also if it does not fit into an int32."""
        rows = self.low[part] | self.high[part].astype(np.int64) << 16
        return int(np.max(rows, where=self.level[part] > 0, initial=-1))

    def _rows(self, part: slice | Ids) -> NDArray[np.int32]:
        rows = self.low[part].astype(np.int32) | self.high[part].astype(np.int32) << 16
        return np.where(self.level[part] > 0, rows, np.int32(-1))

    @property
    def values(self) -> Floats:
        """The similarity of each level."""
        step = (self.bounds[1] - self.bounds[0]) / np.float32(_LEVELS - 1)
        values: Floats = self.bounds[0] + (np.arange(_LEVELS + 1, dtype=np.float32) - 1) * step
        values[0] = 0
        return values

    @property
    def similarity(self) -> Floats:
        """(N, k), 0 for no neighbor."""
        found: Floats = self.values[self.level]
        return found

    def keep(self, rows: Ids) -> NeighborLists:
        """Return the lists of some rows only, which are renumbered in this order."""
        new = np.full(len(self), -1, np.int64)
        new[rows] = np.arange(len(rows))
        neighbors, level = self._rows(rows), self.level[rows]
        moved = np.where(neighbors >= 0, new[neighbors], -1)
        order = np.argsort(moved < 0, axis=1, kind="stable")  # the lists have no gaps
        return self._with(np.take_along_axis(moved, order, 1), np.take_along_axis(level, order, 1), len(rows))

    def grow(self, count: int) -> NeighborLists:
        """Return the lists with `count` more rows, which have no neighbors yet."""
        rows = np.concatenate([self.neighbors, np.full((count, self.k), -1, np.int32)])
        level = np.concatenate([self.level, np.zeros((count, self.k), np.uint8)])
        return self._with(rows, level, len(rows))

    def with_edges(self, row: Ids, other: Ids, value: Floats, removed: Mask | None) -> NeighborLists:
        """Return the lists with more edges; each keeps its k nearest, without removed ones.

        row, other, value: the two ends of each edge, and its similarity. removed: the rows to leave out.
        """
        touched, place = np.unique(row, return_inverse=True)
        known = self._rows(touched)
        at, column = np.nonzero((known >= 0) if removed is None else (known >= 0) & ~removed[known])
        place = np.concatenate([at, place])
        other = np.concatenate([known[at, column], other]).astype(np.int64)
        level = np.concatenate([self.level[touched][at, column], _to_levels(value, self.bounds)]).astype(np.int64)
        order = np.lexsort((other, -level, place))
        _, first = np.unique((place * len(self) + other)[order], return_index=True)
        order = order[np.sort(first)]  # each pair once, as near as it was found
        place, other, level = place[order], other[order], level[order]
        rank = np.arange(len(place)) - np.searchsorted(place, place)
        best = rank < self.k
        place, other, level, rank = place[best], other[best], level[best], rank[best]
        lists = np.full((len(touched), self.k), -1, np.int64)
        levels = np.zeros((len(touched), self.k), np.uint8)
        lists[place, rank], levels[place, rank] = other, level
        changed = self._with(lists, levels, len(self))
        low, high, all_levels = self.low.copy(), self.high.copy(), self.level.copy()
        low[touched], high[touched], all_levels[touched] = changed.low, changed.high, changed.level
        return NeighborLists(low, high, all_levels, self.bounds)

    def _with(self, rows: Array, level: NDArray[np.uint8], count: int) -> NeighborLists:
        """Return lists with the same bounds; rows: of the neighbors, -1 for none, out of `count`."""
        known = rows >= 0
        used = np.where(known, rows, 0)
        high = (used >> 16).astype(_high_type(count))
        return NeighborLists(
            (used & 0xFFFF).astype(np.uint16), high, np.where(known, level, np.uint8(0)), self.bounds
        )

    @property
    def arrays(self) -> dict[str, Array]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], count: int) -> NeighborLists:
        """Build from stored arrays of `count` rows; raise ValueError if they do not fit together."""
        low, level = check_array(arrays["low"], np.uint16, 2), check_array(arrays["level"], np.uint8, 2)
        high = check_array(arrays["high"], _high_type(count), 2)
        bounds = check_array(arrays["bounds"], np.float32, 1)
        if not count == len(low) or not low.shape == level.shape == high.shape:
            raise ValueError("the neighbor graph does not fit together")
        if len(bounds) != 2 or not np.isfinite(bounds).all() or not -1.01 <= bounds[0] < bounds[1] <= 1.01:
            raise ValueError("the neighbor graph has impossible similarities")
        lists = cls(low, high, level, bounds)
        if any(lists._largest(slice(at, at + _BLOCK)) >= count for at in range(0, count, _BLOCK)):
            raise ValueError("the neighbor graph refers to a vector that does not exist")
        return lists

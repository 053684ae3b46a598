"""The neighbor graph as an index keeps it: the neighbors of each vector in four or five bytes each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logt._internal.recall_curve import RecallCurve
from logt._internal.segment import RemovableRows, check_ids
from logt._internal.threads import SERIAL, Workers, split_range
from logt._internal.types import Array, Floats, Ids, Mask
from logt._internal.validation import check_array

_LEVELS = 255  # similarities as bytes; 0 means no neighbor
_BLOCK = 1 << 16  # rows that are checked together


@dataclass(frozen=True, eq=False)
class StoredGraph(RemovableRows):
    """The neighbors of each row, nearest first, and which vectors the rows are. New vectors may be missing.

    ids: of the rows, increasing. low, high: the row of each neighbor is low + 65536 · high, (N, k). level: its
    similarity, from 1 to 255 between the two bounds; 0 means no neighbor, here and after it. recall: how accurate
    searches that use the graph are by effort (`RecallCurve`), empty if that was not measured. measured: the vectors
    that the graph had then. removed: marks vectors that were removed since. transitions: what diffusions computed
    from the lists, by the number of neighbors. computed: the same for searches. Graphs with the same lists and other
    removals share both.
    """

    ids: Ids
    low: NDArray[np.uint16]
    high: Array
    level: NDArray[np.uint8]
    bounds: Floats
    recall: Floats = field(default_factory=lambda: np.empty((0, 0), np.float32))
    measured: int = 0
    removed: Mask | None = None
    transitions: dict[int, Any] = field(default_factory=dict, repr=False)
    computed: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def encode(
        cls, ids: Ids, neighbors: NDArray[np.int32], similarity: Floats, k: int, workers: Workers = SERIAL
    ) -> StoredGraph:
        """Create lists of k neighbors. neighbors, similarity: (N, k), or fewer columns so far; -1 for none."""
        parts = split_range(len(ids), _BLOCK)
        least = workers.map(lambda p: float(similarity[p].min(where=neighbors[p] >= 0, initial=1.0)), parts)
        graph = cls.assemble(ids, k, min(least, default=1.0), ())
        workers.map(lambda p: graph._write(p, neighbors[p], similarity[p]), parts)
        return graph

    @classmethod
    def assemble(
        cls, ids: Ids, k: int, least: float, parts: Iterable[tuple[slice | Ids, NDArray[np.int32], Floats]]
    ) -> StoredGraph:
        """Create lists of k neighbors from those of some rows at a time.

        least: the lowest similarity. parts: (rows, neighbors, similarities), as of `encode`.
        """
        N = len(ids)
        bounds = np.array([max(min(least, 1 - 1e-3), -1.0), 1], np.float32)
        lists = np.zeros((N, k), np.uint16), np.zeros((N, k), _high_type(N)), np.zeros((N, k), np.uint8)
        graph = cls(ids, *lists, bounds)
        for part in parts:
            graph._write(*part)
        return graph

    def _write(self, rows: slice | Ids, neighbors: NDArray[np.int32], similarity: Floats) -> None:
        """Write the neighbors of some rows of a new graph; -1 for none."""
        known, width = neighbors >= 0, neighbors.shape[1]
        used = np.where(known, neighbors, 0)
        self.low[rows, :width], self.high[rows, :width] = used & 0xFFFF, used >> 16
        self.level[rows, :width] = np.where(known, _to_levels(similarity, self.bounds), 0)

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

    def _rows(self, part: slice | Ids) -> NDArray[np.int32]:
        rows = self.low[part].astype(np.int32) | self.high[part].astype(np.int32) << 16
        return np.where(self.level[part] > 0, rows, np.int32(-1))

    def neighbor_ids(self, ids: Ids, first: int) -> Ids:
        """Return the ids of the first neighbors of some vectors, (len(ids), at most first), -1 for none."""
        rows, here = self.locate(ids)
        neighbors = self._rows(rows)[:, :first]
        known = (neighbors >= 0) & here[:, None] & self.live[neighbors]
        return np.where(known, self.ids[neighbors], -1)

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

    @property
    def nbytes(self) -> int:
        """The bytes that are stored, and of what diffusions need, once one was run."""
        computed: list[Any] = list(self.transitions.values())  # searches add to it
        return sum(part.nbytes for part in (*self.arrays.values(), *computed))

    # ------------------------------------------------------------------------------------------------ changes

    def compact(self) -> StoredGraph | None:
        """Return the graph without the space of removed vectors, None if none are left."""
        if self.removed is None:
            return self
        rows = np.flatnonzero(self.live)
        return self._keep(rows) if len(rows) else None

    def restrict(self, ids: Ids) -> StoredGraph | None:
        """Return the graph of some of its vectors, and of the edges between them; None if it has none of them."""
        rows = np.sort(self.find(ids))
        if len(rows) == len(self):
            return self
        return self._keep(rows) if len(rows) else None

    def _keep(self, rows: Ids) -> StoredGraph:
        """Return the graph of some rows only, which are renumbered in this order; none of them counts as removed."""
        new = np.full(len(self), -1, np.int64)
        new[rows] = np.arange(len(rows))
        low, level = np.zeros((len(rows), self.k), np.uint16), np.zeros((len(rows), self.k), np.uint8)
        high = np.zeros((len(rows), self.k), _high_type(len(rows)))
        for at in range(0, len(rows), _BLOCK):
            part = slice(at, at + _BLOCK)
            neighbors = self._rows(rows[part])
            moved = np.where(neighbors >= 0, new[neighbors], -1)
            order = np.argsort(moved < 0, axis=1, kind="stable")  # the lists have no gaps
            moved, levels = (np.take_along_axis(lists, order, 1) for lists in (moved, self.level[rows[part]]))
            known = moved >= 0
            used = np.where(known, moved, 0)
            low[part], high[part], level[part] = used & 0xFFFF, used >> 16, np.where(known, levels, 0)
        return replace(self._with_lists(low, high, level), ids=self.ids[rows], removed=None)

    def insert_rows(self, ids: Ids) -> StoredGraph:
        """Return the graph with rows for some increasing ids, none of which is live; they have no neighbors yet."""
        used = np.isin(ids, self.ids)
        graph, new = self._forget(ids[used]), ids[~used]
        if not len(new):
            return graph
        lists = ((part, np.zeros((len(new), self.k), part.dtype)) for part in (graph.low, graph.high, graph.level))
        low, high, level = (np.concatenate(both) for both in lists)
        all_ids, high = np.concatenate([graph.ids, new]), high.astype(_high_type(len(high)), copy=False)
        grown = replace(graph._with_lists(low, high, level), ids=all_ids, removed=None)
        removed = None if graph.removed is None else np.concatenate([graph.removed, np.zeros(len(new), bool)])
        if new[0] < graph.ids[-1]:
            order = np.argsort(all_ids)
            grown, removed = grown._keep(order), None if removed is None else removed[order]
        return replace(grown, removed=removed)

    def _forget(self, ids: Ids) -> StoredGraph:
        """Return the graph in which removed vectors are new ones: without neighbors, and nobody's neighbors."""
        if not len(ids) or self.removed is None:
            return self
        gone = np.zeros(len(self), bool)
        gone[np.searchsorted(self.ids, ids)] = True
        low, high, level = self.low.copy(), self.high.copy(), self.level.copy()
        level[gone] = 0
        for at in range(0, len(self), _BLOCK):
            part = slice(at, at + _BLOCK)
            lost = gone[low[part] | high[part].astype(np.int32) << 16] & (level[part] > 0)
            rows = np.flatnonzero(lost.any(axis=1))
            order = np.argsort(lost[rows], axis=1, kind="stable")  # the lists have no gaps
            level[part][lost] = 0
            for lists in (low, high, level):
                lists[at + rows] = np.take_along_axis(lists[at + rows], order, 1)
        return replace(self._with_lists(low, high, level), removed=self.removed & ~gone)

    def with_edges(self, row: Ids, other: Ids, value: Floats) -> StoredGraph:
        """Return the graph with more edges; each list keeps its k nearest, without removed ones.

        row, other, value: the two ends of each edge, and its similarity.
        """
        order = np.argsort(row, kind="stable")
        row, other, near = row[order], other[order], _to_levels(value[order], self.bounds)
        low, high, level = self.low.copy(), self.high.copy(), self.level.copy()
        touched, first = np.unique(row, return_index=True)
        first = np.append(first, len(row))
        for at in range(0, len(touched), _BLOCK):
            rows = touched[at : at + _BLOCK]
            mine = slice(first[at], first[at + len(rows)])
            lists, level[rows] = self._nearest(rows, row[mine], other[mine], near[mine])
            low[rows], high[rows] = lists & 0xFFFF, lists >> 16
        return self._with_lists(low, high, level)

    def _with_lists(self, low: NDArray[np.uint16], high: Array, level: NDArray[np.uint8]) -> StoredGraph:
        return replace(self, low=low, high=high, level=level, transitions={}, computed={})

    def _nearest(self, rows: Ids, row: Ids, other: Ids, level: NDArray[np.uint8]) -> tuple[Ids, NDArray[np.uint8]]:
        """Return (neighbors, levels) of some rows with more edges, whose levels are given; 0 for none."""
        known = self._rows(rows)
        at, column = np.nonzero((known >= 0) & self.live[known])
        position = np.concatenate([at, np.searchsorted(rows, row)])
        other = np.concatenate([known[at, column], other]).astype(np.int64)
        far = _LEVELS - np.concatenate([self.level[rows[at], column], level]).astype(np.int64)
        pairs = np.sort(position << 40 | other << 8 | far)  # one number each: sorted in a tenth of the time
        pairs = pairs[np.append(True, pairs[1:] >> 8 != pairs[:-1] >> 8)]  # each pair once, as near as it was found
        position, other, far = pairs >> 40, pairs >> 8 & 0xFFFFFFFF, pairs & 0xFF
        pairs = np.sort(position << 40 | far << 32 | other)
        position, other, far = pairs >> 40, pairs & 0xFFFFFFFF, pairs >> 32 & 0xFF
        rank = np.arange(len(position)) - np.searchsorted(position, np.arange(len(rows)))[position]
        best = rank < self.k
        position, rank = position[best], rank[best]
        lists, levels = np.zeros((len(rows), self.k), np.int64), np.zeros((len(rows), self.k), np.uint8)
        lists[position, rank], levels[position, rank] = other[best], _LEVELS - far[best]
        return lists, levels

    # ------------------------------------------------------------------------------------------------- storage

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays to store, apart from the removals."""
        names = ("ids", "low", "high", "level", "bounds", "recall")
        return {**{name: getattr(self, name) for name in names}, "measured": np.array([self.measured], np.int64)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> StoredGraph:
        """Build from stored arrays; raise ValueError if they do not fit together."""
        ids = check_ids(arrays["ids"])
        low, level = check_array(arrays["low"], np.uint16, 2), check_array(arrays["level"], np.uint8, 2)
        high = check_array(arrays["high"], _high_type(len(ids)), 2)
        bounds = check_array(arrays["bounds"], np.float32, 1)
        if not len(ids) == len(low) or not low.shape == level.shape == high.shape:
            raise ValueError("the neighbor graph does not fit together")
        if len(bounds) != 2 or not -1.01 <= bounds[0] < bounds[1] <= 1.01:
            raise ValueError("the neighbor graph has impossible similarities")
        recall = check_array(arrays["recall"], np.float32, 2)
        if recall.size:
            RecallCurve.from_array(recall)
        measured = check_array(arrays["measured"], np.int64, 1).tolist()
        if len(measured) != 1 or measured[0] < 0:
            raise ValueError("the neighbor graph was measured with an impossible number of vectors")
        graph = cls(ids, low, high, level, bounds, recall, *measured)
        if any(graph._largest(slice(at, at + _BLOCK)) >= len(ids) for at in range(0, len(ids), _BLOCK)):
            raise ValueError("the neighbor graph refers to a vector that does not exist")
        return graph

    def _largest(self, part: slice) -> int:
        """Return the largest row that is a neighbor, also if it does not fit into an int32."""
        rows = self.low[part] | self.high[part].astype(np.int64) << 16
        return int(np.max(rows, where=self.level[part] > 0, initial=-1))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "transitions": {}, "computed": {}}


def _high_type(count: int) -> Any:
    """Return the type of the upper bits of row numbers."""
    return np.uint8 if count <= 1 << 24 else np.uint16


def _to_levels(similarity: Floats, bounds: Floats) -> NDArray[np.uint8]:
    """Return similarities as bytes, from 1 to 255 between the bounds."""
    step = (bounds[1] - bounds[0]) / (_LEVELS - 1)
    levels: NDArray[np.uint8] = np.clip(np.rint((similarity - bounds[0]) / step) + 1, 1, _LEVELS).astype(np.uint8)
    return levels

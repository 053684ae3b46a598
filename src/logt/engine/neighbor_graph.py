"""The neighbor graph: as users see it, and as an index keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logt._types import Array, Floats, Ids, Mask
from logt._validation import check_array
from logt.engine.segment import check_ids
from logt.errors import MissingExtraError
from logt.stages.diffusion import Transition, transition
from logt.stages.inverted_lists import RecallCurve

_LEVELS = 255  # similarities as bytes; 0 means no neighbor


@dataclass(frozen=True, eq=False)
class Neighbors:
    """ids: increasing. neighbors: (len(ids), k), rows of ids, nearest first, -1 where there are fewer than k.

    similarity: (len(ids), k), cosines.
    """

    ids: Ids
    neighbors: NDArray[np.int32]
    similarity: Floats


@dataclass(frozen=True, eq=False)
class NeighborGraph:
    """The nearest neighbors of every vector, as a sparse matrix in CSR form.

    ids: the id of each row. starts: the neighbors of row i are starts[i]:starts[i + 1], nearest first. rows: the row
    of each neighbor. similarity: its cosine, from the stored codes.
    """

    ids: Array
    starts: Ids
    rows: NDArray[np.int32]
    similarity: Floats

    @classmethod
    def from_neighbors(cls, ids: Array, neighbors: NDArray[np.int32], similarity: Floats) -> NeighborGraph:
        """Create the graph from (N, k) arrays, -1 for no neighbor."""
        known = neighbors >= 0
        starts = np.concatenate([[0], np.cumsum(known.sum(axis=1))]).astype(np.int64)
        return cls(ids, starts, neighbors[known], similarity[known])

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"NeighborGraph(vectors={len(self)}, edges={len(self.rows)})"

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays, without the ids."""
        return self.starts.nbytes + self.rows.nbytes + self.similarity.nbytes

    def neighbors(self, row: int) -> tuple[Array, Floats]:
        """Return (ids, similarities) of the neighbors of one row, nearest first."""
        mine = slice(self.starts[row], self.starts[row + 1])
        return self.ids[self.rows[mine]], self.similarity[mine]

    def to_scipy(self, *, distance: bool = False) -> Any:
        """Return a `scipy.sparse.csr_matrix` of similarities; needs `pip install 'logt-search[data]'`.

        distance: return 1 − similarity instead, as scikit-learn takes it for metric="precomputed".
        """
        try:
            from scipy.sparse import csr_matrix
        except ImportError as error:
            raise MissingExtraError("to_scipy needs scipy: pip install 'logt-search[data]'") from error
        values = np.maximum(1 - self.similarity, 0) if distance else self.similarity
        return csr_matrix((values, self.rows, self.starts), shape=(len(self), len(self)))

    def to_networkx(self) -> Any:
        """Return a `networkx.DiGraph` with the ids as nodes and edges with a `similarity`; needs networkx."""
        try:
            import networkx
        except ImportError as error:
            raise MissingExtraError("to_networkx needs networkx: pip install networkx") from error
        graph = networkx.DiGraph()
        names = self.ids.tolist()
        graph.add_nodes_from(names)
        for row, name in enumerate(names):
            ids, similarity = self.neighbors(row)
            edges = zip(ids.tolist(), similarity.tolist(), strict=True)
            graph.add_edges_from((name, other, {"similarity": value}) for other, value in edges)
        return graph

    def groups(self, threshold: float) -> list[Array]:
        """Return the ids of each group of two or more vectors that pairs of at least this similarity connect.

        threshold: the least similarity of a pair. The largest groups come first.
        """
        strong = self.similarity >= threshold
        row = np.repeat(np.arange(len(self)), np.diff(self.starts))[strong]
        label = _components(row, self.rows[strong].astype(np.int64), len(self))
        order = np.argsort(label, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(label[order])) + 1)
        return [self.ids[part] for part in sorted(parts, key=lambda p: (-len(p), p[0])) if len(part) > 1]


def _components(a: Ids, b: Ids, count: int) -> Ids:
    """Return the smallest row that each row is connected to."""
    label = np.arange(count)
    while True:
        least = np.minimum(label[a], label[b])
        new = label.copy()
        np.minimum.at(new, label[a], least)
        np.minimum.at(new, label[b], least)
        new = new[new]
        while (shorter := new[new]).tolist() != new.tolist():
            new = shorter
        if np.array_equal(new, label):
            return label
        label = new


def _high_type(count: int) -> Any:
    """Return the type of the upper bits of row numbers."""
    return np.uint8 if count <= 1 << 24 else np.uint16


def _to_levels(similarity: Floats, bounds: Floats) -> NDArray[np.uint8]:
    """Return similarities as bytes, from 1 to 255 between the bounds."""
    step = (bounds[1] - bounds[0]) / (_LEVELS - 1)
    levels: NDArray[np.uint8] = np.clip(np.rint((similarity - bounds[0]) / step) + 1, 1, _LEVELS).astype(np.uint8)
    return levels


@dataclass(frozen=True, eq=False)
class Links:
    """The neighbor graph as it is stored: five bytes per neighbor at most, four below 2**24 vectors.

    ids: increasing. low, high: the row of each neighbor is low + 65536 · high, (N, k). level: its similarity, from 1
    to 255 between the two bounds; 0 means no neighbor. recall: how accurate searches that use the graph are by effort
    (RecallCurve), empty if that was not measured.
    """

    ids: Ids
    low: NDArray[np.uint16]
    high: Array
    level: NDArray[np.uint8]
    bounds: Floats
    recall: Floats = field(default_factory=lambda: np.empty((0, 0), np.float32))

    @classmethod
    def from_neighbors(cls, found: Neighbors, k: int) -> Links:
        """Create the graph of k neighbors per vector; there may be fewer so far."""
        N, width = found.neighbors.shape
        known = found.neighbors >= 0
        least = min(float(found.similarity.min(where=known, initial=1.0)), 1 - 1e-3)
        bounds = np.array([max(least, -1.0), 1], np.float32)
        low, level = np.zeros((N, k), np.uint16), np.zeros((N, k), np.uint8)
        high = np.zeros((N, k), _high_type(N))
        rows = np.where(known, found.neighbors, 0)
        low[:, :width], high[:, :width] = rows & 0xFFFF, rows >> 16
        level[:, :width] = np.where(known, _to_levels(found.similarity, bounds), 0)
        return cls(found.ids, low, high, level, bounds)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def k(self) -> int:
        return int(self.level.shape[1])

    @cached_property
    def curve(self) -> RecallCurve | None:
        """How accurate searches that use the graph are, if it was measured."""
        return RecallCurve(self.recall) if self.recall.size else None

    @property
    def neighbors(self) -> NDArray[np.int32]:
        """(N, k), -1 for no neighbor."""
        rows = self.low.astype(np.int32) | self.high.astype(np.int32) << 16
        return np.where(self.level > 0, rows, np.int32(-1))

    @property
    def similarity(self) -> Floats:
        """(N, k), 0 for no neighbor."""
        step = (self.bounds[1] - self.bounds[0]) / np.float32(_LEVELS - 1)
        values = np.arange(_LEVELS + 1, dtype=np.float32)
        values = self.bounds[0] + (values - 1) * step
        values[0] = 0
        found: Floats = values[self.level]
        return found

    @cached_property
    def _transitions(self) -> dict[int, Transition]:
        return {}

    def transition(self, first: int) -> Transition:
        """Return S of a diffusion over mutual neighbors among the first ones of each vector."""
        first = min(first, self.k)
        known = self._transitions.get(first)
        if known is None:
            known = self._transitions[first] = transition(self.neighbors, self.similarity, first)
        return known

    @property
    def nbytes(self) -> int:
        """The bytes that are stored."""
        return sum(array.nbytes for array in self.arrays.values())

    @property
    def cached_bytes(self) -> int:
        """The bytes in memory of what diffusions need, once one was run."""
        parts = list(self._transitions.values()) if "_transitions" in vars(self) else []  # searches add to it
        return sum(S.starts.nbytes + S.columns.nbytes + S.weights.nbytes for S in parts)

    def keep(self, rows: Ids) -> Links:
        """Return the graph of some rows only, in this order."""
        new = np.full(len(self), -1, np.int64)
        new[rows] = np.arange(len(rows))
        neighbors, level = self.neighbors[rows], self.level[rows]
        moved = np.where(neighbors >= 0, new[neighbors], -1)
        order = np.argsort(moved < 0, axis=1, kind="stable")  # the lists have no gaps
        return self._with_lists(
            self.ids[rows], np.take_along_axis(moved, order, 1), np.take_along_axis(level, order, 1)
        )

    def insert_ids(self, ids: Ids) -> Links:
        """Return the graph with rows for some more ids, which have no neighbors yet."""
        together = np.concatenate([self.ids, ids])
        rows = np.concatenate([self.neighbors, np.full((len(ids), self.k), -1, np.int32)])
        level = np.concatenate([self.level, np.zeros((len(ids), self.k), np.uint8)])
        grown = self._with_lists(together, rows, level)
        return grown if (np.diff(together) > 0).all() else grown.keep(np.argsort(together))

    def with_edges(self, row: Ids, other: Ids, value: Floats, gone: Mask | None) -> Links:
        """Return the graph with more edges; each list keeps its k nearest, without those that are gone."""
        touched, place = np.unique(row, return_inverse=True)
        known = self.neighbors[touched]
        at, column = np.nonzero((known >= 0) if gone is None else (known >= 0) & ~gone[known])
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
        changed = self._with_lists(self.ids[touched], lists, levels, len(self))
        low, high, all_levels = self.low.copy(), self.high.copy(), self.level.copy()
        low[touched], high[touched], all_levels[touched] = changed.low, changed.high, changed.level
        return replace(self, low=low, high=high, level=all_levels)

    def _with_lists(self, ids: Ids, rows: Array, level: NDArray[np.uint8], count: int | None = None) -> Links:
        """Return a graph with the same bounds; rows: of the neighbors, -1 for none, out of `count`."""
        known = rows >= 0
        used = np.where(known, rows, 0)
        high = (used >> 16).astype(_high_type(len(ids) if count is None else count))
        lists = (used & 0xFFFF).astype(np.uint16), high, np.where(known, level, np.uint8(0))
        return Links(ids, *lists, self.bounds, self.recall)

    @property
    def arrays(self) -> dict[str, Array]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Links:
        """Build from stored arrays; raise ValueError if they do not fit together."""
        ids = check_ids(arrays["ids"])
        low, level = check_array(arrays["low"], np.uint16, 2), check_array(arrays["level"], np.uint8, 2)
        high = check_array(arrays["high"], _high_type(len(ids)), 2)
        bounds = check_array(arrays["bounds"], np.float32, 1)
        if not len(ids) == len(low) or not low.shape == level.shape == high.shape:
            raise ValueError("the neighbor graph does not fit together")
        if len(bounds) != 2 or not np.isfinite(bounds).all() or not -1.01 <= bounds[0] < bounds[1] <= 1.01:
            raise ValueError("the neighbor graph has impossible similarities")
        recall = arrays.get("recall")  # indexes of earlier versions have none
        measured = () if recall is None or not recall.size else (RecallCurve.from_array(recall).recall,)
        links = cls(ids, low, high, level, bounds, *measured)
        if links.neighbors.max(initial=-1) >= len(ids):
            raise ValueError("the neighbor graph refers to a vector that does not exist")
        return links

    def __getstate__(self) -> dict[str, Any]:
        return self.arrays  # without what is cached


@dataclass(frozen=True, eq=False)
class LinkState:
    """The neighbor graph of a snapshot. Vectors that were removed since are `gone`; some new ones may be missing."""

    links: Links
    gone: Mask | None = None

    @property
    def visible(self) -> Mask | None:
        return None if self.gone is None else ~self.gone

    def remove(self, ids: Ids) -> LinkState:
        """Return the state without the vectors of some ids."""
        rows, here = self.locate(ids)
        if not here.any():
            return self
        gone = np.zeros(len(self.links), bool) if self.gone is None else self.gone.copy()
        gone[rows[here]] = True
        return replace(self, gone=gone)

    def insert_rows(self, ids: Ids) -> LinkState:
        """Return the state with rows for those of some increasing ids that have none."""
        new = ids[~np.isin(ids, self.links.ids)]
        if not len(new):
            return self
        links = self.links.insert_ids(new)
        gone = None if self.gone is None else ~np.isin(links.ids, np.union1d(self.links.ids[~self.gone], new))
        return LinkState(links, gone)

    def locate(self, ids: Ids) -> tuple[Ids, Mask]:
        """Return (a row for each id, whether the id is linked)."""
        rows = np.minimum(np.searchsorted(self.links.ids, ids), max(len(self.links) - 1, 0))
        here: Mask = self.links.ids[rows] == ids
        return rows, here if self.gone is None else here & ~self.gone[rows]

    def compact(self) -> LinkState | None:
        """Return the state without the space of removed vectors, None if none are left."""
        if self.gone is None:
            return self
        rows = np.flatnonzero(~self.gone)
        return LinkState(self.links.keep(rows)) if len(rows) else None

    @property
    def nbytes(self) -> int:
        """The bytes of the graph, and of what diffusions need, once one was run."""
        return self.links.nbytes + self.links.cached_bytes

    @property
    def count(self) -> int:
        """The number of vectors that are linked."""
        return len(self.links) if self.gone is None else int(np.count_nonzero(~self.gone))

    def with_deletions(self, bits: Array) -> LinkState:
        """Return the state with the rows gone that are set in stored bits."""
        if len(check_array(bits, np.uint8, 1)) != -(-len(self.links) // 8):
            raise ValueError("the deletions do not fit the neighbor graph")
        return replace(self, gone=np.unpackbits(bits, count=len(self.links)).astype(bool))

"""The neighbor graph: as users see it, and as an index keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logt._internal.segment import check_ids
from logt._internal.types import Array, Floats, Ids, Mask
from logt._internal.validation import check_array, check_float
from logt.errors import MissingExtraError
from logt.graph.diffusion import Transition, transition
from logt.graph.neighbor_lists import NeighborLists
from logt.lists.inverted_lists import RecallCurve


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
        return [self.ids[rows] for rows, _ in scored_groups(self, check_float("threshold", threshold))]


def edge_rows(graph: NeighborGraph) -> Ids:
    """Return the row that each edge starts from; `graph.rows` has the row that it leads to."""
    return np.repeat(np.arange(len(graph)), np.diff(graph.starts))


def scored_groups(graph: NeighborGraph, threshold: float) -> list[tuple[Ids, float]]:
    """Return (rows, score) of each group of two or more vectors that pairs of at least this similarity connect.

    score: the lowest similarity of the pairs that connect the group, at most 1. The largest groups come first.
    """
    strong = graph.similarity >= threshold
    row, similarity = edge_rows(graph)[strong], graph.similarity[strong]
    label, used = _connect(row, graph.rows[strong].astype(np.int64), len(graph))
    score = np.ones(len(graph))
    np.minimum.at(score, label[row[used]], similarity[used])
    order = np.argsort(label, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(label[order])) + 1)
    groups = [(part, float(score[part[0]])) for part in parts if len(part) > 1]
    return sorted(groups, key=lambda group: (-len(group[0]), group[0][0]))


def _connect(a: Ids, b: Ids, count: int) -> tuple[Ids, Mask]:
    """Return (the smallest row that each row is connected to, which edges connect them).

    Edge i is between the rows a[i] and b[i]. It is one of those that connect if the edges before it do not connect
    its rows. In each round, each part of the graph is joined with another one by its first edge (Borůvka).
    """
    part, used, left = np.arange(count), np.zeros(len(a), bool), np.arange(len(a))
    while True:
        ends = part[a[left]], part[b[left]]
        between = ends[0] != ends[1]
        if not between.any():
            break
        left = left[between]
        first = np.full(count, len(a))
        for end in ends:
            np.minimum.at(first, end[between], left)
        joined = np.flatnonzero(first < len(a))
        edge = first[joined]
        used[edge] = True
        other = part[a[edge]] + part[b[edge]] - joined
        parent = np.arange(count)
        parent[joined] = other
        parent[joined] = np.where(parent[other] == joined, np.minimum(joined, other), other)  # the only cycles: pairs
        while not np.array_equal(shorter := parent[parent], parent):
            parent = shorter
        part = parent[part]
    smallest = np.arange(count)
    np.minimum.at(smallest, part, np.arange(count))
    return smallest[part], used


@dataclass(frozen=True, eq=False)
class Links:
    """The neighbor graph as it is stored.

    ids: increasing. lists: the neighbors of each, by row. recall: how accurate searches that use the graph are by
    effort (RecallCurve), empty if that was not measured.
    """

    ids: Ids
    lists: NeighborLists
    recall: Floats = field(default_factory=lambda: np.empty((0, 0), np.float32))

    @classmethod
    def from_neighbors(cls, found: Neighbors, k: int) -> Links:
        """Create the graph of k neighbors per vector; there may be fewer so far."""
        return cls(found.ids, NeighborLists.encode(found.neighbors, found.similarity, k))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def k(self) -> int:
        return self.lists.k

    @cached_property
    def curve(self) -> RecallCurve | None:
        """How accurate searches that use the graph are, if it was measured."""
        return RecallCurve(self.recall) if self.recall.size else None

    @cached_property
    def _transitions(self) -> dict[int, Transition]:
        return {}

    def transition(self, first: int) -> Transition:
        """Return S of a diffusion over mutual neighbors among the first ones of each vector."""
        first = min(first, self.k)
        known = self._transitions.get(first)
        if known is None:
            known = self._transitions[first] = transition(self.lists, first)
        return known

    @property
    def nbytes(self) -> int:
        """The bytes that are stored."""
        return sum(array.nbytes for array in self.arrays.values())

    @property
    def cached_bytes(self) -> int:
        """The bytes in memory of what diffusions need, once one was run."""
        parts = list(self._transitions.values()) if "_transitions" in vars(self) else []  # searches add to it
        return sum(S.nbytes for S in parts)

    def keep(self, rows: Ids) -> Links:
        """Return the graph of some rows only, in this order."""
        return Links(self.ids[rows], self.lists.keep(rows), self.recall)

    def insert_ids(self, ids: Ids) -> Links:
        """Return the graph with rows for some more ids, which have no neighbors yet."""
        together = np.concatenate([self.ids, ids])
        grown = Links(together, self.lists.grow(len(ids)), self.recall)
        return grown if (np.diff(together) > 0).all() else grown.keep(np.argsort(together))

    def with_edges(self, row: Ids, other: Ids, value: Floats, removed: Mask | None) -> Links:
        """Return the graph with more edges; each list keeps its k nearest, without removed ones."""
        return replace(self, lists=self.lists.with_edges(row, other, value, removed))

    @property
    def arrays(self) -> dict[str, Array]:
        return {"ids": self.ids, **self.lists.arrays, "recall": self.recall}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Links:
        """Build from stored arrays; raise ValueError if they do not fit together."""
        ids = check_ids(arrays["ids"])
        recall = arrays.get("recall")  # indexes of earlier versions have none
        measured = () if recall is None or not recall.size else (RecallCurve.from_array(recall).recall,)
        return cls(ids, NeighborLists.from_arrays(arrays, len(ids)), *measured)

    def __getstate__(self) -> dict[str, Any]:
        return {"ids": self.ids, "lists": self.lists, "recall": self.recall}  # without what is cached


@dataclass(frozen=True, eq=False)
class LinkState:
    """The neighbor graph of a snapshot. `removed` marks vectors that were removed since; new ones may be missing."""

    links: Links
    removed: Mask | None = None

    @property
    def visible(self) -> Mask | None:
        return None if self.removed is None else ~self.removed

    def remove(self, ids: Ids) -> LinkState:
        """Return the state without the vectors of some ids."""
        rows, here = self.locate(ids)
        if not here.any():
            return self
        removed = np.zeros(len(self.links), bool) if self.removed is None else self.removed.copy()
        removed[rows[here]] = True
        return replace(self, removed=removed)

    def insert_rows(self, ids: Ids) -> LinkState:
        """Return the state with rows for those of some increasing ids that have none."""
        new = ids[~np.isin(ids, self.links.ids)]
        if not len(new):
            return self
        links = self.links.insert_ids(new)
        if self.removed is None:
            return LinkState(links)
        present = np.union1d(self.links.ids[~self.removed], new)
        return LinkState(links, ~np.isin(links.ids, present))

    def locate(self, ids: Ids) -> tuple[Ids, Mask]:
        """Return (a row for each id, whether the id is linked)."""
        rows = np.minimum(np.searchsorted(self.links.ids, ids), max(len(self.links) - 1, 0))
        here: Mask = self.links.ids[rows] == ids
        return rows, here if self.removed is None else here & ~self.removed[rows]

    def compact(self) -> LinkState | None:
        """Return the state without the space of removed vectors, None if none are left."""
        if self.removed is None:
            return self
        rows = np.flatnonzero(~self.removed)
        return LinkState(self.links.keep(rows)) if len(rows) else None

    @property
    def nbytes(self) -> int:
        """The bytes of the graph, and of what diffusions need, once one was run."""
        return self.links.nbytes + self.links.cached_bytes

    @property
    def count(self) -> int:
        """The number of vectors that are linked."""
        return len(self.links) if self.removed is None else int(np.count_nonzero(~self.removed))

    def with_removals(self, bits: Array) -> LinkState:
        """Return the state with the rows removed that are set in stored bits."""
        if len(check_array(bits, np.uint8, 1)) != -(-len(self.links) // 8):
            raise ValueError("the removals do not fit the neighbor graph")
        return replace(self, removed=np.unpackbits(bits, count=len(self.links)).astype(bool))

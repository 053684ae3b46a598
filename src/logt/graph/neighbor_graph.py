"""The neighbor graph as users see it, and groups of vectors that are connected in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from logt._internal.extras import needs_extra
from logt._internal.types import Array, Floats, Ids, Mask
from logt._internal.validation import check_choice, check_float
from logt.errors import MissingExtraError


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

    def neighbors(self, row: int) -> tuple[Array, Floats]:
        """Return (ids, similarities) of the neighbors of one row, nearest first."""
        mine = slice(self.starts[row], self.starts[row + 1])
        return self.ids[self.rows[mine]], self.similarity[mine]

    def to_csr(
        self,
        kind: Literal["distance", "similarity"] = "distance",
        *,
        symmetric: bool = False,
        own: bool = False,
    ) -> Any:
        """Return a `scipy.sparse.csr_matrix` with the neighbors of each row, nearest first; needs scipy.

        kind: "distance" has 1 − cosine, as scikit-learn takes it for metric="precomputed"; "similarity" the cosine.
        symmetric: with each edge in both directions; rows then differ in length. own: each vector is its own
        first neighbor. Distances of 0 are stored.
        """
        with needs_extra("data", "to_csr needs scipy"):
            from scipy.sparse import csr_matrix
        check_choice("kind", kind, ("distance", "similarity"))
        a, b, similarity = edge_rows(self), self.rows.astype(np.int64), self.similarity
        if symmetric:  # one value per pair: those of the two directions may be rounded differently
            low, high = np.minimum(a, b), np.maximum(a, b)
            _, first = np.unique(low * len(self) + high, return_index=True)
            low, high, similarity = low[first], high[first], similarity[first]
            a, b, similarity = np.append(low, high), np.append(high, low), np.append(similarity, similarity)
        order = np.lexsort((-similarity, a))
        a, b, values = a[order], b[order], similarity[order]
        if kind == "distance":
            values = np.maximum(1 - values, 0)
        starts = np.searchsorted(a, np.arange(len(self) + 1))
        if own:
            mine = np.arange(len(self))
            b, values = np.insert(b, starts[:-1], mine), np.insert(values, starts[:-1], float(kind != "distance"))
            starts = starts + np.arange(len(self) + 1)
        return csr_matrix((values, b, starts), shape=(len(self), len(self)))

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

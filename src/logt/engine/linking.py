"""Linking, (snapshot, its neighbor graph) -> snapshot: new vectors join the graph, many at a time.

The neighbors of a new vector are found by a search. It enters the lists of these neighbors in turn, where it is
nearer than the last. So two vectors that are mutual neighbors are linked both ways, in whatever order they came.
"""

from dataclasses import dataclass, replace

import numpy as np

from logt._internal.threads import Workers, split_range
from logt._internal.types import Floats, Ids, Metric
from logt._internal.validation import normalize_rows, row_norms
from logt.engine.protocols import Method
from logt.engine.snapshot import Snapshot
from logt.graph.build import FindNeighbors, nearest_neighbors
from logt.graph.stored_graph import StoredGraph

MIN_LINKED = 1024
"""New vectors join the graph when there are so many of them, or a part of all vectors (`MAX_SHARE`). Until then each
search reads them besides the graph."""

MAX_SHARE = 256
"""One vector in so many may be outside of the graph. To link some takes time and memory in proportion to all."""

CHANGED = 1.25
"""Searches on the graph are measured again when its vectors have become so many times as many, or as few."""

_BLOCK = 1024  # vectors that are searched for together
_COMPARED = 128  # vectors that are compared with their candidates together
_MANY = 4  # if more than one in so many vectors is new, all are linked again
_FULL = 0.75  # of k neighbors: a shorter list is searched for again by `Linker.refill`
_MORE = 2  # times as many results under another metric than cosine
_BEST, _FIRST = 16, 16  # of the best candidates by cosine, the first neighbors become candidates, too


@dataclass(frozen=True)
class Linker:
    """Adds the vectors of an index to its neighbor graph. dim, metric, method: of the index."""

    dim: int
    metric: Metric
    method: Method
    workers: Workers

    def compute(self, snapshot: Snapshot, k: int, find: FindNeighbors = nearest_neighbors) -> Snapshot:
        """Return the snapshot with a new neighbor graph; without one if there are fewer than two vectors.

        find: what compares the vectors, here or on another device.
        """
        ids, neighbors, similarity = find(snapshot.segments, self.dim, k, self.workers)
        if not neighbors.size:
            return replace(snapshot, graph=None)
        graph, old = StoredGraph.encode(ids, neighbors, similarity, k, self.workers), snapshot.graph
        if old is not None and old.k == k:
            graph = replace(graph, recall=old.recall)
        return self._measured(snapshot, graph)

    def link_many(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with all vectors in its neighbor graph if many are not, otherwise as it is."""
        graph, count = snapshot.graph, len(snapshot)
        if graph is None:
            return snapshot
        new = count - graph.count
        if new * _MANY <= count and new <= max(MIN_LINKED, count // MAX_SHARE):
            return snapshot
        return self.link_new(snapshot)

    def link_new(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with all vectors in its neighbor graph, if it has one."""
        graph = snapshot.graph
        if graph is None or graph.count == len(snapshot):
            return snapshot
        new = np.sort(snapshot.ids)
        new = new[~graph.locate(new)[1]]
        if len(new) * _MANY > len(snapshot):
            return self.compute(snapshot, graph.k)
        return self._measured(snapshot, self._linked(snapshot, graph.insert_rows(new), new))

    def refill(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with new neighbors for vectors that lost many of theirs to removals.

        If it lost many vectors, the recall of searches is measured again.
        """
        graph = snapshot.graph
        if graph is None:
            return snapshot
        least = _FULL * min(graph.k, len(snapshot) - 1)
        short = graph.ids[graph.counts < least]
        if len(short) * _MANY > len(snapshot):
            return self.compute(snapshot, graph.k)
        return self._measured(snapshot, self._linked(snapshot, graph, short) if len(short) else graph)

    def _measured(self, snapshot: Snapshot, graph: StoredGraph) -> Snapshot:
        """Return the snapshot with a graph, on which searches are measured again if its vectors are not as many."""
        if not graph.measured / CHANGED < graph.count < graph.measured * CHANGED:
            graph = self.method.measure_graph(snapshot.segments, graph, np.random.default_rng(0), self.workers)
            graph = replace(graph, measured=graph.count)
        return replace(snapshot, graph=graph)

    def _linked(self, snapshot: Snapshot, graph: StoredGraph, ids: Ids) -> StoredGraph:
        """Return a graph with the neighbors of some of its vectors, and with these vectors among their neighbors."""
        searched = self.method.search(snapshot.segments, self.metric, None, snapshot.graph)
        wanted = graph.k + 1 if self.metric == "cosine" else _MORE * graph.k + 1
        rows, others, values = [], [], []
        for part in split_range(len(ids), _BLOCK):
            X = snapshot.reconstruct(ids[part], self.dim)
            unit = normalize_rows(X, row_norms(X))
            used = X if self.metric == "l2" else unit
            similarity, found = searched.search(used, wanted, self.method.thorough, self.workers)
            if self.metric != "cosine":
                pairs = [(unit[some], found[some]) for some in split_range(len(unit), _COMPARED)]
                nearest = self.workers.map(lambda pair: _nearest_by_cosine(snapshot, *pair, graph.k + 1), pairs)
                similarity, found = (np.concatenate(both) for both in zip(*nearest, strict=True))
            own, at = np.nonzero((found != ids[part][:, None]) & (found >= 0))
            rows.append(graph.locate(ids[part])[0][own])
            others.append(graph.locate(found[own, at])[0])
            values.append(similarity[own, at])
        row, other, value = (
            np.concatenate(rows + others),
            np.concatenate(others + rows),
            np.concatenate(values + values),
        )
        return graph.with_edges(row, other, value)


def _nearest_by_cosine(snapshot: Snapshot, Q: Floats, found: Ids, count: int) -> tuple[Floats, Ids]:
    """Return (cosines, ids) of the nearest of some results and of the linked neighbors of the best, -1 for none.

    Q: unit vectors. found: the results of each under another metric, -1 for none.
    """
    similarity = _cosines(snapshot, Q, found)
    if snapshot.graph is not None:
        best = np.take_along_axis(found, np.argsort(-similarity, axis=1)[:, :_BEST], 1)
        more = np.sort(snapshot.graph.neighbor_ids(best.ravel(), _FIRST).reshape(len(Q), -1), axis=1)
        more[:, 1:][more[:, 1:] == more[:, :-1]] = -1  # each once
        more[(more[:, :, None] == found[:, None, :]).any(axis=2)] = -1
        found = np.concatenate([found, more], axis=1)
        similarity = np.concatenate([similarity, _cosines(snapshot, Q, more)], axis=1)
    order = np.argsort(-similarity, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(similarity, order, 1), np.take_along_axis(found, order, 1)


def _cosines(snapshot: Snapshot, Q: Floats, ids: Ids) -> Floats:
    """Return the cosine of each unit vector of Q with the vectors of its ids; -inf where the id is -1."""
    known = ids >= 0
    unique, inverse = np.unique(ids[known], return_inverse=True)
    V = snapshot.reconstruct(unique, Q.shape[1])
    V = normalize_rows(V, row_norms(V))
    at, similarity = np.zeros(ids.shape, np.int64), np.full(ids.shape, -np.inf, np.float32)
    at[known] = inverse
    for q, mine, out, row in zip(Q, known, similarity, at, strict=True):
        out[mine] = V[row[mine]] @ q
    return similarity

"""Linking, (snapshot, its neighbor graph) -> snapshot: new vectors join the graph.

The neighbors of a new vector are found by a search. It enters the lists of these neighbors in turn, where it is
nearer than the last. So two vectors that are mutual neighbors are linked both ways, in whatever order they came.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from logt._internal.threads import Workers, split_range
from logt._internal.types import Ids, Metric
from logt._internal.validation import normalize_rows, row_norms
from logt.engine.protocols import Method
from logt.engine.snapshot import Snapshot
from logt.graph.build import nearest_neighbors
from logt.graph.stored_graph import StoredGraph

_BLOCK = 1024  # vectors that are searched for together
_MANY = 4  # if more than one in so many vectors is new, all are linked again
_FULL = 0.75  # of k neighbors: a shorter list is searched for again by `refill_links`


def compute_links(snapshot: Snapshot, dim: int, k: int, method: Method, workers: Workers) -> Snapshot:
    """Return the snapshot with a new neighbor graph; without one if there are fewer than two vectors."""
    ids, neighbors, similarity = nearest_neighbors(snapshot.segments, dim, k, workers)
    if not neighbors.size:
        return replace(snapshot, graph=None)
    graph, old = StoredGraph.encode(ids, neighbors, similarity, k), snapshot.graph
    if old is not None and old.k == k:
        graph = replace(graph, recall=old.recall)
    return replace(snapshot, graph=method.measure_graph(snapshot.segments, graph, np.random.default_rng(0), workers))


def link_new(snapshot: Snapshot, dim: int, method: Method, metric: Metric, workers: Workers) -> Snapshot:
    """Return the snapshot with all its vectors in the neighbor graph.

    Under ip and l2, where a search does not find the neighbors by cosine, this is left out until the new vectors are
    many: searches then read them besides the graph, or do without it.
    """
    graph = snapshot.graph
    if graph is None:
        return snapshot
    new = np.sort(snapshot.ids)
    new = new[~graph.locate(new)[1]]
    if not len(new):
        return snapshot
    if len(new) * _MANY > len(snapshot):
        return compute_links(snapshot, dim, graph.k, method, workers)
    if metric != "cosine":
        return snapshot
    if np.isin(new, graph.ids).any():  # an id that was removed and is used again
        graph = graph.compact() or graph
    return replace(snapshot, graph=_linked(snapshot, graph, new, dim, method, workers))


def refill_links(snapshot: Snapshot, dim: int, method: Method, metric: Metric, workers: Workers) -> Snapshot:
    """Return the snapshot with new neighbors for vectors that lost many of theirs to removals, or never had any."""
    graph = snapshot.graph
    if graph is None:
        return snapshot
    least = _FULL * min(graph.k, len(snapshot) - 1)
    short = graph.ids[graph.counts < least]
    if len(short) * _MANY > len(snapshot) or graph.count < len(snapshot):
        return compute_links(snapshot, dim, graph.k, method, workers)
    if not len(short) or metric != "cosine":
        return snapshot
    return replace(snapshot, graph=_linked(snapshot, graph, short, dim, method, workers))


def _linked(
    snapshot: Snapshot, graph: StoredGraph, ids: Ids, dim: int, method: Method, workers: Workers
) -> StoredGraph:
    """Return the graph with the neighbors of some vectors, and with these vectors among their neighbors."""
    searched = method.search(snapshot.segments, "cosine", None, snapshot.graph)
    graph = graph.insert_rows(ids)
    rows, others, values = [], [], []
    for part in split_range(len(ids), _BLOCK):
        Q = snapshot.reconstruct(ids[part], dim)
        Q = normalize_rows(Q, row_norms(Q))
        scores, found = searched.search(Q, graph.k + 1, method.thorough, workers)
        own, at = np.nonzero((found != ids[part][:, None]) & (found >= 0))
        rows.append(graph.locate(ids[part])[0][own])
        others.append(graph.locate(found[own, at])[0])
        values.append(scores[own, at])
    row, other, value = np.concatenate(rows + others), np.concatenate(others + rows), np.concatenate(values + values)
    return graph.with_edges(row, other, value)

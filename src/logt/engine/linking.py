"""Linking, (snapshot, its neighbor graph) -> snapshot: new vectors join the graph.

The neighbors of a new vector are found by a search. It enters the lists of these neighbors in turn, where it is
nearer than the last. So two vectors that are mutual neighbors are linked both ways, in whatever order they came.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from logt._internal.threads import Workers, split_range
from logt._internal.types import Ids
from logt._internal.validation import normalize_rows, row_norms
from logt.engine.snapshot import Snapshot
from logt.engine.snapshot_search import Reader
from logt.graph.build import nearest_neighbors
from logt.graph.neighbor_graph import Links, LinkState
from logt.group_testing.method import Method
from logt.lists.calibration import calibrate_links
from logt.lists.inverted_lists import Probe
from logt.metrics import Metric

_BLOCK = 1024  # vectors that are searched for together
_MANY = 4  # if more than one in so many vectors is new, all are linked again
_FULL = 0.75  # of k neighbors: a shorter list is searched for again by `refill_links`
_PROBE = Probe(recall=0.99, recall_at=100)


def compute_links(snapshot: Snapshot, dim: int, k: int, workers: Workers) -> Snapshot:
    """Return the snapshot with a new neighbor graph; without one if there are fewer than two vectors."""
    found = nearest_neighbors(snapshot, dim, k, workers)
    if not found.neighbors.size:
        return replace(snapshot, links=None)
    links, old = Links.from_neighbors(found, k), snapshot.links
    if old is not None and old.links.k == k:
        links = replace(links, recall=old.links.recall)
    state = calibrate_links(snapshot.segments, LinkState(links), None, np.random.default_rng(0), workers)
    return replace(snapshot, links=state)


def link_new(snapshot: Snapshot, dim: int, method: Method, metric: Metric, workers: Workers) -> Snapshot:
    """Return the snapshot with all its vectors in the neighbor graph.

    Under ip and l2, where a search does not find the neighbors by cosine, this is left out until the new vectors are
    many: searches then read them besides the graph, or do without it.
    """
    state = snapshot.links
    if state is None:
        return snapshot
    new = np.sort(snapshot.ids)
    new = new[~state.locate(new)[1]]
    if not len(new):
        return snapshot
    if len(new) * _MANY > len(snapshot):
        return compute_links(snapshot, dim, state.links.k, workers)
    if metric != "cosine":
        return snapshot
    if np.isin(new, state.links.ids).any():  # an id that was removed and is used again
        state = state.compact() or state
    return replace(snapshot, links=_linked(snapshot, state, new, dim, method, workers))


def refill_links(snapshot: Snapshot, dim: int, method: Method, metric: Metric, workers: Workers) -> Snapshot:
    """Return the snapshot with new neighbors for vectors that lost many of theirs to removals, or never had any."""
    state = snapshot.links
    if state is None:
        return snapshot
    links = state.links
    least = _FULL * min(links.k, len(snapshot) - 1)
    short = links.ids[links.lists.counts < least]
    if len(short) * _MANY > len(snapshot) or state.count < len(snapshot):
        return compute_links(snapshot, dim, links.k, workers)
    if not len(short) or metric != "cosine":
        return snapshot
    return replace(snapshot, links=_linked(snapshot, state, short, dim, method, workers))


def _linked(snapshot: Snapshot, state: LinkState, ids: Ids, dim: int, method: Method, workers: Workers) -> LinkState:
    """Return the state with the neighbors of some vectors, and with these vectors among their neighbors."""
    state = state.insert_rows(ids)
    searched = Reader(snapshot, "cosine", workers=workers)
    coverage: Any = method.cascade if method.probe is None else _PROBE
    k = state.links.k
    rows, others, values = [], [], []
    for part in split_range(len(ids), _BLOCK):
        Q = snapshot.reconstruct(ids[part], dim)
        Q = normalize_rows(Q, np.maximum(row_norms(Q), 1e-30))
        scores, found = searched.search(Q, k + 1, coverage)
        own, at = np.nonzero((found != ids[part][:, None]) & (found >= 0))
        rows.append(state.locate(ids[part])[0][own])
        others.append(state.locate(found[own, at])[0])
        values.append(scores[own, at])
    row, other, value = np.concatenate(rows + others), np.concatenate(others + rows), np.concatenate(values + values)
    return replace(state, links=state.links.with_edges(row, other, value, state.removed))

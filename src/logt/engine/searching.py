"""Searches of one snapshot, whatever its method: query expansion and searches for all within a threshold."""

from __future__ import annotations

import numpy as np

from logt._internal.threads import Workers
from logt._internal.types import Array, Floats, Ids
from logt._internal.validation import normalize_rows, row_norms
from logt.engine.protocols import SegmentSearch
from logt.engine.snapshot import Snapshot


def expand_queries(snapshot: Snapshot, Q: Floats, scores: Floats, ids: Ids, alpha: float) -> Floats:
    """Add to each query its results, weighted by score**alpha, and normalize: αQE of Radenović et al. (2019)."""
    flat = snapshot.reconstruct(ids.ravel(), Q.shape[1])
    found = normalize_rows(flat, row_norms(flat)).reshape(*ids.shape, Q.shape[1])
    weights = np.maximum(scores, 0) ** np.float32(alpha)
    sums: Floats = Q + np.einsum("qk,qkd->qd", weights, found)
    return normalize_rows(sums, row_norms(sums))


def search_range(
    search: SegmentSearch, Q: Floats, threshold: float, workers: Workers, *, l2: bool
) -> tuple[Array, Floats, Ids]:
    """Return (limits, scores, ids) of all results within the threshold, best first for each query."""
    found = workers.map(lambda q: _within(search, q, threshold, l2), list(Q))
    limits = np.cumsum([0, *(len(ids) for _, ids in found)])
    scores = np.concatenate([np.empty(0, np.float32), *(scores for scores, _ in found)])
    ids = np.concatenate([np.empty(0, np.int64), *(ids for _, ids in found)])
    return limits, scores, ids


def _within(search: SegmentSearch, q: Floats, threshold: float, l2: bool) -> tuple[Floats, Ids]:
    """Return (scores, ids) of the results of one query; only the scores of one block are held at a time."""
    parts = [(np.empty(0, np.float32), np.empty(0, np.int64))]
    for scores, ids in search.all_scores(q):
        inside = scores <= threshold if l2 else scores >= threshold
        parts.append((scores[inside], ids[inside]))
    scores, ids = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.lexsort((ids, scores if l2 else -scores))
    return scores[order], ids[order]

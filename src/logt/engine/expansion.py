"""Query expansion, (Q, results) -> Q: αQE of Radenović et al. (2019)."""

from __future__ import annotations

import numpy as np

from logt._internal.types import Floats, Ids
from logt._internal.validation import normalize_rows, row_norms
from logt.engine.snapshot import Snapshot


def expand_queries(snapshot: Snapshot, Q: Floats, scores: Floats, ids: Ids, alpha: float) -> Floats:
    """Add to each query its results, weighted by score**alpha, and normalize."""
    flat = snapshot.reconstruct(ids.ravel(), Q.shape[1])
    found = normalize_rows(flat, row_norms(flat)).reshape(*ids.shape, Q.shape[1])
    weights = np.maximum(scores, 0) ** np.float32(alpha)
    sums: Floats = Q + np.einsum("qk,qkd->qd", weights, found)
    return normalize_rows(sums, row_norms(sums))

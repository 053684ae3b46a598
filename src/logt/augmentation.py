"""Smoothing, X -> X: each vector drawn towards its nearest ones before it is indexed (database augmentation, DBA)."""

from __future__ import annotations

from typing import Any

import numpy as np

from logt._threads import spans
from logt._types import Floats
from logt._validation import dimension, row_norms, unit_rows
from logt.errors import power, whole
from logt.index import Index
from logt.metrics import checked_vectors

_ROWS = 4096  # vectors searched together


def smoothed(
    X: Any, *, n: int = 10, alpha: float = 3.0, effort: float | None = None, threads: int | None = None
) -> Floats:
    """The directions of x + Σ cos^alpha · neighbour, over the n nearest that an index of X finds.

    It moves vectors of one thing together, which helps retrieval where a thing has several views, at the cost of
    a search for each vector. Add the result to an index in place of X.
    """
    n, alpha = whole("n", n), power("alpha", alpha)
    rows = checked_vectors(X, dimension(X), "cosine")
    V = unit_rows(rows, row_norms(rows))
    index = Index(V.shape[1])
    index.add(V, threads=threads)
    out = np.empty_like(V)
    for part in spans(len(V), _ROWS):
        ids = index.search(V[part], min(n + 1, len(V)), effort=effort, threads=threads).ids
        for row, found in enumerate(ids, part.start):
            x, others = V[row], V[found[found != row][:n]]
            out[row] = x + (np.maximum(others @ x, 0) ** np.float32(alpha)) @ others
    return unit_rows(out, row_norms(out))

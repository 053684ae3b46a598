"""Database-side augmentation (DBA), X -> X: move each vector towards its neighbors before it is indexed."""

from __future__ import annotations

from typing import Any

import numpy as np

from logt._internal.threads import split_range
from logt._internal.types import Floats
from logt._internal.validation import check_exponent, check_int, infer_dim, normalize_rows, row_norms
from logt.index import Index
from logt.metrics import check_vectors

_ROWS = 4096  # vectors searched together


def smoothed(
    X: Any, *, n: int = 10, alpha: float = 3.0, effort: float | None = None, threads: int | None = None
) -> Floats:
    """Return the normalized x + Σ cos**alpha · neighbor, over the n nearest neighbors of each row of X.

    This moves views of the same object closer together, which helps retrieval, and takes one search per vector. Add
    the result to an index instead of X.

    X: vectors, (N, d). n: neighbors per vector. alpha: the exponent of the similarities by which they are
    weighted. effort: of the searches, as in `Index.search`. threads: the number of threads, all cores if None.
    """
    n, alpha = check_int("n", n), check_exponent("alpha", alpha)
    rows = check_vectors(X, infer_dim(X), "cosine")
    V = normalize_rows(rows, row_norms(rows))
    index = Index(V.shape[1])
    index.add(V, threads=threads)
    out = np.empty_like(V)
    for part in split_range(len(V), _ROWS):
        ids = index.search(V[part], min(n + 1, len(V)), effort=effort, threads=threads).ids
        for row, found in enumerate(ids, part.start):
            x, others = V[row], V[found[found != row][:n]]
            out[row] = x + (np.maximum(others @ x, 0) ** np.float32(alpha)) @ others
    return normalize_rows(out, row_norms(out))

"""Metrics: what users compare by -> unit vectors, norms and scores, as the segments have them."""

from __future__ import annotations

from typing import Any

import numpy as np

from logt import _kernels
from logt._internal.types import Array, Floats, Mask, Metric
from logt._internal.validation import MAX_NORM, MIN_NORM, as_matrix, check_choice, check_rows

_NAMES: dict[str, Metric] = {
    **dict.fromkeys(("cosine", "cos", "angular"), "cosine"),
    **dict.fromkeys(("ip", "inner_product", "dot"), "ip"),
    **dict.fromkeys(("l2", "euclidean", "sqeuclidean"), "l2"),
}


def parse_metric(metric: str) -> Metric:
    """Return the canonical name of a metric."""
    check_choice("metric", metric, tuple(_NAMES))
    return _NAMES[metric]


def check_vectors(X: Any, dim: int, metric: Metric) -> Array:
    """Return vectors to add as a checked matrix, not yet converted."""
    return check_rows(as_matrix(X, dim, "X"), "X", "nothing was added", metric)


def check_queries(
    matrix: Array, metric: Metric, *, ignore: bool, hint: str = "correct it, or pass on_invalid='ignore'"
) -> tuple[Floats, Mask | None]:
    """Return (Q as float32, normalized under cosine; which rows are valid, or None if all are)."""
    if matrix.dtype == np.float32:
        Q = matrix.copy()
    else:
        with np.errstate(over="ignore"):
            Q = np.array(matrix, np.float32, order="C")
    norms = np.empty(len(Q))
    cosine = metric == "cosine"
    if _kernels.divide_by_norms(Q, cosine, MIN_NORM, MAX_NORM, norms):
        return Q, None
    if not ignore:
        check_rows(matrix, "Q", hint, metric)
    small = norms == 0 if cosine else (norms > 0) & (norms < MIN_NORM)
    return Q, (norms <= MAX_NORM) & ~small  # False for NaN and infinity


def worst_score(metric: Metric) -> float:
    """Return the score of an empty result."""
    return np.inf if metric == "l2" else -np.inf

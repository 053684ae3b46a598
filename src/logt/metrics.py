"""Metrics: what users compare by -> unit vectors, norms and scores, as the segments have them."""

from __future__ import annotations

from typing import Any

import numpy as np

from logt import _kernels
from logt._internal.types import Array, Floats, Mask, Metric
from logt._internal.validation import MAX_NORM, as_matrix, check_choice, check_rows, row_norms
from logt.errors import InvalidInputError

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
    rows = check_rows(as_matrix(X, dim, "X"), "X", "nothing was added")
    if metric == "cosine":
        _refuse_zero(row_norms(rows), "X", "nothing was added; or use metric='ip' or 'l2'")
    return rows


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
    if _kernels.divide_by_norms(Q, metric == "cosine", MAX_NORM, norms):
        return Q, None
    valid = norms <= MAX_NORM  # False for NaN and infinity
    if not ignore and not valid.all():
        check_rows(matrix, "Q", hint)
    if metric == "cosine":
        if not ignore:
            _refuse_zero(norms, "Q", hint)
        valid &= norms > 0
    return Q, valid


def worst_score(metric: Metric) -> float:
    """Return the score of an empty result."""
    return np.inf if metric == "l2" else -np.inf


def _refuse_zero(norms: Any, name: str, hint: str) -> None:
    if (norms == 0).any():
        row = int(np.flatnonzero(norms == 0)[0])
        raise InvalidInputError(f"row {row} of {name} is all zeros, as float32, and has no direction; {hint}")

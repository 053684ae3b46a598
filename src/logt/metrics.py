"""Metrics: what users compare by -> unit vectors, norms and scores, as segments have them."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from logt._types import Array, Floats, Mask
from logt._validation import LONGEST, checked_matrix, checked_rows, row_norms, unit_rows
from logt.errors import InvalidInputError, one_of

Metric = Literal["cosine", "ip", "l2"]

_NAMES: dict[str, Metric] = {
    **dict.fromkeys(("cosine", "cos", "angular"), "cosine"),
    **dict.fromkeys(("ip", "inner_product", "dot"), "ip"),
    **dict.fromkeys(("l2", "euclidean", "sqeuclidean"), "l2"),
}


def named(metric: str) -> Metric:
    one_of("metric", metric, tuple(_NAMES))
    return _NAMES[metric]


def checked_vectors(X: Any, dim: int, metric: Metric) -> Array:
    """Vectors to add, not converted yet."""
    rows = checked_rows(checked_matrix(X, dim, "X"), "X", "nothing was added")
    if metric == "cosine":
        _refuse_zero(row_norms(rows), "X", "nothing was added; or use metric='ip' or 'l2'")
    return rows


def checked_queries(
    matrix: Array, metric: Metric, *, ignore: bool, way_out: str = "correct it, or pass on_invalid='ignore'"
) -> tuple[Floats, Mask]:
    """(Q as float32, of unit length under cosine; which rows are valid)."""
    with np.errstate(over="ignore"):
        Q = np.array(matrix, np.float32)
    norms = row_norms(Q)
    valid = norms <= LONGEST  # neither NaN nor infinity is
    if not ignore and not valid.all():
        checked_rows(matrix, "Q", way_out)
    if metric == "cosine":
        if not ignore:
            _refuse_zero(norms, "Q", way_out)
        valid &= norms > 0
        if valid.all():
            np.divide(Q, norms[:, None], out=Q, casting="same_kind")
            return Q, valid
        Q[valid] = unit_rows(Q[valid], norms[valid])
    return Q, valid


def asked(Q: Floats, metric: Metric) -> Floats:
    """Queries as segments are asked: doubled under l2, for 2·q·x − ‖x‖²."""
    return Q * np.float32(2) if metric == "l2" else Q


def answered(Q: Floats, scores: Floats, metric: Metric) -> Floats:
    """Scores as users see them: ‖q − x‖² under l2, never below 0 though the estimate may be."""
    if metric != "l2":
        return scores
    own = np.square(Q, dtype=np.float64).sum(axis=1, keepdims=True)
    distances: Floats = np.maximum(own - scores, 0).astype(np.float32)
    return distances


def worst(metric: Metric) -> float:
    """The score of an empty place."""
    return np.inf if metric == "l2" else -np.inf


def _refuse_zero(norms: Any, what: str, way_out: str) -> None:
    if (norms == 0).any():
        row = int(np.flatnonzero(norms == 0)[0])
        raise InvalidInputError(f"row {row} of {what} is all zeros and has no direction; {way_out}")

"""How good a ranking is: average precision by the Oxford, Paris and revisited protocols, and recall."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from logt._types import Array


def average_precision(ranking: ArrayLike, positives: ArrayLike, junk: ArrayLike = ()) -> float:
    """The area under precision over recall, by trapezoids; junk is taken out before places are counted.

    A ranking may be cut short (ids of -1 are empty places): what is missing counts as never found, so the value is
    a lower bound. NaN where there are no positives.
    """
    wanted = np.unique(np.asarray(positives, np.int64))
    if not len(wanted):
        return float("nan")
    ranking = np.asarray(ranking, np.int64)
    ranking = ranking[(ranking >= 0) & ~np.isin(ranking, np.asarray(junk, np.int64))]
    places = np.flatnonzero(np.isin(ranking, wanted))
    found = np.arange(len(places))
    before = np.where(places > 0, found / np.maximum(places, 1), 1.0)
    return float(((before + (found + 1) / (places + 1)) / 2).sum() / len(wanted))


def mean_average_precision(
    rankings: Sequence[ArrayLike] | Array,
    positives: Sequence[ArrayLike],
    junk: Sequence[ArrayLike] | None = None,
) -> float:
    """The mean over all queries that have positives, in percent."""
    ignored: Sequence[ArrayLike] = [()] * len(positives) if junk is None else junk
    values = [average_precision(*each) for each in zip(rankings, positives, ignored, strict=True)]
    known = [value for value in values if not np.isnan(value)]
    return 100 * float(np.mean(known)) if known else float("nan")


def recall_at(k: int, ids: Array, exact: Array) -> float:
    """The part of the first k of `exact` that is among the first k of `ids`, over all queries."""
    found = [np.isin(true[:k], mine[:k]).mean() for mine, true in zip(ids, exact, strict=True)]
    return float(np.mean(found)) if found else float("nan")

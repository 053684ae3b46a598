"""How good a ranking is: average precision by the Oxford, Paris and revisited protocols, mP@k, and recall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from logt._types import Array, Ids
from logt._validation import check_int
from logt.errors import InvalidInputError


@dataclass(frozen=True)
class GroundTruth:
    """By query, the rows that should be found, and the rows that neither help nor harm."""

    positives: tuple[Ids, ...]
    junk: tuple[Ids, ...]

    @classmethod
    def from_lists(cls, positives: Sequence[ArrayLike], junk: Sequence[ArrayLike] | None = None) -> GroundTruth:
        """From lists of rows; without junk, there is none."""
        ignored = [()] * len(positives) if junk is None else junk
        if len(positives) != len(ignored):
            raise InvalidInputError(f"{len(positives)} queries have positives, {len(ignored)} have junk")
        lists = (tuple(np.asarray(rows, np.int64) for rows in kind) for kind in (positives, ignored))
        return cls(*lists)

    def __len__(self) -> int:
        return len(self.positives)


def revisited(
    easy: Sequence[ArrayLike], hard: Sequence[ArrayLike], junk: Sequence[ArrayLike]
) -> dict[str, GroundTruth]:
    """The Medium, Easy and Hard setups of Radenović et al. (2018) from the lists of each query."""

    def both(first: Sequence[ArrayLike], second: Sequence[ArrayLike]) -> list[Ids]:
        pairs = zip(first, second, strict=True)
        return [np.concatenate([np.asarray(a, np.int64), np.asarray(b, np.int64)]) for a, b in pairs]

    return {
        "medium": GroundTruth.from_lists(both(easy, hard), junk),
        "easy": GroundTruth.from_lists(easy, both(junk, hard)),
        "hard": GroundTruth.from_lists(hard, both(junk, easy)),
    }


@dataclass(frozen=True)
class Score:
    """mAP and mP@k in percent, over the queries that have positives; the others are only counted.

    `depth` is the length of the shortest list, junk and all: where it is less than the collection, what was not
    listed counts as not found, and the values are lower bounds.
    """

    mean_ap: float
    precision: Mapping[int, float]
    depth: int
    queries: int
    by_query: NDArray[np.float64] = field(repr=False)


def evaluate(rankings: Sequence[ArrayLike] | Array, truth: GroundTruth, ks: Sequence[int] = (1, 5, 10)) -> Score:
    """The official measures of lists of rows, best first; ids of -1 are empty places."""
    if len(rankings) != len(truth):
        raise InvalidInputError(f"there are {len(rankings)} rankings, but the truth is of {len(truth)} queries")
    lists = [np.asarray(ranking, np.int64) for ranking in rankings]
    each = list(zip(lists, truth.positives, truth.junk, strict=True))
    by_query = np.array([average_precision(*one) for one in each])
    known = ~np.isnan(by_query)
    precision = {k: _percent(np.array([precision_at(k, *one) for one in each])) for k in ks}
    depth = min((int((ranking >= 0).sum()) for ranking, used in zip(lists, known, strict=True) if used), default=0)
    return Score(_percent(by_query), precision, depth, int(known.sum()), by_query)


def average_precision(ranking: ArrayLike, positives: ArrayLike, junk: ArrayLike = ()) -> float:
    """The area under precision over recall, by trapezoids; junk is taken out before places are counted.

    The first trapezoid starts at precision 1, as in the evaluation program of the Oxford buildings; the revisited
    one counts the same area. A ranking may be cut short (ids of -1 are empty places): what is missing counts as
    never found, so the value is a lower bound. NaN where there are no positives.
    """
    wanted = np.unique(np.asarray(positives, np.int64))
    if not len(wanted):
        return float("nan")
    places = _places(ranking, wanted, junk)
    found = np.arange(len(places))
    before = np.where(places > 0, found / np.maximum(places, 1), 1.0)
    return float(((before + (found + 1) / (places + 1)) / 2).sum() / len(wanted))


def precision_at(k: int, ranking: ArrayLike, positives: ArrayLike, junk: ArrayLike = ()) -> float:
    """The part of the first k that is positive, junk left out; k is cut to the place of the last positive found.

    NaN where there are no positives, 0 where the list holds none of them.
    """
    k = check_int("k", k)
    wanted = np.unique(np.asarray(positives, np.int64))
    if not len(wanted):
        return float("nan")
    places = _places(ranking, wanted, junk)
    if not len(places):
        return 0.0
    cut = min(int(places[-1]) + 1, k)
    return float((places < cut).sum() / cut)


def mean_average_precision(
    rankings: Sequence[ArrayLike] | Array,
    positives: Sequence[ArrayLike],
    junk: Sequence[ArrayLike] | None = None,
) -> float:
    """The mean over all queries that have positives, in percent."""
    ignored: Sequence[ArrayLike] = [()] * len(positives) if junk is None else junk
    values = [average_precision(*each) for each in zip(rankings, positives, ignored, strict=True)]
    return _percent(np.array(values))


def recall_at(k: int, ids: Array, exact: Array) -> float:
    """The part of the first k of `exact` that is among the first k of `ids`, over all queries."""
    found = [np.isin(true[:k], mine[:k]).mean() for mine, true in zip(ids, exact, strict=True)]
    return float(np.mean(found)) if found else float("nan")


def _places(ranking: ArrayLike, wanted: Ids, junk: ArrayLike) -> Ids:
    """Where the wanted stand in a ranking, from 0, once junk and empty places are taken out."""
    listed = np.asarray(ranking, np.int64)
    listed = listed[(listed >= 0) & ~np.isin(listed, np.asarray(junk, np.int64))]
    return np.flatnonzero(np.isin(listed, wanted))


def _percent(values: NDArray[np.float64]) -> float:
    """100 times the mean of what is known."""
    known = values[~np.isnan(values)]
    return 100 * float(known.mean()) if len(known) else float("nan")

"""Evaluation of rankings: average precision by the Oxford, Paris and revisited protocols, mP@k, and recall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from logt._internal.types import Array, Ids
from logt._internal.validation import check_int
from logt.errors import InvalidInputError

__all__ = [
    "GroundTruth",
    "Score",
    "average_precision",
    "evaluate",
    "mean_average_precision",
    "precision_at",
    "recall_at",
    "revisited_setups",
]


@dataclass(frozen=True)
class GroundTruth:
    """The relevant rows of each query (positives), and the rows that are ignored in its ranking (junk)."""

    positives: tuple[Ids, ...]
    junk: tuple[Ids, ...]

    @classmethod
    def from_lists(cls, positives: Sequence[ArrayLike], junk: Sequence[ArrayLike] | None = None) -> GroundTruth:
        """Create a ground truth from one list of rows per query; `junk=None` ignores no rows."""
        ignored = [()] * len(positives) if junk is None else junk
        if len(positives) != len(ignored):
            raise InvalidInputError(f"{len(positives)} queries have positives, {len(ignored)} have junk")
        lists = (tuple(np.asarray(rows, np.int64) for rows in kind) for kind in (positives, ignored))
        return cls(*lists)

    def __len__(self) -> int:
        return len(self.positives)


def revisited_setups(
    easy: Sequence[ArrayLike], hard: Sequence[ArrayLike], junk: Sequence[ArrayLike]
) -> dict[str, GroundTruth]:
    """Return the Medium, Easy and Hard setups of Radenović et al. (2018).

    easy, hard, junk: for each query, the rows that show its object clearly, with difficulty, and hardly at all.
    """
    return {
        "medium": GroundTruth.from_lists(_concatenate_lists(easy, hard), junk),
        "easy": GroundTruth.from_lists(easy, _concatenate_lists(junk, hard)),
        "hard": GroundTruth.from_lists(hard, _concatenate_lists(junk, easy)),
    }


def _concatenate_lists(first: Sequence[ArrayLike], second: Sequence[ArrayLike]) -> list[Ids]:
    """Return, for each query, the rows of both lists."""
    pairs = zip(first, second, strict=True)
    return [np.concatenate([np.asarray(a, np.int64), np.asarray(b, np.int64)]) for a, b in pairs]


@dataclass(frozen=True)
class Score:
    """mAP and mP@k in percent, averaged over the queries that have positives.

    mean_ap: mAP. mean_ap_1k: mAP@1k as ILIAS defines it. precision: mP@k by k.
    queries: the number of queries with positives. by_query: the average precision
    of every query (NaN without positives). depth: the length of the shortest ranking, junk included. If it is less
    than the size of the collection, the rows that are not ranked count as not found, and the values are lower bounds.
    """

    mean_ap: float
    precision: Mapping[int, float]
    depth: int
    queries: int
    by_query: NDArray[np.float64] = field(repr=False)
    mean_ap_1k: float = float("nan")


def evaluate(rankings: Sequence[ArrayLike] | Array, truth: GroundTruth, ks: Sequence[int] = (1, 5, 10)) -> Score:
    """Return the mAP and mP@k of rankings.

    rankings: for each query, rows, best first; ids of -1 are padding. truth: the ground truth of the same queries.
    ks: the values of k.
    """
    if len(rankings) != len(truth):
        raise InvalidInputError(f"got {len(rankings)} rankings for a ground truth of {len(truth)} queries")
    lists = [np.asarray(ranking, np.int64) for ranking in rankings]
    cases = list(zip(lists, truth.positives, truth.junk, strict=True))
    by_query = np.array([average_precision(*case) for case in cases])
    scored = ~np.isnan(by_query)
    precision = {k: _mean_percent(np.array([precision_at(k, *case) for case in cases])) for k in ks}
    depth = min((int((ranking >= 0).sum()) for ranking, used in zip(lists, scored, strict=True) if used), default=0)
    at_1k = _mean_percent(np.array([average_precision_at(1000, *case) for case in cases]))
    return Score(_mean_percent(by_query), precision, depth, int(scored.sum()), by_query, at_1k)


def average_precision(ranking: ArrayLike, positives: ArrayLike, junk: ArrayLike = ()) -> float:
    """Return the area under the precision-recall curve, by trapezoids; junk is removed from the ranking first.

    The first trapezoid starts at precision 1, as in the evaluation program of the Oxford buildings; the revisited
    protocol computes the same area. A ranking may be truncated or padded with ids of -1: positives that are not
    ranked count as not found, so the value is a lower bound. NaN if there are no positives.
    """
    relevant = np.unique(np.asarray(positives, np.int64))
    if not len(relevant):
        return float("nan")
    ranks = _ranks(ranking, relevant, junk)
    found = np.arange(len(ranks))
    precision_before = np.where(ranks > 0, found / np.maximum(ranks, 1), 1.0)
    precision = (found + 1) / (ranks + 1)
    return float(((precision_before + precision) / 2).sum() / len(relevant))


def average_precision_at(k: int, ranking: ArrayLike, positives: ArrayLike, junk: ArrayLike = ()) -> float:
    """Return AP@k as ILIAS defines it: the sum of the precisions at the positives among the first k, over min(k, P).

    P is the number of positives; junk is removed from the ranking first. NaN if there are no positives.
    """
    k = check_int("k", k)
    relevant = np.unique(np.asarray(positives, np.int64))
    if not len(relevant):
        return float("nan")
    ranks = _ranks(ranking, relevant, junk)
    ranks = ranks[ranks < k]
    return float((np.arange(1, len(ranks) + 1) / (ranks + 1)).sum() / min(k, len(relevant)))


def precision_at(k: int, ranking: ArrayLike, positives: ArrayLike, junk: ArrayLike = ()) -> float:
    """Return the fraction of positives in the first k results, junk removed.

    As in the revisited protocol, k is at most the rank of the last positive found. NaN if there are no positives,
    0 if the ranking contains none of them.
    """
    k = check_int("k", k)
    relevant = np.unique(np.asarray(positives, np.int64))
    if not len(relevant):
        return float("nan")
    ranks = _ranks(ranking, relevant, junk)
    if not len(ranks):
        return 0.0
    cut = min(int(ranks[-1]) + 1, k)
    return float((ranks < cut).sum() / cut)


def mean_average_precision(
    rankings: Sequence[ArrayLike] | Array,
    positives: Sequence[ArrayLike],
    junk: Sequence[ArrayLike] | None = None,
) -> float:
    """Return the mean average precision in percent, over the queries that have positives.

    rankings, positives, junk: one list of rows per query, as in `average_precision`.
    """
    return evaluate(rankings, GroundTruth.from_lists(positives, junk), ks=()).mean_ap


def recall_at(k: int, ids: Array, exact: Array) -> float:
    """Return the fraction of the k exact nearest neighbors that are among the first k ids, averaged over queries."""
    k = check_int("k", k)
    recalls = [np.isin(true[:k], returned[:k]).mean() for returned, true in zip(ids, exact, strict=True)]
    return float(np.mean(recalls)) if recalls else float("nan")


def _ranks(ranking: ArrayLike, relevant: Ids, junk: ArrayLike) -> Ids:
    """Return the ranks, from 0, of the relevant rows in a ranking without its junk and padding."""
    rows = np.asarray(ranking, np.int64)
    rows = rows[(rows >= 0) & ~np.isin(rows, np.asarray(junk, np.int64))]
    return np.flatnonzero(np.isin(rows, relevant))


def _mean_percent(values: NDArray[np.float64]) -> float:
    """Return 100 times the mean of the values that are not NaN."""
    known = values[~np.isnan(values)]
    return 100 * float(known.mean()) if len(known) else float("nan")

"""Margins, (lists, results of a full read) -> how far below the best list and the worst result lists are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from logt._internal.types import Array, Floats, Ids
from logt.lists.codec import Codec
from logt.lists.inverted_lists import MARGINS
from logt.lists.measured import NEVER
from logt.lists.segment import ListSegment
from logt.lists.shards import Candidates

_TINY = np.finfo(np.float32).tiny
_STEPS = 64  # pairs of margins that are tried, along each axis
_UNUSUAL = 0.2  # of the queries like the collection, have results that are further away than those of most
_MISTAKEN = 0.05  # of the others at most, are taken to be like the collection
_WIDER = 1e-4  # recall that the largest margins are worth: they grow with the lists also where all is found


@dataclass(frozen=True, eq=False)
class ListGaps:
    """How far below the best list of each query its other lists are, and its results, in deviations of the query.

    lists: (queries, M), increasing. results: of the list that each of the best results is in, (queries, results),
    -inf for none. worst: of the score of the worst of these results, (queries, 1). scores: the score itself, in
    deviations of the query, -inf if there are fewer results.
    """

    lists: Floats
    results: Floats
    worst: Floats
    scores: Floats

    @classmethod
    def measure(cls, segments: Sequence[ListSegment], Q: Floats, found: Candidates, k: int) -> ListGaps:
        """Return the gaps of queries Q to the segments of one codec, with the k best of what a full read found."""
        codec = segments[0].codec
        scores, offset, deviation = list_scores(codec, Q, distances=any(len(segment.bias) for segment in segments))
        best = scores.max(axis=1, keepdims=True)
        keys = -np.sort(-found.keys, axis=1)[:, :k]
        known = np.isfinite(keys)
        last = np.maximum(known.sum(axis=1, keepdims=True) - 1, 0)
        worst = np.where(known.any(axis=1, keepdims=True), np.take_along_axis(keys, last, axis=1), best + offset)
        order = np.argsort(-found.scores, axis=1, kind="stable")[:, :k]
        unit = _list_of(segments, np.take_along_axis(found.ids, order, axis=1))
        of_result = np.where(unit >= 0, np.take_along_axis(scores, np.maximum(unit, 0), axis=1), np.inf)
        return cls(
            np.sort((best - scores) / deviation, axis=1),
            (best - of_result) / deviation,
            (best - (worst - offset)) / deviation,
            np.where(known.all(axis=1, keepdims=True), worst / deviation, -np.inf).astype(np.float32),
        )

    def of(self, rows: Array) -> ListGaps:
        """Return the gaps of some queries."""
        return ListGaps(self.lists[rows], self.results[rows], self.worst[rows], self.scores[rows])

    def lists_within(self, margin: Floats, below: Floats) -> Array:
        """Return the mean number of lists that are read, for each pair of margins."""
        by_margin, by_worst = (
            np.stack(
                [np.searchsorted(mine, limit, side="right") for mine, limit in zip(self.lists, limits, strict=True)]
            )
            for limits in (np.broadcast_to(margin, (len(self.lists), len(margin))), below + self.worst)
        )
        both = np.maximum(np.maximum(by_margin, 1)[:, :, None], by_worst[:, None, :])
        means: Array = both.mean(axis=0)
        return means

    def recall(self, margin: Floats, below: Floats) -> Array:
        """Return the fraction of the results that are found, for each pair of margins."""
        far = self.results.ravel()[:, None] > margin
        low = (self.results - self.worst).ravel()[:, None] > below
        missed: Array = far.astype(np.float32).T @ low.astype(np.float32) / max(len(far), 1)
        return 1 - missed


def list_scores(codec: Codec, Q: Floats, *, distances: bool) -> tuple[Floats, Floats, Floats]:
    """Return, for each row of Q, (the scores that rank its lists, what they lack of scores, its deviation).

    The deviation is that of its products with residuals, for a vector of factor 1.
    """
    centred = Q - codec.mean
    offset = -np.square(centred).sum(axis=1) if distances else Q @ codec.mean
    Z = codec.bands.rotate(2 * centred if distances else Q)
    bias = codec.list_bias[: codec.units] if distances else np.float32(0)
    scores: Floats = Z @ (codec.memory_vectors * codec.list_weight[: codec.units, None]).T + bias
    # The products of squares are outside of the range of float32 where norms are large or small.
    variance = np.square(Z, dtype=np.float64) @ codec.bands.per_dim(
        np.square(codec.bands.deviation, dtype=np.float64)
    )
    return scores, offset[:, None], np.maximum(np.sqrt(variance), _TINY).astype(np.float32)[:, None]


def best_margins(gaps: ListGaps, own: Array) -> Floats:
    """Return the margins with which the most results are found, by the number of lists that are read (Measured).

    own: which queries are vectors of the collection; the others are means of some. The recall of each kind counts.
    """
    units = gaps.lists.shape[1]
    usual = gaps.of(own) if own.any() else gaps
    others = gaps.of(~own) if own.any() and not own.all() else None
    shares = units ** (np.linspace(0, 1, _STEPS) - 1)
    margin = _quantiles(usual.lists, shares)
    below = _quantiles(usual.lists - usual.worst, shares)
    lists, value = usual.lists_within(margin, below), usual.recall(margin, below)
    if others is not None:
        value = np.minimum(value, others.recall(margin, below))
    value = value + _WIDER * np.add.outer(np.arange(_STEPS), np.arange(_STEPS)) / (2 * _STEPS)
    out, at = np.empty((2, MARGINS), np.float32), (0, 0)
    for column, most in enumerate(units ** np.linspace(0, 1, MARGINS)):
        allowed = lists <= 1.02 * most
        allowed[: at[0]], allowed[:, : at[1]] = False, False  # more effort reads what less does
        if allowed.any():
            best = np.argmax(np.where(allowed, value, -np.inf))
            at = int(best // _STEPS), int(best % _STEPS)
        out[:, column] = margin[at[0]], below[at[1]]
    return out


def near_results(gaps: ListGaps, own: Array) -> float:
    """Return the score of the worst result from which on a query is taken to be like the collection (Measured).

    own: as of `best_margins`. Most queries like the collection reach it, and few of the others.
    """
    usual = gaps.of(own) if own.any() else gaps
    near = np.quantile(usual.scores, _UNUSUAL, method="lower")
    if own.any() and not own.all():
        near = max(near, np.quantile(gaps.of(~own).scores, 1 - _MISTAKEN, method="higher"))
    return float(near) if np.isfinite(near) else NEVER


def _quantiles(values: Floats, shares: Array) -> Floats:
    """Return the values that the given shares of all are not above."""
    ordered = np.sort(values, axis=None)
    quantiles: Floats = ordered[np.clip(np.ceil(shares * len(ordered)).astype(int) - 1, 0, len(ordered) - 1)]
    return quantiles


def _list_of(segments: Sequence[ListSegment], ids: Ids) -> Ids:
    """Return the list that each of some vectors is in, -1 for none."""
    unit = np.full(ids.shape, -1, np.int64)
    for segment in segments:
        if segment.flat:
            continue
        row = np.minimum(np.searchsorted(segment.ids, ids), len(segment.ids) - 1)
        here = segment.ids[row] == ids
        unit[here] = np.searchsorted(segment.starts, segment.position[row[here]], side="right") - 1
    return unit

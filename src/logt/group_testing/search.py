"""Search with the paper's methods, (segments, Q) -> ranking: measure, estimate, re-rank, correct."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from logt import _kernels
from logt._internal.threads import SERIAL, Workers, split_range
from logt._internal.types import Array, Floats, Ids, Mask, Metric
from logt.group_testing.cascade import FULL, Cascade, Prefix
from logt.group_testing.codes import LANES
from logt.group_testing.correction import Suppress
from logt.group_testing.decoder import solve_group_inverse
from logt.group_testing.segment import CodedSegment
from logt.results import SearchResult

TILE = LANES
"""Queries decoded together, one per SIMD lane."""

_BLOCK = 1 << 13  # rows whose scores are held at a time where all are computed
_FEW = 4  # up to this many queries are faster one by one
_NO_BIAS = np.empty(0, np.float32)

Measured = tuple["MaskedSegment", Floats, Prefix]
"""A segment, what some queries measured there, and its U⁰."""


@dataclass(frozen=True)
class MaskedSegment:
    """A segment as one search sees it: `bias` is added to the estimates, -inf hides a row; `count` are visible."""

    segment: CodedSegment
    bias: Floats
    count: int

    @classmethod
    def of_segment(cls, segment: CodedSegment, *, l2: bool, allowed: Mask | None = None) -> MaskedSegment:
        """With `l2`, scores are 2·q·x − ‖x‖² for doubled queries; only live and allowed rows are visible."""
        bias = _NO_BIAS if not l2 or segment.minus_squares is None else segment.minus_squares
        if segment.removed is None and allowed is None:
            return cls(segment, bias, len(segment))
        seen = segment.live if allowed is None else segment.live & allowed
        masked = np.where(seen, bias if len(bias) else np.float32(0), np.float32(-np.inf))
        return cls(segment, masked, int(seen.sum()))

    def rows(self, part: slice) -> MaskedSegment:
        """Return the view of some rows only; their codes are copied."""
        segment, bias = self.segment, self.bias[part]
        norms = None if segment.norms is None else segment.norms[part]
        some = replace(segment, ids=segment.ids[part], codes=segment.codes.take(part), norms=norms, removed=None)
        count = int(np.count_nonzero(bias > -np.inf)) if len(bias) else len(some)
        return MaskedSegment(some, bias, count)


class ScoredRows(NamedTuple):
    """(nq, K) results: score, segment number, row and id of each."""

    scores: Floats
    segment: Array
    row: Array
    ids: Ids

    def take(self, order: Ids) -> ScoredRows:
        return ScoredRows(*(np.take_along_axis(part, order, axis=1) for part in self))

    def columns(self, part: slice) -> ScoredRows:
        """Return a copy of some columns."""
        return ScoredRows(*(np.array(field[:, part], order="C") for field in self))

    def best(self, count: int) -> ScoredRows:
        """Return the best `count`, equal scores by id."""
        return self.take(rank_scores(self.scores, self.ids, min(count, self.ids.shape[1])))


def rank_scores(scores: Floats, ids: Ids, count: int) -> Ids:
    """Return the columns of the best `count` of each row, equal scores by id."""
    order = np.empty((len(ids), count), np.int64)
    _kernels.rank(scores, ids, order)
    return order


@dataclass(frozen=True)
class Limits:
    """How much a search reads: `cascade`, None decodes all of U; and the correction that it applies, if any."""

    cascade: Cascade | None = None
    correct: Suppress | None = None


@dataclass(frozen=True)
class DecodeSearch:
    """The search of an index, with scores as users see them."""

    views: Sequence[MaskedSegment]
    metric: Metric

    def search(self, Q: Floats, k: int, limits: Limits, workers: Workers = SERIAL) -> SearchResult:
        """Return (scores, ids), (nq, at most k) each, best first."""
        views = [view for view in self.views if view.count]
        k = min(k, sum(view.count for view in views))
        scores, ids = np.empty((len(Q), k), np.float32), np.empty((len(Q), k), np.int64)
        cascade = limits.cascade if limits.cascade is not None and limits.cascade.p < 1 else None  # U⁰ is U if p is 1
        U0 = [Prefix.of(view.segment.codes, cascade.p) if cascade else FULL for view in views]
        scaled = self._scaled(Q)

        def fill(tile: slice) -> None:
            best = _decode_tile(views, U0, scaled[tile], k, cascade, limits.correct)
            scores[tile], ids[tile] = best.scores[:, :k], best.ids[:, :k]

        if k:
            workers.map(fill, split_range(len(Q), TILE))
        return SearchResult(self._user_scores(Q, scores), ids)

    def prepare(self, k: int, limits: Limits) -> None:
        """Return None: nothing is prepared for single queries."""

    def all_scores(self, q: Floats) -> Iterator[tuple[Floats, Ids]]:
        """Yield (scores, ids) of all visible vectors, block by block."""
        Q = q[None]
        for view, C in zip(self.views, _measure(self.views, self._scaled(Q)), strict=True):
            for block in split_range(len(view.segment), _BLOCK):
                part = view if len(view.segment) <= _BLOCK else view.rows(block)
                found = _estimate(part, C, FULL, 0, part.count)
                yield self._user_scores(Q, found.scores)[0], found.ids[0]

    def _scaled(self, Q: Floats) -> Floats:
        """Return the queries that segments are searched with: doubled under l2, for 2·q·x − ‖x‖²."""
        return Q * np.float32(2) if self.metric == "l2" else Q

    def _user_scores(self, Q: Floats, scores: Floats) -> Floats:
        """Return scores as users see them: ‖q − x‖² under l2, at least 0."""
        if self.metric != "l2":
            return scores
        squares = np.square(Q, dtype=np.float64).sum(axis=1, keepdims=True)
        distances: Floats = np.maximum(squares - scores, 0).astype(np.float32)
        return distances

    @property
    def nbytes(self) -> int:
        return 0


# ------------------------------------------------------------------------------------------------- decoding


def _decode_tile(
    views: Sequence[MaskedSegment],
    prefixes: Sequence[Prefix],
    Q: Floats,
    k: int,
    cascade: Cascade | None,
    correct: Suppress | None,
) -> ScoredRows:
    measured = list(zip(views, _measure(views, Q), prefixes, strict=True))
    if correct is None:
        return _rank(measured, k, cascade)
    kept, total = max(2 * k, correct.depth), sum(view.count for view in views)
    while True:
        best = _rank(measured, kept, cascade)
        order, left = correct(_units(best, [view.segment for view in views]))
        if left.min() >= k or kept >= total:
            return best.take(order)
        kept *= 2  # suppressed results make room for lower ones


def _measure(views: Sequence[MaskedSegment], Q: Floats) -> list[Floats]:
    """Return what each segment is decoded from: C = Q·Ŷᵀ, computed once for segments that share a codebook."""
    codebooks = {id(view.segment.codebook): view.segment.codebook for view in views}
    measured = {key: np.ascontiguousarray(codebook.measure(Q)) for key, codebook in codebooks.items()}
    return [_solve(view.segment, measured[id(view.segment.codebook)]) for view in views]


def _solve(segment: CodedSegment, C: Floats) -> Floats:
    if not segment.codes.inverse or segment.units is None:
        return C
    return solve_group_inverse(C, segment.units)


def _rank(measured: Sequence[Measured], kept: int, cascade: Cascade | None) -> ScoredRows:
    """Return the best `kept` over all segments."""
    wanted = max(kept, cascade.R) if cascade else kept
    lists = [
        _estimate(view, C, prefix, number, min(wanted, view.count))
        for number, (view, C, prefix) in enumerate(measured)
    ]
    best = lists[0] if len(lists) == 1 else _concatenate(lists)
    if cascade is None:
        return best.best(kept)
    if len(lists) > 1 or wanted > cascade.R:
        best = best.best(wanted)  # else all are re-ranked anyway
    return _rerank(best, cascade.R, kept, measured)


def _estimate(view: MaskedSegment, C: Floats, prefix: Prefix, number: int, R: int) -> ScoredRows:
    """Return the R best of one segment by U⁰, in no order."""
    codes, scale = view.segment.codes, view.segment.code_scale
    U = (codes.unit, codes.weight, scale, view.bias, prefix.lengths)
    U0 = (prefix.row, prefix.starts, prefix.unit, prefix.weight, scale, view.bias)
    scores = np.empty((len(C), R), np.float32)
    rows = np.empty((len(C), R), np.int32)
    if len(C) <= _FEW:
        for q in range(len(C)):
            if len(prefix.starts):
                _kernels.decode_prefix(*U0, C[q], scores[q], rows[q])
            else:
                _kernels.decode_one(*U, C[q], scores[q], rows[q])
    else:
        lanes = np.zeros((C.shape[1], TILE), np.float32)
        lanes[:, : len(C)] = C.T
        _kernels.decode_tile(*U, lanes, scores, rows)
    ids = np.where(rows < 0, -1, view.segment.ids[rows])
    return ScoredRows(scores, np.full(rows.shape, number, np.int32), rows, ids)


def _rerank(best: ScoredRows, R: int, kept: int, measured: Sequence[Measured]) -> ScoredRows:
    """Re-rank the first R by ŝ⁰ + c·u¹; the others stay below them, by ŝ⁰ (section 3.2). Return the first `kept`."""
    first, rest = best.columns(slice(0, R)), best.columns(slice(R, kept))
    for number, (view, C, prefix) in enumerate(measured):
        rows = first.row if len(measured) == 1 else np.where(first.segment == number, first.row, np.int32(-1))
        codes = view.segment.codes
        U = (codes.unit, codes.weight, view.segment.code_scale, prefix.lengths)
        _kernels.refine(*U, C, rows, first.scores)
    first = first.best(kept)
    return _concatenate([first, rest]) if rest.ids.shape[1] else first


def _concatenate(lists: Sequence[ScoredRows]) -> ScoredRows:
    return ScoredRows(*(np.concatenate(parts, axis=1) for parts in zip(*lists, strict=True)))


def _units(best: ScoredRows, segments: Sequence[CodedSegment]) -> Ids:
    """Return the units of each candidate, numbered over all segments."""
    m = max(segment.units.assignment.shape[1] for segment in segments if segment.units is not None)
    units = np.full((*best.row.shape, m), -1, np.int64)
    before = 0
    for number, segment in enumerate(segments):
        if segment.units is not None:
            here, mine = best.segment == number, segment.units.assignment
            units[here, : mine.shape[1]] = mine[best.row[here]] + np.int64(before)
            before += segment.units.count
    return units

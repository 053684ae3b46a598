"""Search, (segments, Q) -> ranking: measure, estimate, refine, correct, over one list of all segments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from logt import _kernels
from logt._threads import SERIAL, Workers, spans
from logt._types import Array, Floats, Ids, Mask
from logt.engine.segment import Segment
from logt.stages.codes import ALL, LANES, Prefix
from logt.stages.correction import Suppress
from logt.stages.decoder import Cascade, solve_group_inverse
from logt.stages.inverted_lists import Open
from logt.stages.residual import rotated

TILE = LANES
"""Queries decoded together, one per lane."""

_FEW = 4  # up to so many queries are quicker one by one
_NO_BIAS = np.empty(0, np.float32)


@dataclass(frozen=True)
class View:
    """A segment as one search sees it: `bias` is added to each estimate, -inf where a row must not be found."""

    segment: Segment
    bias: Floats
    count: int

    @classmethod
    def of(cls, segment: Segment, *, l2: bool, allowed: Mask | None = None) -> View:
        """With `l2`, scores are 2·q·x − ‖x‖² for doubled queries; only rows that are live and allowed count."""
        bias = segment.minus_squares if l2 and segment.norms is not None else _NO_BIAS
        if segment.removed is None and allowed is None:
            return cls(segment, bias, len(segment))
        seen = segment.live if allowed is None else segment.live & allowed
        masked = np.where(seen, bias if len(bias) else np.float32(0), np.float32(-np.inf))
        return cls(segment, masked, int(seen.sum()))


@dataclass(frozen=True)
class Candidates:
    """Lists of (nq, K) results: score, which row of which segment, and its id."""

    scores: Floats
    segment: Array
    row: Array
    ids: Ids

    def take(self, order: Ids) -> Candidates:
        at = np.arange(len(order))[:, None], order
        return Candidates(self.scores[at], self.segment[at], self.row[at], self.ids[at])

    def columns(self, part: slice) -> Candidates:
        """A copy of some places of each list."""
        fields = (self.scores, self.segment, self.row, self.ids)
        return Candidates(*(np.array(field[:, part], order="C") for field in fields))

    def ranked(self, count: int) -> Candidates:
        """The best `count`: equal scores by id."""
        return self.take(ranked(self.scores, self.ids, min(count, self.ids.shape[1])))


def ranked(scores: Floats, ids: Ids, count: int) -> Ids:
    """The places of the best `count` of each list (nq, length): equal scores by id."""
    order = np.empty((len(ids), count), np.int64)
    _kernels.rank(scores, ids, order)
    return order


def search(
    views: Sequence[View],
    Q: Floats,
    k: int,
    read: Cascade | Open | None = None,
    correct: Suppress | None = None,
    workers: Workers = SERIAL,
) -> tuple[Floats, Ids]:
    """The best k of all segments for each row of Q: (scores, ids), (nq, k or as many as there are) each.

    `read` says how much of U: segments with sketches are opened, others read in a cascade; None is all of it.
    """
    views = [view for view in views if view.count]
    k = min(k, sum(view.count for view in views))
    opened = views[0].segment.sketches is not None if views else False
    cascade = None if not isinstance(read, Cascade) or read.p == 1 else read  # with p = 1, U⁰ is all of U
    scores = np.empty((len(Q), k), np.float32)
    ids = np.empty((len(Q), k), np.int64)
    if k:
        tiles = spans(len(Q), TILE)
        if opened:
            how = read if isinstance(read, Open) else Open(effort=1)
            if len(tiles) == 1:  # no threads to make, and nothing here uses BLAS
                only = _open_tile(views, Q, k, how)
                return only.scores, only.ids
            found = workers.each(lambda tile: _open_tile(views, Q[tile], k, how), tiles)
        else:
            prefixes = [_prefix(view.segment, cascade) for view in views]
            found = workers.each(lambda tile: _search_tile(views, Q[tile], k, cascade, correct, prefixes), tiles)
        for tile, candidates in zip(tiles, found, strict=True):
            scores[tile], ids[tile] = candidates.scores[:, :k], candidates.ids[:, :k]
    return scores, ids


def _open_tile(views: Sequence[View], Q: Floats, k: int, read: Open) -> Candidates:
    """The best k among the vectors of opened units, over all segments."""
    measured = _measured(views, Q)
    Z = rotated(Q)
    everybody = sum(view.count for view in views)
    lists = [
        _scan(view, measured[id(view.segment.memory)], Z, number, min(k, view.count), read, view.count / everybody)
        for number, view in enumerate(views)
    ]
    return lists[0] if len(lists) == 1 else _concatenated(lists).ranked(k)


def _scan(view: View, C: Floats, Z: Floats, number: int, R: int, read: Open, share: float = 1.0) -> Candidates:
    """The R best of one segment, with this share of all vectors, among those of the units that answer most."""
    segment, codes = view.segment, view.segment.codes
    assert segment.sketches is not None
    assert segment.lists is not None
    wider = len(segment) / view.count  # the fewer of its vectors count, the more units: a narrow filter loses nothing
    scores = np.empty((len(C), R), np.float32)
    rows = np.empty((len(C), R), np.int32)
    _kernels.scan(
        codes.unit,
        codes.weight,
        segment.gain,
        view.bias,
        segment.sketches.head,
        segment.sketches.tail,
        segment.sketch_gain,
        segment.sketches.bits,
        segment.lists.row,
        segment.lists.starts,
        segment.lists.offsets,
        segment.lists.further,
        C,
        Z,
        min(math.ceil(read.opened(C.shape[1]) * wider), C.shape[1]),
        math.ceil(read.least * share),
        scores,
        rows,
    )
    return _listed(view, number, scores, rows)


def _search_tile(
    views: Sequence[View],
    Q: Floats,
    k: int,
    cascade: Cascade | None,
    correct: Suppress | None,
    prefixes: list[Prefix],
) -> Candidates:
    measured = _measured(views, Q)
    C = [_solved(view.segment, measured[id(view.segment.memory)]) for view in views]
    if correct is None:
        return _ranked(views, C, prefixes, k, cascade)
    kept, everything = max(2 * k, correct.depth), sum(view.count for view in views)
    while True:
        best = _ranked(views, C, prefixes, kept, cascade)
        order, left = correct(_units_of(best, [view.segment for view in views]))
        if left.min() >= k or kept >= everything:
            return best.take(order)
        kept *= 2  # what is suppressed makes room for what stood below


def _measured(views: Sequence[View], Q: Floats) -> dict[int, Floats]:
    """C = Q·Ŷᵀ by memory: segments may share one."""
    memories = {id(view.segment.memory): view.segment.memory for view in views}
    return {name: np.ascontiguousarray(memory.measure(Q)) for name, memory in memories.items()}


def _ranked(
    views: Sequence[View], C: list[Floats], prefixes: list[Prefix], kept: int, cascade: Cascade | None
) -> Candidates:
    """The best `kept` over all segments."""
    wanted = max(kept, cascade.R) if cascade else kept
    lists = [
        _estimate(view, c, prefix, number, min(wanted, view.count))
        for number, (view, c, prefix) in enumerate(zip(views, C, prefixes, strict=True))
    ]
    best = lists[0] if len(lists) == 1 else _concatenated(lists)
    if cascade is None:
        return best.ranked(kept)
    if len(lists) > 1 or wanted > cascade.R:
        best = best.ranked(wanted)  # else all are refined, and ranked then
    return _refined(best, cascade.R, kept, [view.segment for view in views], C, prefixes)


def _solved(segment: Segment, C: Floats) -> Floats:
    if not segment.codes.inverse or segment.units is None:
        return C
    return solve_group_inverse(C, segment.units)


def _prefix(segment: Segment, cascade: Cascade | None) -> Prefix:
    return segment.codes.prefix(cascade.p) if cascade else ALL


def _estimate(view: View, C: Floats, prefix: Prefix, number: int, R: int) -> Candidates:
    """The R best of one segment by U⁰, in no order."""
    codes, gain = view.segment.codes, view.segment.gain
    U = (codes.unit, codes.weight, gain, view.bias, prefix.lengths)
    U0 = (prefix.row, prefix.starts, prefix.unit, prefix.weight, gain, view.bias)
    scores = np.empty((len(C), R), np.float32)
    rows = np.empty((len(C), R), np.int32)
    if len(C) <= _FEW:
        for q in range(len(C)):
            if len(prefix.starts):
                _kernels.decode_brief(*U0, C[q], scores[q], rows[q])
            else:
                _kernels.decode_one(*U, C[q], scores[q], rows[q])
    else:
        lanes = np.zeros((C.shape[1], TILE), np.float32)
        lanes[:, : len(C)] = C.T
        _kernels.decode_tile(*U, lanes, scores, rows)
    return _listed(view, number, scores, rows)


def _listed(view: View, number: int, scores: Floats, rows: Array) -> Candidates:
    ids = view.segment.ids[rows]
    empty = rows < 0
    if empty.any():
        ids[empty] = -1
    return Candidates(scores, np.full(rows.shape, number, np.int32), rows, ids)


def _refined(
    best: Candidates,
    R: int,
    kept: int,
    segments: Sequence[Segment],
    C: list[Floats],
    prefixes: list[Prefix],
) -> Candidates:
    """ŝ⁰ + c·u¹ for the first R, ranked anew; the others stay below them, by ŝ⁰ (section 3.2). The first `kept`."""
    head, tail = best.columns(slice(0, R)), best.columns(slice(R, kept))
    for number, segment in enumerate(segments):
        rows = head.row if len(segments) == 1 else np.where(head.segment == number, head.row, np.int32(-1))
        codes = segment.codes
        U = (codes.unit, codes.weight, segment.gain, prefixes[number].lengths)
        _kernels.refine(*U, C[number], rows, head.scores)
    head = head.ranked(kept)
    return _concatenated([head, tail]) if tail.ids.shape[1] else head


def _concatenated(lists: Sequence[Candidates]) -> Candidates:
    names = ("scores", "segment", "row", "ids")
    return Candidates(*(np.concatenate([getattr(part, n) for part in lists], axis=1) for n in names))


def _units_of(best: Candidates, segments: Sequence[Segment]) -> Ids:
    """The units of each candidate, numbered over all segments."""
    m = max(segment.units.of.shape[1] for segment in segments if segment.units is not None)
    units = np.full((*best.row.shape, m), -1, np.int64)
    before = 0
    for number, segment in enumerate(segments):
        if segment.units is not None:
            here = best.segment == number
            units[here, : segment.units.of.shape[1]] = segment.units.of[best.row[here]] + np.int64(before)
            before += segment.units.count
    return units

"""Calibration, (segments, queries) -> the accuracy and the cost of searches by effort, and depths of the nearest."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from logt._internal.recall_curve import RecallCurve
from logt._internal.threads import SERIAL, Workers
from logt._internal.types import Array, Floats, Ids
from logt.errors import InvalidInputError
from logt.graph.stored_graph import StoredGraph
from logt.lists.codec import Codec
from logt.lists.inverted_lists import CandidateDepths, Probe
from logt.lists.margins import ListGaps, best_margins, near_results
from logt.lists.sampling import sample_queries, sample_vectors
from logt.lists.search import ListSearcher
from logt.lists.segment import ListSegment, by_codec
from logt.lists.shards import Candidates

CHANGED = 1.5
"""A codec is measured again when the number of its vectors has changed by this factor."""

_FEWEST = 16  # given queries: of fewer, a mean recall says nothing
_QUERIES = 128
_MANY_VECTORS = 2_000_000  # of more, half of the queries are searched for
_FEW_QUERIES = 32  # are enough where each has many results
_ENOUGH = 0.998  # recall: more effort is not measured, searches for more read everything
_LONG = 0.03  # of many vectors, if searches decode more: more effort is not measured, but interpolated
_NEARLY = 0.98  # recall beyond which half of the queries are enough
_REACHES = 1.7, 2.2, 1.3, 1.0  # of codes: with which the fewest vectors are read for _REACHED; the likely ones first
_REACHED, _REACH_EFFORTS = 0.97, (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
_SIGNS = 512  # dimensions whose signs take as long to read as a code
_DEPTH = 1024  # candidates by code, of which the nearest are searched for


@dataclass(frozen=True)
class EffortPoint:
    """What a search at one effort finds and costs.

    effort: from 0 to 1. recall: the fraction of the 10 best results of a full read that are found. recall_100,
    recall_1000: of the 100 and the 1,000 best. milliseconds: of a search for 10 results of one query on one thread,
    on average. scanned: vectors whose codes it decodes.
    """

    effort: float
    recall: float
    recall_100: float
    recall_1000: float
    milliseconds: float
    scanned: float


def check_sample(Q: Floats) -> None:
    """Raise InvalidInputError if queries are too few to measure recall with."""
    if len(Q) < _FEWEST:
        raise InvalidInputError(f"Q has {len(Q)} rows, too few to measure recall; pass {_FEWEST} or more, or None")


def measure_efforts(
    segments: Sequence[ListSegment],
    Q: Floats,
    own: Ids | None = None,
    workers: Workers = SERIAL,
    graph: StoredGraph | None = None,
    share: float = 1.0,
    *,
    every: bool = True,
    full: Any = None,
    found: Candidates | None = None,
    like: str | None = None,
) -> list[EffortPoint]:
    """Search for Q at each effort, and compare with a full read; unless `every`, up to one that is nearly as good.

    own: ids of Q, if these are vectors of the segments, which do not count; -1 for other queries: the recall is the
    lower one of both. graph: the neighbor graph. share: that of
    all vectors which the segments have; they have as much of the results, of the candidates and of what is scanned.
    full: what reads everything, on another device. found: by `read_all`, if it is known. like: the kind of Q.
    """
    if graph is None:
        searcher = ListSearcher(segments, like=like)
    else:  # a query that is in the graph would start from its own neighbors
        hidden = np.empty(0, np.int64) if own is None else own[own >= 0]
        visible = [segment.live & ~np.isin(segment.ids, hidden) for segment in segments]
        searcher = ListSearcher(segments, visible, graph=graph.remove(hidden), like=like)
    full = full or searcher
    found = read_all(full, Q, own, workers) if found is None else found
    return _measure(searcher, full, found, Q, own, workers, share, every=every, linked=graph is not None)


def measure_curve(searcher: Any, Q: Floats, own: Ids | None) -> RecallCurve:
    """Return the accuracy of the searches of another device; own: as of `measure_efforts`."""
    found = read_all(searcher, Q, own, SERIAL)
    return _as_curve(_measure(searcher, searcher, found, Q, own, SERIAL, 1.0, every=False, linked=False))


def _measure(
    searcher: Any,
    full: Any,
    found: Candidates,
    Q: Floats,
    own: Ids | None,
    workers: Workers,
    share: float,
    *,
    every: bool,
    linked: bool,
) -> list[EffortPoint]:
    """Return what searches at each effort find and cost, compared with a full read.

    found: the best candidates of a full read.
    """
    excluded = np.full(len(Q), -1) if own is None else own
    few, many, most = RecallCurve.KS
    fewer = searcher.count > _MANY_VECTORS and not every  # each search takes longer
    order = np.argsort(-found.scores, axis=1, kind="stable")[:, : max(1, round(share * many))]
    nearest = np.take_along_axis(found.ids, order, axis=1)

    def compared(part: Any, nearest: Ids) -> _Comparison:
        return _Comparison(
            searcher, np.ascontiguousarray(Q[part]), excluded[part], nearest, share, workers, linked=linked
        )

    step = 2 if fewer else 1
    each, half, quarter = (slice(None, None, step * n) for n in (1, 1 if every else 2, 1 if every else 4))
    usual, usual_half = compared(each, nearest[each]), compared(half, nearest[half])
    long, long_half = usual_half, compared(quarter, nearest[quarter])
    some = np.linspace(0, len(Q) - 1, min(len(Q), _FEW_QUERIES // 4 if fewer else _FEW_QUERIES)).astype(int)
    limits = Probe(1.0).limits(most + 1, depths=searcher.depths)
    longest = compared(some, full.search(np.ascontiguousarray(Q[some]), most + 1, limits, workers)[1])
    compared_by_k = ((few, usual, usual_half), (many, long, long_half), (most, longest, longest))
    points: list[EffortPoint] = []
    recall, enough, seconds, scanned, before = [0.0, 0.0, 0.0], [False, False, False], 0.0, 0.0, 0.0
    for effort in (*RecallCurve.EFFORTS, 1.0) if every else RecallCurve.EFFORTS:
        for n, (k, all_of_them, some_of_them) in enumerate(compared_by_k):
            if enough[n] and recall[n] < _ENOUGH:  # a full read finds everything
                recall[n] += (1 - recall[n]) * (effort - before) / (1 - before)
            if enough[n]:
                continue
            recall[n], spent, read = (some_of_them if recall[n] > _NEARLY else all_of_them).search(effort, k)
            enough[n] = not every and (recall[n] >= _ENOUGH or (fewer and read > _LONG * searcher.count))
            if k == few:
                seconds, scanned = spent, read
        threads = min(workers.threads, max(1, len(Q) // 16))
        points.append(EffortPoint(effort, recall[0], recall[1], recall[2], 1e3 * threads * seconds, scanned))
        if min(recall) >= _ENOUGH and not every:
            break
        before = effort
    return points


class _Comparison:
    """Searches for some queries, compared with a full read.

    nearest: what a full read finds. The other parameters are as of `measure_efforts`.
    """

    def __init__(
        self, searcher: Any, Q: Floats, own: Ids, nearest: Ids, share: float, workers: Workers, *, linked: bool
    ):
        self._searcher, self._Q, self._own, self._nearest = searcher, Q, own, nearest
        self._share, self._workers, self._linked = share, workers, linked

    def search(self, effort: float, k: int) -> tuple[float, float, float]:
        """Return (recall of k results, seconds per query, vectors whose codes are decoded)."""
        here = max(1, round(self._share * k))
        limits = Probe(effort).limits(k, depths=self._searcher.depths, graph=() if self._linked else None)
        candidates = max(here + 1, round(self._share * limits.candidates))
        limits = limits._replace(least=round(self._share * limits.least), candidates=candidates)
        start = time.perf_counter()
        _, found, counts = self._searcher.search(self._Q, here + 1, limits, self._workers)
        seconds = (time.perf_counter() - start) / len(self._Q)
        return _overlap(found, self._nearest, self._own, here), seconds, float(counts[:, 1].mean())


def calibrate(
    segments: Sequence[ListSegment],
    Q: Floats | None,
    rng: np.random.Generator,
    workers: Workers,
    share: float = 1.0,
    full: Any = None,
) -> tuple[ListSegment, ...]:
    """Return the segments with a measured accuracy of each codec: with queries Q, or with vectors of the segments.

    With queries, all codecs get the curve of a search of all segments: the nearest vectors of a query may all be of
    one codec. Without, each has that of its own vectors, so that all of them are found. share: that of all vectors
    which the segments have. full: what reads all of them, on another device, if they
    are of one codec.
    """
    groups = by_codec(segments)
    codecs = {key: _measured(same, Q, rng, workers, share, full) for key, same in groups.items()}
    if Q is not None and not all(segment.flat for segment in segments):
        everything = [replace(s, codec=codecs[id(s.codec)]) for s in segments]
        curve = _curve(everything, Q, None, workers, share=share)
        codecs = {key: _with(codec, curve=curve) for key, codec in codecs.items()}
    return tuple(s if codecs[id(s.codec)] is s.codec else replace(s, codec=codecs[id(s.codec)]) for s in segments)


def calibrate_changed(
    segments: Sequence[ListSegment], rng: np.random.Generator, workers: Workers
) -> tuple[ListSegment, ...]:
    """Return the segments, with each codec measured again that has many more or fewer vectors than when it was.

    Codecs that were measured with given queries stay as they are.
    """
    changed = [s for same in by_codec(segments).values() if _has_changed(same) for s in same]
    measured = dict(zip(map(id, changed), calibrate(changed, None, rng, workers), strict=True))
    return tuple(measured.get(id(segment), segment) for segment in segments)


def _has_changed(same: Sequence[ListSegment]) -> bool:
    """Return whether the codec of some segments was measured with many more or fewer vectors."""
    count, measured = sum(segment.count for segment in same), same[0].codec.measured.vectors
    return measured > 0 and count > 0 and not measured / CHANGED < count < measured * CHANGED


def calibrate_graph(
    segments: Sequence[ListSegment],
    graph: StoredGraph,
    Q: Floats | None,
    rng: np.random.Generator,
    workers: Workers,
) -> StoredGraph:
    """Return the neighbor graph with the measured curve of searches that use it, as `calibrate` does for codecs.

    Where the codecs were measured with given queries, the curve is left as it is until queries are given again.
    """
    tuned = any(segment.codec.measured.tuned for segment in segments)
    if all(segment.flat for segment in segments) or (Q is None and tuned):
        return graph
    own = None
    if Q is None:
        Q, own = sample_vectors(segments, _QUERIES, rng)
    return replace(graph, recall=_curve(segments, Q, own, workers, graph).recall)


def calibrate_kind(
    segments: Sequence[ListSegment],
    graph: StoredGraph | None,
    name: str,
    Q: Floats,
    rng: np.random.Generator,
    workers: Workers,
) -> tuple[ListSegment, ...]:
    """Return the segments whose codecs also know the accuracy for queries of a kind; other searches do not change."""
    tuned = calibrate(segments, Q, rng, workers)
    linked, k = None, 0
    if graph is not None:
        recall = calibrate_graph(tuned, graph, Q, rng, workers).recall
        linked, k = (RecallCurve(recall), graph.k) if recall.size else (None, 0)
    known = {}
    for before, after in zip(segments, tuned, strict=True):
        kind = after.codec.measured._replace(linked=linked, neighbors=k)
        known[id(before.codec)] = replace(before.codec, kinds={**before.codec.kinds, name: kind})
    return tuple(replace(segment, codec=known[id(segment.codec)]) for segment in segments)


def read_all(full: Any, Q: Floats, own: Ids | None, workers: Workers) -> Candidates:
    """Return the best candidates of a full read, without the rows of Q if they are vectors of the segments.

    full: what searches the segments. own: as of `measure_efforts`.
    """
    limits = Probe(1.0).limits(1, depths=None)._replace(candidates=_DEPTH)
    found: Candidates = full.candidates(Q, limits, workers)
    hidden = found.ids < 0 if own is None else (found.ids < 0) | (found.ids == own[:, None])
    return Candidates(
        np.where(hidden, -np.inf, found.keys).astype(np.float32),
        np.where(hidden, -np.inf, found.scores).astype(np.float32),
        np.where(hidden, -1, found.ids),
    )


def measure_depths(found: Candidates, share: float = 1.0) -> CandidateDepths:
    """Return how far down the ranking by codes the best results of a full read are.

    share: that of all vectors which were read. Of the k nearest of all, they have about share · k, and there are
    1 / share times as many before each of them. Not less than usual: queries may be harder than the vectors of a
    collection.
    """
    nearest: list[list[Array]] = [[] for _ in RecallCurve.KS[:2]]
    for keys, scores, ids in zip(found.keys, found.scores, found.ids, strict=True):
        others = ids >= 0
        rank = np.argsort(np.argsort(-keys[others], kind="stable"), kind="stable") + 1
        order = np.argsort(-scores[others], kind="stable")
        for ranks, k in zip(nearest, RecallCurve.KS[:2], strict=True):
            ranks.append(rank[order[: max(1, round(share * k))]])
    usual = CandidateDepths()
    if not sum(map(len, nearest[0])):
        return usual
    few, many = (float(np.float32(np.quantile(np.concatenate(ranks), 0.99) / share)) for ranks in nearest)
    return CandidateDepths(max(few, usual.few), max(few, many, usual.many))


def _best_reach(segments: Sequence[ListSegment], Q: Floats, own: Ids, found: Candidates, workers: Workers) -> float:
    """Return the reach of codes with which searches find most of the 10 nearest for the least work.

    found: by a full read. A search that trusts codes less reads more residuals of fewer lists.
    """
    few, dim = RecallCurve.KS[0], segments[0].codec.dim
    order = np.argsort(-found.scores, axis=1, kind="stable")[:, :few]
    nearest, searcher, best = np.take_along_axis(found.ids, order, axis=1), ListSearcher(segments), (np.inf, 1.0)
    for reach in _REACHES:
        depths = searcher.depths and searcher.depths._replace(reach=reach)
        recall = work = 0.0
        for effort in _REACH_EFFORTS:
            limits = Probe(effort).limits(few, depths=depths)
            _, ids, counts = searcher.search(Q, few + 1, limits, workers)
            before, recall = (recall, work), _overlap(ids, nearest, own, few)
            work = float(counts[:, 1].mean() + (1 + dim / _SIGNS) * counts[:, 2].mean())
            if recall >= _REACHED:
                share = (_REACHED - before[0]) / max(recall - before[0], 1e-9) if before[1] else 1.0
                best = min(best, (before[1] + share * (work - before[1]), reach))
                break
            if work > best[0]:
                break
    return best[1]


def _measured(
    segments: Sequence[ListSegment],
    Q: Floats | None,
    rng: np.random.Generator,
    workers: Workers,
    share: float,
    full: Any = None,
) -> Codec:
    """Return the codec of some segments with its depths and, without queries, its curve."""
    codec, own = segments[0].codec, None
    flat = all(segment.flat for segment in segments)
    if flat and not codec.refine:
        return codec
    vectors = 0
    if Q is None:
        Q, own = sample_queries(segments, _QUERIES, rng)
        vectors = round(sum(segment.count for segment in segments) / share)
    found = read_all(full or ListSearcher(segments), Q, own, workers)
    usual = slice(None) if own is None else slice(int(np.count_nonzero(own >= 0)))
    codec = _with(codec, vectors=vectors)
    if not flat:
        gaps = ListGaps.measure(segments, Q, found, max(1, round(share * RecallCurve.KS[0])))
        of_collection = np.full(len(Q), False) if own is None else own >= 0
        codec = _with(codec, margins=best_margins(gaps, of_collection), near=near_results(gaps, of_collection))
    if codec.refine:
        depths = measure_depths(found.of(usual), share)._replace(reach=codec.measured.depths.reach)
        codec = _with(codec, depths=depths)
        if own is not None and not flat:
            same = [replace(s, codec=codec) for s in segments]
            some = slice(0, usual.stop, 4 if sum(s.count for s in segments) > _MANY_VECTORS else 1)
            reach = _best_reach(same, np.ascontiguousarray(Q[some]), own[some], found.of(some), workers)
            codec = _with(codec, depths=depths._replace(reach=reach))
    if flat or own is None:  # everything is scanned at any effort; or the queries are measured in all segments
        return codec
    measured_now = [replace(s, codec=codec) for s in segments]
    return _with(codec, curve=_curve(measured_now, Q, own, workers, share=share, full=full, found=found))


def _with(codec: Codec, **measured: Any) -> Codec:
    """Return a codec of which more was measured."""
    return replace(codec, measured=codec.measured._replace(**measured))


def _curve(
    segments: Sequence[ListSegment],
    Q: Floats,
    own: Ids | None,
    workers: Workers,
    graph: StoredGraph | None = None,
    share: float = 1.0,
    full: Any = None,
    found: Candidates | None = None,
) -> RecallCurve:
    return _as_curve(measure_efforts(segments, Q, own, workers, graph, share, every=False, full=full, found=found))


def _as_curve(points: Sequence[EffortPoint]) -> RecallCurve:
    recall = np.array([(p.recall, p.recall_100, p.recall_1000) for p in points], np.float32).T
    recall = np.pad(recall, ((0, 0), (0, len(RecallCurve.EFFORTS) - len(points))), mode="edge")
    return RecallCurve(np.maximum.accumulate(recall, axis=1))


def _overlap(found: Ids, full: Ids, own: Ids, k: int) -> float:
    """Return the fraction of the first k ids of `full`, without own ones, that are among the first k of `found`.

    own: the id of each query, -1 if it is not a vector of the collection; if only some are, the lower one of both.
    """
    ids = np.concatenate([full[:, : k + 1], found[:, : k + 1]], axis=1)  # without its own one, a query has k left
    counted = (ids >= 0) & (ids != own[:, None])
    wanted, known = (
        part & (np.cumsum(part, axis=1) <= k) for part in np.split(counted, [full[:, : k + 1].shape[1]], 1)
    )
    row = np.arange(len(own))[:, None]
    keys = np.unique(ids, return_inverse=True)[1].reshape(ids.shape) * len(own) + row
    hits = np.isin(keys[:, : wanted.shape[1]], keys[:, wanted.shape[1] :][known]) & wanted
    recall, usual = hits.sum(axis=1) / np.maximum(wanted.sum(axis=1), 1), own >= 0
    return min(float(recall[mine].mean()) for mine in (usual, ~usual) if mine.any())

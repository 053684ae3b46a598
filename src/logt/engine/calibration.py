"""Calibration, (segments, queries) -> the accuracy and the cost of searches by effort."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from logt._threads import SERIAL, Workers
from logt._types import Floats, Ids
from logt.engine.list_search import ListSearcher
from logt.engine.list_segment import ListSegment
from logt.engine.neighbor_graph import LinkState
from logt.engine.segment import Segment
from logt.stages.inverted_lists import Probe, RecallCurve

_QUERIES = 128


@dataclass(frozen=True)
class EffortPoint:
    """What a search at one effort finds and costs.

    effort: from 0 to 1. recall: the fraction of the 10 best results of a full read that are found. recall_100: of the
    100 best. milliseconds: for one query on one thread, on average. scanned: vectors whose codes are decoded.
    """

    effort: float
    recall: float
    recall_100: float
    milliseconds: float
    scanned: float


def measure_efforts(
    segments: Sequence[ListSegment],
    Q: Floats,
    own: Ids | None = None,
    workers: Workers = SERIAL,
    links: LinkState | None = None,
) -> list[EffortPoint]:
    """Search for Q at each effort of a curve, and compare with a full read.

    own: ids of Q, if these are vectors of the segments; they do not count. links: the neighbor graph.
    """
    searcher = ListSearcher(segments)
    if links is not None:  # a query that is in the graph would start from its own neighbors
        hidden = np.empty(0, np.int64) if own is None else own
        masks = [segment.live & ~np.isin(segment.ids, hidden) for segment in segments]
        searcher = ListSearcher(segments, masks, links=links.remove(hidden))
    linked = links is not None
    few, many = RecallCurve.KS
    excluded = np.full(len(Q), -1) if own is None else own
    full = searcher.search(Q, many + 1, Probe(1.0).reading(many + 1, refine=searcher.refine), workers)[1]
    points = []
    for effort in RecallCurve.EFFORTS:
        recall = {}
        for k in (many, few):
            reading = Probe(effort).reading(k, refine=searcher.refine, linked=linked)
            start = time.perf_counter()
            _, found, counts = searcher.search(Q, k + 1, reading, workers)
            seconds = time.perf_counter() - start
            recall[k] = _overlap(found, full, excluded, k)
        threads = min(workers.threads, max(1, len(Q) // 16))
        points.append(
            EffortPoint(effort, recall[few], recall[many], 1e3 * threads * seconds / len(Q), counts[:, 1].mean())
        )
    return points


def calibrate(
    segments: Sequence[Segment], Q: Floats | None, rng: np.random.Generator, workers: Workers
) -> tuple[Segment, ...]:
    """Return the segments with a measured curve for each codec: with queries Q, or with vectors of the segments."""
    curves: dict[int, RecallCurve | None] = {}
    for segment in segments:
        if isinstance(segment, ListSegment) and id(segment.codec) not in curves:
            same = [s for s in segments if isinstance(s, ListSegment) and s.codec is segment.codec]
            curves[id(segment.codec)] = _curve(same, Q, rng, workers)
    return with_curves(segments, curves)


def calibrate_links(
    segments: Sequence[Segment], links: LinkState, Q: Floats | None, rng: np.random.Generator, workers: Workers
) -> LinkState:
    """Return the neighbor graph with the measured curve of searches that use it, as `calibrate` does for codecs."""
    listed = [segment for segment in segments if isinstance(segment, ListSegment)]
    curve = _curve(listed, Q, rng, workers, links)
    return links if curve is None else replace(links, links=replace(links.links, recall=curve.recall))


def with_curves(segments: Sequence[Segment], curves: dict[int, RecallCurve | None]) -> tuple[Segment, ...]:
    """Return the segments with new curves, given by the identity of codecs; segments still share their codecs."""
    codecs = {
        id(s.codec): replace(s.codec, curve=curves[id(s.codec)])
        for s in segments
        if isinstance(s, ListSegment) and curves.get(id(s.codec)) is not None
    }
    return tuple(
        replace(s, codec=codecs[id(s.codec)]) if isinstance(s, ListSegment) and id(s.codec) in codecs else s
        for s in segments
    )


def _curve(
    segments: Sequence[ListSegment],
    Q: Floats | None,
    rng: np.random.Generator,
    workers: Workers,
    links: LinkState | None = None,
) -> RecallCurve | None:
    if all(segment.flat for segment in segments):
        return None  # everything is scanned at any effort
    own = None
    if Q is None:
        Q, own = sample_vectors(segments, _QUERIES, rng)
    points = measure_efforts(segments, Q, own, workers, links)
    recall = np.array([[p.recall for p in points], [p.recall_100 for p in points]], np.float32)
    return RecallCurve(np.maximum.accumulate(recall, axis=1))


def sample_vectors(segments: Sequence[Segment], count: int, rng: np.random.Generator) -> tuple[Floats, Ids]:
    """Return (vectors as they are kept, their ids) of at most `count` random live rows."""
    rows = [np.flatnonzero(segment.live) for segment in segments]
    total = sum(map(len, rows))
    chosen = np.sort(rng.choice(total, min(count, total), replace=False))
    starts = np.cumsum([0, *map(len, rows)])
    parts = [
        live[chosen[(chosen >= start) & (chosen < start + len(live))] - start]
        for live, start in zip(rows, starts[:-1], strict=True)
    ]
    vectors = [segment.reconstruct(part) for segment, part in zip(segments, parts, strict=True) if len(part)]
    ids = [segment.ids[part] for segment, part in zip(segments, parts, strict=True) if len(part)]
    return np.concatenate(vectors), np.concatenate(ids)


def _overlap(found: Ids, full: Ids, own: Ids, k: int) -> float:
    """Return the fraction of the first k ids of `full`, without own ones, that are among the first k of `found`."""
    shares = []
    for a, b, mine in zip(found.tolist(), full.tolist(), own.tolist(), strict=True):
        wanted = [i for i in b if i != mine][:k]
        shares.append(len(set(wanted) & set([i for i in a if i != mine][:k])) / max(len(wanted), 1))
    return float(np.mean(shares))

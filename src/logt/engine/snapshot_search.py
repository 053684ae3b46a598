"""ScanLimits, (snapshot, queries) -> results: searches in inverted lists, or by decoding U, as the segments need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from logt._internal.threads import SERIAL, Workers
from logt._internal.types import Array, Floats, Ids
from logt.engine.snapshot import Snapshot
from logt.group_testing.cascade import Cascade
from logt.group_testing.cascade_cache import PrefixCache
from logt.group_testing.correction import Suppress
from logt.group_testing.search import all_scores, search_by_decoding
from logt.lists.inverted_lists import Probe
from logt.lists.search import PreparedSearch
from logt.metrics import Metric, scale_queries, to_distances


class Reader:
    """One snapshot, seen through a filter. Scores are those that users see: distances under l2."""

    def __init__(
        self,
        snapshot: Snapshot,
        metric: Metric,
        filter: Any = None,
        workers: Workers = SERIAL,
        prefixes: PrefixCache | None = None,
    ):
        self._metric, self._workers, self._prefixes = metric, workers, prefixes
        lists = bool(snapshot.list_segments)
        self._lists = snapshot.searcher(filter) if lists else None
        self._views = [] if lists else snapshot.views(filter, l2=metric == "l2")

    def search(
        self, Q: Floats, k: int, coverage: Probe | Cascade | None, correct: Suppress | None = None
    ) -> tuple[Floats, Ids]:
        """Return (scores, ids), (nq, at most k) each, best first."""
        if self._lists is not None and isinstance(coverage, Probe):
            scores, ids, _ = self._lists.search(Q, k, self._lists.limits(coverage, k), self._workers)
            return list_scores(scores, self._metric), ids
        cascade = coverage if isinstance(coverage, Cascade) else None
        scaled = scale_queries(Q, self._metric)
        scores, ids = search_by_decoding(self._views, scaled, k, cascade, correct, self._workers, self._prefixes)
        return to_distances(Q, scores, self._metric), ids

    def prepare(self, k: int, coverage: Probe | Cascade | None) -> PreparedSearch | None:
        """Return the search of one query with these settings; None for methods without inverted lists."""
        if self._lists is None or not isinstance(coverage, Probe):
            return None
        return self._lists.prepare(k, self._lists.limits(coverage, k), cosine=self._metric == "cosine")

    def range_search(self, Q: Floats, threshold: float) -> tuple[Array, Floats, Ids]:
        """Return (limits, scores, ids) of all results within the threshold, best first for each query."""
        found = self._workers.map(lambda q: self._within(q, threshold), list(Q))
        limits = np.cumsum([0, *(len(ids) for _, ids in found)])
        scores = np.concatenate([np.empty(0, np.float32), *(scores for scores, _ in found)])
        ids = np.concatenate([np.empty(0, np.int64), *(ids for _, ids in found)])
        return limits, scores, ids

    def _within(self, q: Floats, threshold: float) -> tuple[Floats, Ids]:
        """Return (scores, ids) of the results of one query; only the scores of one block are held at a time."""
        l2 = self._metric == "l2"
        parts = [(np.empty(0, np.float32), np.empty(0, np.int64))]
        for scores, ids in self._all_scores(q):
            inside = scores <= threshold if l2 else scores >= threshold
            parts.append((scores[inside], ids[inside]))
        scores, ids = (np.concatenate(part) for part in zip(*parts, strict=True))
        order = np.lexsort((ids, scores if l2 else -scores))
        return scores[order], ids[order]

    def _all_scores(self, q: Floats) -> Iterator[tuple[Floats, Ids]]:
        """Yield (scores, ids) of all visible vectors, block by block."""
        if self._lists is not None:
            for scores, ids in self._lists.all_scores(q):
                yield list_scores(scores, self._metric), ids
        for view in self._views:
            for scores, ids in all_scores(view, scale_queries(q[None], self._metric)):
                yield to_distances(q[None], scores[None], self._metric)[0], ids


def list_scores(scores: Floats, metric: Metric) -> Floats:
    """Return the scores of lists as users see them: lists give −‖q − x‖², except under inner product.

    Under cosine, vectors have norm 1, so that q·x = 1 − ‖q − x‖² / 2. A distance keeps its precision where all
    vectors point in nearly the same direction. An estimate of a distance may be below 0; none is returned.
    """
    if metric == "ip":
        return scores
    distances: Floats = np.maximum(-scores, 0)
    return distances if metric == "l2" else np.float32(1) - distances / np.float32(2)

"""One shard: some segments of an index, opened from its store, and the part of each search that reads them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from logt._internal.threads import SERIAL, Workers, available_cores
from logt._internal.types import Array, Floats, Ids, Metric
from logt.engine.searching import search_range
from logt.engine.snapshot import Snapshot
from logt.lists.calibration import calibrate_graph
from logt.lists.inverted_lists import ScanLimits
from logt.lists.search import ListSearcher, all_user_scores
from logt.lists.shards import Candidates, ListTotals
from logt.storage.shard_files import read_part

Filter = Array | None
"""The integer ids that can be found, or a mask over the live vectors of the shard; None for all."""


class Shard:
    """Some segments of one saved state of an index. `load` and `activate` come before everything else."""

    def __init__(self, path: str, state: str, numbers: Sequence[int]):
        """path: the folder or URL of the index. state: of its manifest. numbers: of the segments."""
        self._source = path, state, numbers

    def load(self) -> list[ListTotals]:
        """Open the segments and their part of the neighbor graph, and return their vectors by list."""
        self._segments, self._codecs, self._graph = read_part(*self._source)
        self._snapshot = Snapshot(tuple(self._segments))
        return ListSearcher(self._segments, None, self._codecs).totals()

    def activate(self, totals: Sequence[ListTotals]) -> None:
        """Prepare the searches without a filter, with the totals of all shards."""
        self._searcher = ListSearcher(self._segments, None, self._codecs, totals, self._graph)

    def measure(self) -> Floats | None:
        """Measure the recall of searches on the graph of this shard by effort, and return it as of `RecallCurve`.

        Each shard that finds a fraction of its own best results finds at least that of the best of all. None if the
        graph makes no difference. An empty array if the codecs were measured with given queries, which are not known.
        """
        if self._graph is None or all(segment.flat for segment in self._segments):
            return None
        graph = replace(self._graph, recall=np.empty((0, 0), np.float32))
        workers = Workers(available_cores())
        return calibrate_graph(self._segments, graph, None, np.random.default_rng(0), workers).recall

    def totals(self, filter: Array) -> list[ListTotals]:
        return self._filtered(filter).totals()

    def candidates(
        self, Q: Floats, limits: ScanLimits, filter: Filter = None, totals: Sequence[ListTotals] | None = None
    ) -> Candidates:
        """Return the candidates of each query in this shard. totals: of all shards, under the filter."""
        searcher = self._searcher if filter is None else self._filtered(filter, totals)
        if limits.beam and searcher.graph is None:  # none of its vectors is linked yet: they are few
            limits = limits._replace(everything=True)
        return searcher.candidates(np.ascontiguousarray(Q), limits)

    def ranges(self, Q: Floats, threshold: float, metric: Metric, filter: Filter) -> tuple[Array, Floats, Ids]:
        if not self._segments:
            return np.zeros(len(Q) + 1, np.int64), np.empty(0, np.float32), np.empty(0, np.int64)
        searcher = self._searcher if filter is None else self._filtered(filter)
        return search_range(partial(all_user_scores, searcher, metric), Q, threshold, SERIAL, l2=metric == "l2")

    def reconstruct(self, ids: Ids, dim: int) -> tuple[Ids, Floats]:
        """Return (which of the ids are here, as positions in `ids`; their vectors as they are kept)."""
        here = np.zeros(len(ids), bool)
        X = np.empty((len(ids), dim), np.float32)
        for segment in self._segments:
            rows, found = segment.locate(ids)
            if found.any():
                X[found] = segment.reconstruct(rows[found])
                here |= found
        return np.flatnonzero(here), X[here]

    def _filtered(self, filter: Array, totals: Sequence[ListTotals] | None = None) -> ListSearcher:
        return ListSearcher(self._segments, self._snapshot.visible_rows(filter), self._codecs, totals)

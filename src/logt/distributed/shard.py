"""One shard: some segments of an index, opened from its store, and the part of each search that reads them."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from logt._internal.types import Array, Floats, Ids, Metric
from logt.engine.snapshot import Snapshot
from logt.engine.snapshot_search import Reader
from logt.lists.codec import Codec
from logt.lists.inverted_lists import ScanLimits
from logt.lists.search import ListSearcher
from logt.lists.segment import ListSegment
from logt.lists.shards import Candidates, ListTotals
from logt.storage.shard_files import read_part

Filter = Array | None
"""The integer ids that can be found, or a mask over the live vectors of the shard; None for all."""


@dataclass(frozen=True)
class _Loaded:
    segments: list[ListSegment]
    codecs: list[Codec]
    snapshot: Snapshot
    searcher: ListSearcher | None = None


class Shard:
    """Some segments of an index, in one state or, while the index is replaced, in two."""

    def __init__(self, path: str):
        """path: the folder or URL of the index."""
        self._path = path
        self._states: dict[str, _Loaded] = {}
        self._lock = threading.Lock()

    def load(self, state: str, numbers: Sequence[int]) -> list[ListTotals]:
        """Open the segments of a state, and return their vectors by list."""
        segments, codecs = read_part(self._path, state, numbers)
        loaded = _Loaded(segments, codecs, Snapshot(tuple(segments)))
        with self._lock:
            self._states[state] = loaded
        return ListSearcher(segments, None, codecs).totals()

    def activate(self, state: str, numbers: Sequence[int], totals: Sequence[ListTotals]) -> None:
        """Prepare the searches of a state with the totals of all shards. Its segments are opened if they are not."""
        if state not in self._states:  # this actor replaces one that died after it had opened them
            self.load(state, numbers)
        loaded = self._states[state]
        searcher = ListSearcher(loaded.segments, None, loaded.codecs, totals)
        with self._lock:
            self._states[state] = _Loaded(loaded.segments, loaded.codecs, loaded.snapshot, searcher)

    def drop(self, state: str) -> None:
        """Forget a state."""
        with self._lock:
            self._states.pop(state, None)

    def totals(self, state: str, filter: Filter) -> list[ListTotals]:
        """Return the visible vectors by list."""
        return self._searcher(state, filter, None).totals()

    def candidates(
        self,
        state: str,
        Q: Floats,
        limits: ScanLimits,
        filter: Filter = None,
        totals: Sequence[ListTotals] | None = None,
    ) -> Candidates:
        """Return the candidates of each query in this shard."""
        return self._searcher(state, filter, totals).candidates(np.ascontiguousarray(Q), limits)

    def ranges(
        self, state: str, Q: Floats, threshold: float, metric: Metric, filter: Filter
    ) -> tuple[Array, Floats, Ids]:
        """Return (limits, scores, ids) of all results within the threshold."""
        loaded = self._states[state]
        if not loaded.segments:
            return np.zeros(len(Q) + 1, np.int64), np.empty(0, np.float32), np.empty(0, np.int64)
        return Reader(loaded.snapshot, metric, filter).range_search(Q, threshold)

    def reconstruct(self, state: str, ids: Ids, dim: int) -> tuple[Ids, Floats]:
        """Return (which of the ids are here, as places in `ids`; their vectors as they are kept)."""
        here = np.zeros(len(ids), bool)
        X = np.empty((len(ids), dim), np.float32)
        for segment in self._states[state].segments:
            rows, found = segment.locate(ids)
            if found.any():
                X[found] = segment.reconstruct(rows[found])
                here |= found
        return np.flatnonzero(here), X[here]

    def ping(self) -> dict[str, Any]:
        """Return where this shard runs."""
        return {"pid": os.getpid(), "states": sorted(self._states)}

    def _searcher(self, state: str, filter: Filter, totals: Sequence[ListTotals] | None) -> ListSearcher:
        loaded = self._states[state]
        if filter is None and loaded.searcher is not None:
            return loaded.searcher
        masks: Sequence[Array] | None
        if filter is None:
            masks = None
        elif filter.dtype == bool:
            masks = loaded.snapshot._masks(filter)
        else:
            wanted = np.unique(filter)
            masks = [segment.find(wanted) for segment in loaded.segments]
        return ListSearcher(loaded.segments, masks, loaded.codecs, totals)

"""The state of an index: its method and snapshot, and the searches that are prepared on them."""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from logt._internal.params import SearchKey
from logt._internal.types import Metric
from logt.engine.protocols import Method, SegmentSearch
from logt.engine.snapshot import Snapshot
from logt.results import SearchResult

_KEPT_SEARCHES = 64  # most programs use one


@dataclass(frozen=True)
class IndexState:
    """What a search sees: the method, the metric and the snapshot of an index at one moment."""

    method: Method
    metric: Metric
    snapshot: Snapshot

    def search(self, filter: Any = None) -> SegmentSearch:
        """Return the search of all segments with this filter."""
        if filter is None:
            return self._unfiltered
        visible = self.snapshot.visible_rows(filter)
        return self.method.search(self.snapshot.segments, self.metric, visible, None)

    @cached_property
    def _unfiltered(self) -> SegmentSearch:
        return self.method.search(self.snapshot.segments, self.metric, None, self.snapshot.graph)

    @cached_property
    def _prepared(self) -> dict[SearchKey, Any]:
        return {}

    def keep(self, key: SearchKey, k: int, limits: Any) -> None:
        """Prepare a search of one query for the next one with the same settings."""
        search = self._unfiltered.prepare(k, limits)
        if search is not None:
            if len(self._prepared) >= _KEPT_SEARCHES:
                self._prepared.clear()
            self._prepared[key] = search

    def search_known(self, key: SearchKey, Q: Any) -> SearchResult | None:
        """Repeat a kept search for another query; None if there is none, or if the query is not valid."""
        search = self._prepared.get(key)
        if search is None:
            return None
        if Q.dtype != np.float32 or not Q.flags.c_contiguous:
            with np.errstate(over="ignore"):  # infinity is not valid
                Q = np.ascontiguousarray(Q, np.float32)
        found = search(Q)
        return None if found is None else found.with_ids(self.snapshot.to_user_ids)

    @property
    def graph_bytes(self) -> int:
        """The bytes of the neighbor graph, with what searches on it keep in memory."""
        graph, search = self.snapshot.graph, vars(self).get("_unfiltered")
        return (0 if graph is None else graph.nbytes) + (0 if search is None else search.nbytes)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # without what is cached

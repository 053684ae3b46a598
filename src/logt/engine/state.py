"""The state of an index: its method and snapshot, and the searches of them."""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from logt._internal.types import Ids, Mask, Metric
from logt.engine.prepared import KnownSearches, PreparedFilter
from logt.engine.protocols import Method, SegmentSearch
from logt.engine.snapshot import Snapshot


@dataclass(frozen=True)
class IndexState:
    """What a search sees: the method, the metric and the snapshot of an index at one moment."""

    method: Method
    metric: Metric
    snapshot: Snapshot

    def search(self, filter: Any = None) -> SegmentSearch:
        """Return the search of all segments with this filter."""
        known = self.known(filter)
        return self._filtered(self.snapshot.visible_rows(filter)) if known is None else known.search

    def prepare(self, filter: Any) -> PreparedFilter:
        """Return a filter for several searches of this state; it shares no memory with what was passed."""
        rows: list[Mask | Ids] = [part.copy() for part in self.snapshot.visible_rows(filter) or ()]
        known = KnownSearches(self._filtered(rows), self.snapshot.to_user_ids)
        return PreparedFilter(self.snapshot.segments, rows, known)

    def _filtered(self, rows: list[Mask | Ids] | None) -> SegmentSearch:
        return self.method.search(self.snapshot.segments, self.metric, rows, None)

    @cached_property
    def _unfiltered(self) -> SegmentSearch:
        return self.method.search(self.snapshot.segments, self.metric, None, self.snapshot.graph)

    def known(self, filter: Any) -> KnownSearches | None:
        """Return the searches of one query that are repeated, without a filter or with a prepared one."""
        if filter is None:
            return self._known
        if not isinstance(filter, PreparedFilter):
            return None
        filter.check(self.snapshot.segments)
        return filter.known

    @cached_property
    def _known(self) -> KnownSearches:
        return KnownSearches(self._unfiltered, self.snapshot.to_user_ids)

    @property
    def graph_bytes(self) -> int:
        """The bytes of the neighbor graph, with what searches on it keep in memory."""
        graph, search = self.snapshot.graph, vars(self).get("_unfiltered")
        return (0 if graph is None else graph.nbytes) + (0 if search is None else search.nbytes)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # without what is cached

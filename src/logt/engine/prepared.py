"""What is prepared once for many searches: searches with the same settings, and filters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from logt._internal.params import SearchKey
from logt._internal.segment import Segment
from logt._internal.types import Array, Ids, Mask
from logt.engine.protocols import SegmentSearch
from logt.errors import InvalidInputError
from logt.results import SearchResult

_KEPT_SEARCHES = 64  # most programs use one


@dataclass(frozen=True, eq=False)
class KnownSearches:
    """Searches of one query that are repeated with the same settings: each is one compiled call.

    to_user_ids: integer ids -> ids as users see them.
    """

    search: SegmentSearch
    to_user_ids: Callable[[Ids], Array]
    kept: dict[SearchKey, Any] = field(default_factory=dict)

    def keep(self, key: SearchKey, k: int, limits: Any) -> None:
        """Prepare a search for the next query with the same settings."""
        search = self.search.prepare(k, limits)
        if search is not None:
            if len(self.kept) >= _KEPT_SEARCHES:
                self.kept.clear()
            self.kept[key] = search

    def repeat(self, key: SearchKey, Q: Any) -> SearchResult | None:
        """Repeat a kept search for another query; None if there is none, or if the query is not valid."""
        search = self.kept.get(key)
        if search is None:
            return None
        if Q.dtype != np.float32 or not Q.flags.c_contiguous:
            with np.errstate(over="ignore"):  # infinity is not valid
                Q = np.ascontiguousarray(Q, np.float32)
        found = search(Q)
        return None if found is None else found.with_ids(self.to_user_ids)


@dataclass(frozen=True, eq=False)
class PreparedFilter:
    """A filter for several searches of one state of an index: see `Index.prepare`.

    segments: of that state. rows: those of each segment that pass. known: the searches of these rows.
    """

    segments: tuple[Segment, ...]
    rows: list[Mask | Ids]
    known: KnownSearches

    def check(self, segments: tuple[Segment, ...]) -> None:
        """Raise InvalidInputError unless the filter was prepared for these segments."""
        if segments is not self.segments:
            raise InvalidInputError("the filter was prepared for another index or state: prepare it again")

    def __len__(self) -> int:
        return sum(int(np.count_nonzero(rows)) if rows.dtype == bool else len(rows) for rows in self.rows)

    def __repr__(self) -> str:
        return f"PreparedFilter({len(self):,} of {sum(segment.count for segment in self.segments):,} vectors)"

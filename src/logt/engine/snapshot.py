"""Snapshots: what an index holds at one moment. A search reads one snapshot; a change makes the next."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from logt._internal.segment import Segment
from logt._internal.types import Array, Floats, Ids, Mask, Metric
from logt._internal.validation import as_int_ids, as_mask, call_filter, check_new_ids, shown, split_mask
from logt.engine.items import Items
from logt.engine.prepared import PreparedFilter
from logt.engine.protocols import Method
from logt.engine.string_ids import StringIds, as_strings, check_distinct
from logt.errors import InvalidInputError
from logt.graph.stored_graph import StoredGraph

_MAX_ID = 1 << 63
_LITTLE_WASTE = 1024  # removed rows that are not worth a change


@dataclass(frozen=True)
class Snapshot:
    """Segments, and the integer id that the next vector gets: ids are never reused.

    If the ids of the index are strings, `strings` maps them to the integers that the segments know. `graph` is the
    neighbor graph, if there is one. `items` are what the vectors show, of all of them or of none.
    """

    segments: tuple[Segment, ...] = ()
    next_id: int = 0
    strings: StringIds | None = None
    graph: StoredGraph | None = None
    items: Items | None = None

    def __len__(self) -> int:
        return sum(segment.count for segment in self.segments)

    # ---------------------------------------------------------------------------------------------------- ids

    @property
    def ids(self) -> Ids:
        """The integer ids of all live vectors."""
        parts = [segment.ids[segment.live] for segment in self.segments]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def __contains__(self, id: object) -> bool:
        number = id
        if self.strings is not None:
            number = self.strings.get(id) if isinstance(id, str) else None
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or not 0 <= number < _MAX_ID:
            return False
        return bool(self.holds(np.array([number], np.int64))[0])

    def holds(self, ids: Ids) -> Array:
        """Return which integer ids are live."""
        found = np.zeros(len(ids), bool)
        for segment in self.segments:
            found |= segment.locate(ids)[1]
        return found

    def to_user_ids(self, ids: Ids) -> Array:
        """Return integer ids as users see them."""
        return ids if self.strings is None else self.strings.to_strings(ids)

    def to_int_ids(self, ids: Any, *, strict: bool = False) -> Ids:
        """Return the integer ids of requested ids; unknown strings are skipped, or refused if `strict`."""
        strings = as_strings(ids)
        if self.strings is None:
            return as_int_ids(ids) if strings is None or len(self) else np.empty(0, np.int64)
        if strings is None and len(np.atleast_1d(np.asarray(list(ids) if isinstance(ids, set | frozenset) else ids))):
            raise InvalidInputError(f"the ids of this index are strings, got {shown(ids)}")
        if strict:
            for string in strings or []:
                if string not in self:
                    raise InvalidInputError(f"id {string!r} is not in the index")
        return self.strings.to_ints(strings or [])

    def assign_ids(self, ids: Any, count: int) -> tuple[Snapshot, Ids]:
        """Return (the snapshot that knows the ids of `count` new vectors, their integer ids)."""
        strings = as_strings(ids)
        if strings is None and self.strings is None:
            return self, check_new_ids(ids, count, self.next_id, self.holds)
        if strings is None or (self.strings is None and len(self)):
            if count == 0:
                return self, np.empty(0, np.int64)
            kind = "integers" if self.strings is None else "strings"
            raise InvalidInputError(
                f"the ids of this index are {kind}: pass {kind}, one for each vector; nothing was added"
            )
        check_distinct(strings, count)
        known = self.strings or StringIds()
        found = np.array([-1 if (n := known.get(string)) is None else n for string in strings], np.int64)
        taken = np.flatnonzero((found >= 0) & self.holds(found))
        if len(taken):
            raise InvalidInputError(f"id {strings[taken[0]]!r} is already in the index; nothing was added")
        if self.next_id + count >= _MAX_ID:
            raise InvalidInputError(f"no {count} ids are left after {self.next_id}; nothing was added")
        ints = np.arange(self.next_id, self.next_id + count, dtype=np.int64)
        return replace(self, strings=known.add(strings, ints)), ints

    def assign_items(self, ids: Ids, items: Any) -> Snapshot:
        """Return the snapshot that knows the items of new vectors."""
        if not len(ids) or (items is None and self.items is None):
            return self
        if items is None or (self.items is None and len(self)):
            have = "no items" if self.items is None else "items"
            raise InvalidInputError(f"the vectors of this index have {have}, and so must new ones; nothing was added")
        return replace(self, items=(self.items or Items()).add(ids, items))

    # ------------------------------------------------------------------------------------------------ changes

    def with_segments(self, segments: tuple[Segment, ...]) -> Snapshot:
        """Return the snapshot with other segments; the ids of those that are new are used up."""
        largest = max((int(segment.ids[-1]) for segment in segments), default=-1)
        return replace(self, segments=segments, next_id=max(self.next_id, largest + 1))

    def remove(self, ids: Ids) -> Snapshot:
        """Return the snapshot without the vectors of these integer ids; a segment with no vectors left is dropped."""
        unique = _distinct(ids)
        left = (segment.remove(unique) for segment in self.segments)
        segments = tuple(segment for segment in left if segment.count)
        if not segments:
            return replace(self, segments=(), strings=None, graph=None, items=None)
        graph = None if self.graph is None else self.graph.remove(unique)
        return replace(self, segments=segments, graph=graph)

    def without_vectors(self) -> Snapshot:
        """Return a snapshot that knows the ids of the vectors, to which these are added again."""
        return replace(self, segments=(), strings=self._strings_in_use, graph=None)

    @property
    def _strings_in_use(self) -> StringIds | None:
        return None if self.strings is None else self.strings.keep(self.ids)

    @property
    def _items_in_use(self) -> Items | None:
        return None if self.items is None else self.items.keep(self.ids)

    def compact(self, segments: tuple[Segment, ...]) -> Snapshot:
        """Return the snapshot with compacted segments, and without what string ids and the graph do not need."""
        graph = None if self.graph is None else self.graph.compact()
        return replace(self, segments=segments, strings=self._strings_in_use, graph=graph, items=self._items_in_use)

    def without_waste(self) -> Snapshot:
        """Return the snapshot without the removed rows of segments, strings and the graph where these are many.

        This takes time in proportion to what is left, so each removal pays for a constant part of it.
        """
        segments = tuple(s.compact() if _is_wasteful(len(s), s.count) else s for s in self.segments)
        strings, graph, items = self.strings, self.graph, self.items
        if items is not None and _is_wasteful(len(items.ids), len(self)):
            items = self._items_in_use
        if strings is not None and _is_wasteful(len(strings), len(self)):
            strings = self._strings_in_use
        if graph is not None and len(graph) > 2 * graph.count + _LITTLE_WASTE:  # walks use removed vectors, too
            graph = graph.compact()
        same = (strings, graph, items) == (self.strings, self.graph, self.items) and segments == self.segments
        return self if same else replace(self, segments=segments, strings=strings, graph=graph, items=items)

    def merge(self, other: Snapshot) -> Snapshot:
        """Return the snapshot with all vectors of another."""
        if not len(other):
            return replace(self, next_id=max(self.next_id, other.next_id))
        if len(self) and (self.strings is None) != (other.strings is None):
            raise InvalidInputError("the ids of one index are strings, of the other integers; nothing was merged")
        if other.strings is not None:
            return self._merge_strings(other, other.strings.keep(other.ids))
        theirs = other.ids
        both = np.sort(theirs[self.holds(theirs)])
        if len(both):
            raise InvalidInputError(f"id {both[0]} is in both indexes; nothing was merged")
        next_id, items = max(self.next_id, other.next_id), self._merge_items(other)
        return replace(self, segments=self.segments + other.segments, next_id=next_id, items=items)

    def _merge_items(self, other: Snapshot, shift: int = 0) -> Items | None:
        """Return the items of both; shift: what is added to the ids of the other."""
        if len(self) and (self.items is None) != (other.items is None):
            raise InvalidInputError("the vectors of one index have items, those of the other have none")
        if other.items is None:
            return None
        return (self.items or Items()).add(other.ids + shift, other.items.to_user_items(other.ids))

    def _merge_strings(self, other: Snapshot, theirs: StringIds) -> Snapshot:
        """Integer ids behind strings are private to an index: those of the other are moved behind ours."""
        mine = self.strings or StringIds()
        both = [string for string, _ in theirs.items() if string in self]
        if both:
            raise InvalidInputError(f"id {min(both)!r} is in both indexes; nothing was merged")
        if self.next_id + other.next_id >= _MAX_ID:
            raise InvalidInputError(f"no ids are left after {self.next_id}; nothing was merged")
        moved = tuple(replace(segment, ids=segment.ids + self.next_id) for segment in other.segments)
        strings, items = mine.append(theirs.shift(self.next_id)), self._merge_items(other, self.next_id)
        next_id = self.next_id + other.next_id
        return replace(self, segments=self.segments + moved, next_id=next_id, strings=strings, items=items)

    # ------------------------------------------------------------------------------------------------ reading

    def reconstruct(self, ids: Ids, dim: int) -> Floats:
        """Return the stored approximations of the vectors with these integer ids."""
        X = np.empty((len(ids), dim), np.float32)
        missing = np.ones(len(ids), bool)
        for segment in self.segments:
            rows, here = segment.locate(ids)
            if here.any():
                X[here] = segment.reconstruct(rows[here])
                missing &= ~here
        if missing.any():
            raise InvalidInputError(f"id {ids[missing][0]} is not in the index")
        return X

    def visible_rows(self, filter: Any) -> list[Mask | Ids] | None:
        """Return the rows of each segment that a search with this filter can find; None means all live ones."""
        if filter is None:
            return None
        if isinstance(filter, PreparedFilter):
            filter.check(self.segments)
            return filter.rows
        if callable(filter):
            passing = [call_filter(filter, self.to_user_ids(segment.ids[segment.live])) for segment in self.segments]
        elif (mask := as_mask(filter)) is not None:
            passing = split_mask(mask, [segment.count for segment in self.segments])
        else:
            ids = self.to_int_ids(filter)
            wanted = _distinct(ids)
            if self.strings is None and len(ids) == len(self) > 2 and wanted[-1] <= 1:
                raise InvalidInputError("the filter has 0 or 1 for each vector, which are ids; pass a mask of bool")
            return [segment.find(wanted) for segment in self.segments]
        visible: list[Mask | Ids] = []
        for segment, mine in zip(self.segments, passing, strict=True):
            rows = mine
            if segment.removed is not None:
                rows = segment.live.copy()
                rows[segment.live] = mine
            visible.append(rows)
        return visible

    def visible_nodes(self, filter: Any) -> Mask | None:
        """Return which rows of the neighbor graph a search with this filter can find; None means all."""
        if self.graph is None or filter is None:
            return None if self.graph is None or self.graph.removed is None else self.graph.live
        if isinstance(filter, PreparedFilter) or callable(filter) or as_mask(filter) is not None:
            segments = zip(self.segments, self.visible_rows(filter) or (), strict=True)
            passing = np.concatenate([np.empty(0, np.int64), *(segment.ids[rows] for segment, rows in segments)])
        else:
            passing = self.to_int_ids(filter)  # also where the segments are in shards
        rows, here = self.graph.locate(passing)
        visible = np.zeros(len(self.graph), bool)
        visible[rows[here]] = True
        return visible


def _distinct(ids: Ids) -> Ids:
    """Return ids in order, each once; np.unique uses a hash table, which is slow for many of them."""
    increasing = np.sort(ids)
    return increasing[np.concatenate([[True], increasing[1:] != increasing[:-1]])] if len(ids) else ids


def _is_wasteful(rows: int, live: int) -> bool:
    """Return whether more than a fifth of many rows are removed ones."""
    return rows > live + live // 4 + _LITTLE_WASTE


def check_snapshot(snapshot: Snapshot, dim: int, metric: Metric, method: Method) -> None:
    """Raise InvalidInputError unless what was read from disk fits together."""
    for segment in snapshot.segments:
        method.check_segment(segment, dim, metric)
    largest = max((segment.ids[-1] for segment in snapshot.segments), default=-1)
    if largest >= snapshot.next_id or not _distinct_ids(snapshot):
        raise InvalidInputError("an id occurs twice, or is not below the next id")
    graph, ids = snapshot.graph, snapshot.ids
    if graph is not None:
        linked = graph.ids[graph.live]
        if not np.array_equal(linked, ids) and not np.isin(linked, ids).all():
            raise InvalidInputError("the neighbor graph does not fit the vectors")
    if snapshot.items is not None and not np.isin(ids, snapshot.items.ids).all():
        raise InvalidInputError("the items do not fit the vectors")
    if snapshot.strings is not None:
        known = np.sort(np.concatenate([layer.ints for layer in snapshot.strings.layers] or [ids[:0]]))
        if (known[1:] == known[:-1]).any() or not np.isin(ids, known).all():
            raise InvalidInputError("the string ids do not fit the vectors")


def _distinct_ids(snapshot: Snapshot) -> bool:
    """Return whether no id occurs twice. The ids of each segment increase; usually they follow those of another."""
    segments = sorted(snapshot.segments, key=lambda segment: int(segment.ids[0]))
    if all(int(before.ids[-1]) < int(after.ids[0]) for before, after in itertools.pairwise(segments)):
        return True
    ids = np.sort(snapshot.ids)
    return bool((ids[1:] > ids[:-1]).all())

"""Snapshots: what an index holds at one moment. A search reads one snapshot; a change makes the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from logt._internal.segment import Segment
from logt._internal.types import Array, Floats, Ids, Mask
from logt._internal.validation import as_int_ids, as_mask, check_new_ids, filter_masks
from logt.engine.string_ids import StringIds, as_strings, check_distinct
from logt.errors import CorruptIndexError, InvalidInputError
from logt.graph.neighbor_graph import LinkState
from logt.group_testing.search import View
from logt.group_testing.segment import CodedSegment
from logt.lists.search import ListSearcher
from logt.lists.segment import ListSegment, compact_segment, merge_segments
from logt.metrics import Metric

_MAX_ID = 1 << 63


@dataclass(frozen=True)
class Snapshot:
    """Segments, and the integer id that the next vector gets: ids are never reused.

    If the ids of the index are strings, `strings` maps them to the integers that the segments know. `links` is the
    neighbor graph, if there is one.
    """

    segments: tuple[Segment, ...] = ()
    next_id: int = 0
    strings: StringIds | None = None
    links: LinkState | None = None

    def __len__(self) -> int:
        return sum(segment.count for segment in self.segments)

    @property
    def coded_segments(self) -> list[CodedSegment]:
        return [segment for segment in self.segments if isinstance(segment, CodedSegment)]

    @property
    def list_segments(self) -> list[ListSegment]:
        return [segment for segment in self.segments if isinstance(segment, ListSegment)]

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
        return bool(self._holds(np.array([number], np.int64))[0])

    def _holds(self, ids: Ids) -> Array:
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
            raise InvalidInputError(f"the ids of this index are strings, got {ids!r}")
        if strict:
            for string in strings or []:
                if string not in self:
                    raise InvalidInputError(f"id {string!r} is not in the index")
        return self.strings.to_ints(strings or [])

    def assign_ids(self, ids: Any, count: int) -> tuple[Snapshot, Ids]:
        """Return (the snapshot that knows the ids of `count` new vectors, their integer ids)."""
        strings = as_strings(ids)
        if strings is None and self.strings is None:
            return self, check_new_ids(
                ids, count, self.next_id, self.ids if ids is not None else np.empty(0, np.int64)
            )
        if strings is None or (self.strings is None and len(self)):
            if count == 0:
                return self, np.empty(0, np.int64)
            kind = "integers" if self.strings is None else "strings"
            raise InvalidInputError(f"the ids of this index are {kind}: pass one for each vector; nothing was added")
        check_distinct(strings, count)
        known = self.strings or StringIds()
        found = np.array([-1 if (n := known.get(string)) is None else n for string in strings], np.int64)
        taken = np.flatnonzero((found >= 0) & self._holds(found))
        if len(taken):
            raise InvalidInputError(f"id {strings[taken[0]]!r} is already in the index; nothing was added")
        if self.next_id + count >= _MAX_ID:
            raise InvalidInputError(f"no {count} ids are left after {self.next_id}; nothing was added")
        ints = np.arange(self.next_id, self.next_id + count, dtype=np.int64)
        return replace(self, strings=known.add(strings, ints)), ints

    # ------------------------------------------------------------------------------------------------ changes

    def add_segments(self, new: Sequence[Segment]) -> Snapshot:
        largest = max((int(segment.ids[-1]) for segment in new), default=-1)
        return replace(self, segments=self.segments + tuple(new), next_id=max(self.next_id, largest + 1))

    def remove(self, ids: Ids) -> Snapshot:
        """Return the snapshot without the vectors of these integer ids; a segment with no vectors left is dropped."""
        unique = np.unique(ids)
        segments = []
        for segment in self.segments:
            rows = segment.find(unique)
            left = segment.remove(rows) if len(rows) else segment
            segments += [left] if left.count else []
        if not segments:
            return replace(self, segments=(), strings=None, links=None)
        links = None if self.links is None else self.links.remove(unique)
        return replace(self, segments=tuple(segments), links=links)

    def without_vectors(self) -> Snapshot:
        """Return a snapshot that knows the ids of the vectors, to which these are added again."""
        return replace(self, segments=(), strings=self._strings_in_use, links=None)

    @property
    def _strings_in_use(self) -> StringIds | None:
        return None if self.strings is None else self.strings.keep(self.ids)

    def compact(self, largest: int | None) -> Snapshot:
        """Free the space of removed vectors; segments with inverted lists that share a codec are merged."""
        groups: list[list[ListSegment]] = []
        growing: dict[int, list[ListSegment]] = {}  # the last group of each codec
        for segment in self.list_segments:
            group = growing.get(id(segment.codec), [])
            if not group or (largest is not None and sum(s.count for s in group) + segment.count > largest):
                group = growing[id(segment.codec)] = []
                groups.append(group)
            group.append(segment)
        merged = [merge_segments(group) if len(group) > 1 else compact_segment(group[0]) for group in groups]
        coded = [segment.compact() for segment in self.coded_segments]
        links = None if self.links is None else self.links.compact()
        return replace(self, segments=(*coded, *merged), strings=self._strings_in_use, links=links)

    def merge(self, other: Snapshot) -> Snapshot:
        """Return the snapshot with all vectors of another."""
        if not len(other):
            return replace(self, next_id=max(self.next_id, other.next_id))
        if len(self) and (self.strings is None) != (other.strings is None):
            raise InvalidInputError("the ids of one index are strings, of the other integers; nothing was merged")
        if other.strings is not None:
            return self._merge_strings(other, other.strings.keep(other.ids))
        both = np.intersect1d(self.ids, other.ids)
        if len(both):
            raise InvalidInputError(f"id {both[0]} is in both indexes; nothing was merged")
        return replace(self, segments=self.segments + other.segments, next_id=max(self.next_id, other.next_id))

    def _merge_strings(self, other: Snapshot, theirs: StringIds) -> Snapshot:
        """Integer ids behind strings are private to an index: those of the other are moved behind ours."""
        mine = self.strings or StringIds()
        both = [string for string, _ in theirs.items() if string in self]
        if both:
            raise InvalidInputError(f"id {min(both)!r} is in both indexes; nothing was merged")
        if self.next_id + other.next_id >= _MAX_ID:
            raise InvalidInputError(f"no ids are left after {self.next_id}; nothing was merged")
        moved = tuple(replace(segment, ids=segment.ids + self.next_id) for segment in other.segments)
        strings = mine.append(theirs.shift(self.next_id))
        return replace(self, segments=self.segments + moved, next_id=self.next_id + other.next_id, strings=strings)

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

    def reconstruct_all(self, dim: int) -> Floats:
        """Return all vectors, at the stored norms."""
        X = self.reconstruct(self.ids, dim)
        norms = [segment.norms[segment.live] for segment in self.coded_segments if segment.norms is not None]
        if norms:
            X *= (np.concatenate(norms) / np.maximum(np.linalg.norm(X, axis=1), np.float32(1e-30)))[:, None]
        return X

    def views(self, filter: Any, *, l2: bool) -> list[View]:
        """Return the segments as a search by decoding with this filter sees them."""
        if filter is None:
            return [View.of_segment(segment, l2=l2) for segment in self.coded_segments]
        masks = self._masks(filter)
        return [View.of_segment(s, l2=l2, allowed=m) for s, m in zip(self.coded_segments, masks, strict=True)]

    def searcher(self, filter: Any = None) -> ListSearcher:
        """Return what a search in the inverted lists with this filter reads."""
        if filter is None:
            return self._unfiltered
        if not callable(filter) and as_mask(filter) is None:
            wanted = np.unique(self.to_int_ids(filter))
            return ListSearcher(self.list_segments, [segment.find(wanted) for segment in self.list_segments])
        return ListSearcher(self.list_segments, self._masks(filter))

    @cached_property
    def _unfiltered(self) -> ListSearcher:
        return ListSearcher(self.list_segments, links=self.links)

    @property
    def graph_bytes(self) -> int:
        """The bytes of the neighbor graph, with what searches on it keep in memory."""
        searcher = vars(self).get("_unfiltered")
        return (0 if self.links is None else self.links.nbytes) + (0 if searcher is None else searcher.graph_bytes)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # without what is cached

    def visible_links(self, filter: Any) -> Mask | None:
        """Return which rows of the neighbor graph a search with this filter can find; None means all."""
        if self.links is None or filter is None:
            return None if self.links is None else self.links.visible
        if not callable(filter) and as_mask(filter) is None:
            allowed = self.to_int_ids(filter)
        else:
            masks = zip(self.segments, self._masks(filter), strict=True)
            allowed = np.concatenate([np.empty(0, np.int64), *(segment.ids[mask] for segment, mask in masks)])
        rows, here = self.links.locate(allowed)
        visible = np.zeros(len(self.links.links), bool)
        visible[rows[here]] = True
        return visible

    def _masks(self, filter: Any) -> list[Mask]:
        """Return which rows of each segment are live and pass a filter."""
        masks = filter_masks(self._int_filter(filter), [(segment.ids, segment.live) for segment in self.segments])
        return [mask & segment.live for mask, segment in zip(masks, self.segments, strict=True)]

    def _int_filter(self, filter: Any) -> Any:
        """Return a filter of string ids as one of integer ids."""
        strings = self.strings
        if strings is None:
            return filter
        if callable(filter):
            return lambda ints: filter(strings.to_strings(ints))
        return filter if as_mask(filter) is not None else self.to_int_ids(filter)


def check_snapshot(snapshot: Snapshot, dim: int, metric: Metric, *, needs_units: bool, needs_lists: bool) -> None:
    """Raise InvalidInputError unless what was read from disk fits together."""
    for segment in snapshot.segments:
        if isinstance(segment, ListSegment) != needs_lists:
            raise InvalidInputError("the inverted lists do not fit the method")
        _check_segment(segment, dim, metric, needs_units)
    ids = check_distinct_ids(snapshot)
    if snapshot.links is not None:
        linked = snapshot.links.links.ids
        linked = linked if snapshot.links.removed is None else linked[~snapshot.links.removed]
        if not np.isin(linked, ids).all():
            raise InvalidInputError("the neighbor graph does not fit the vectors")
    if snapshot.strings is not None:
        known = {number for _, number in snapshot.strings.items()}
        if len(known) != len(snapshot.strings) or not known.issuperset(ids.tolist()):
            raise InvalidInputError("the string ids do not fit the vectors")


@contextmanager
def damage_is_corruption() -> Iterator[None]:
    """Raise CorruptIndexError where values of stored arrays do not fit together."""
    try:
        yield
    except ValueError as error:
        raise CorruptIndexError(f"the files of the index do not fit together: {error}") from error


def check_distinct_ids(snapshot: Snapshot) -> Ids:
    """Return all ids; raise InvalidInputError if one occurs twice or will be given again."""
    ids = snapshot.ids
    if len(np.unique(ids)) != len(ids) or ids.max(initial=-1) >= snapshot.next_id:
        raise InvalidInputError("an id occurs twice, or is not below the next id")
    return ids


def _check_segment(segment: Segment, dim: int, metric: Metric, needs_units: bool) -> None:
    found = dim
    fits = True
    if isinstance(segment, ListSegment):
        found = segment.codec.dim
        fits = (len(segment.bias) > 0, segment.codec.normalized) == (metric != "ip", metric == "cosine")
    elif isinstance(segment, CodedSegment):
        found = segment.codebook.shape[1]
        fits = (segment.norms is not None) == (metric != "cosine")
        if segment.units is None and (needs_units or segment.codes.inverse):
            raise InvalidInputError("a segment has no units")
    if found != dim:
        raise InvalidInputError(f"a segment has dimension {found}, not {dim}")
    if not fits:
        raise InvalidInputError("the norms do not fit the metric")

"""Snapshots: what an index holds at one moment. A search reads one snapshot; a change makes the next."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from logt._types import Array, Floats, Ids
from logt._validation import as_int_ids, as_mask, check_new_ids, filter_masks
from logt.engine.search import View
from logt.engine.segment import Segment, merge_segments
from logt.engine.string_ids import StringIds, as_strings, check_distinct
from logt.errors import InvalidInputError
from logt.stages.inverted_lists import Probe

_MAX_ID = 1 << 63


@dataclass(frozen=True)
class Snapshot:
    """Segments, and the integer id that the next vector gets: ids are never reused.

    If the ids of the index are strings, `strings` maps them to the integers that the segments know.
    """

    segments: tuple[Segment, ...] = ()
    next_id: int = 0
    strings: StringIds | None = None

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

    def add_segments(self, new: list[Segment]) -> Snapshot:
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
        return replace(self, segments=tuple(segments), strings=self.strings if segments else None)

    def compact(self, probe: Probe | None, largest: int | None) -> Snapshot:
        """Free the space of deleted vectors; segments with inverted lists that share a codebook are merged."""
        strings = None if self.strings is None else self.strings.keep(self.ids)
        if probe is None:
            return replace(self, segments=tuple(segment.compact() for segment in self.segments), strings=strings)
        groups: list[list[Segment]] = []
        growing: dict[int, list[Segment]] = {}  # the last group of each codebook
        for segment in self.segments:
            group = growing.get(id(segment.codebook), [])
            if not group or (largest is not None and sum(s.count for s in group) + segment.count > largest):
                group = growing[id(segment.codebook)] = []
                groups.append(group)
            group.append(segment)
        merged = (merge_segments(group, probe) if len(group) > 1 else group[0].compact(probe) for group in groups)
        return replace(self, segments=tuple(merged), strings=strings)

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
        return Snapshot(self.segments + other.segments, max(self.next_id, other.next_id))

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
        return Snapshot(self.segments + moved, self.next_id + other.next_id, strings)

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
        norms = [segment.norms[segment.live] for segment in self.segments if segment.norms is not None]
        if norms:
            X *= (np.concatenate(norms) / np.maximum(np.linalg.norm(X, axis=1), np.float32(1e-30)))[:, None]
        return X

    def views(self, filter: Any, *, l2: bool) -> list[View]:
        """Return the segments as a search with this filter sees them."""
        if filter is None:
            return [View.of_segment(segment, l2=l2) for segment in self.segments]
        allowed = filter_masks(self._int_filter(filter), [(segment.ids, segment.live) for segment in self.segments])
        return [View.of_segment(s, l2=l2, allowed=rows) for s, rows in zip(self.segments, allowed, strict=True)]

    def _int_filter(self, filter: Any) -> Any:
        """Return a filter of string ids as one of integer ids."""
        strings = self.strings
        if strings is None:
            return filter
        if callable(filter):
            return lambda ints: filter(strings.to_strings(ints))
        return filter if as_mask(filter) is not None else self.to_int_ids(filter)


def check_snapshot(snapshot: Snapshot, dim: int, *, needs_norms: bool, needs_units: bool, needs_lists: bool) -> None:
    """Raise InvalidInputError unless what was read from disk fits together."""
    ids = snapshot.ids
    if len(np.unique(ids)) != len(ids) or ids.max(initial=-1) >= snapshot.next_id:
        raise InvalidInputError("an id occurs twice, or is not below the next id")
    for segment in snapshot.segments:
        if segment.codebook.shape[1] != dim:
            raise InvalidInputError(f"a segment has dimension {segment.codebook.shape[1]}, not {dim}")
        if (segment.norms is not None) != needs_norms:
            raise InvalidInputError("the norms do not fit the metric")
        if segment.units is None and (needs_units or segment.codes.inverse):
            raise InvalidInputError("a segment has no units")
        if (segment.lists is not None) != needs_lists:
            raise InvalidInputError("the inverted lists do not fit the method")
    if snapshot.strings is not None:
        known = {number for _, number in snapshot.strings.items()}
        if len(known) != len(snapshot.strings) or not known.issuperset(ids.tolist()):
            raise InvalidInputError("the string ids do not fit the vectors")

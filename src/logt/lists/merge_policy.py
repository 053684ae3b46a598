"""Merge policy: small segments are merged as they accumulate, as in a log-structured merge tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from logt._internal.types import Ids, Mask
from logt.lists.codec import Codec
from logt.lists.segment import ListSegment, merge_segments

RATIO = 4
"""A segment is merged with the next newer one unless it is more than so many times as large."""

MAX_MERGED = 8192
"""Rows of a segment that this makes at most, so that no change takes long. `Index.compact` merges larger ones."""

_NO_IDS = np.empty(0, np.int64)


class Unmerged:
    """Segments of a codec that will be merged: the log of an index is repeated without each merge in between.

    It has what a snapshot needs of segments until then, and is not changed either. gone: ids that were removed since
    the segments should have been merged.
    """

    def __init__(self, parts: Sequence[ListSegment], gone: Ids = _NO_IDS):
        self.parts, self.gone = tuple(parts), gone
        self.codec: Codec = parts[0].codec
        self.ids: Ids = np.sort([part.ids[end] for part in parts for end in (0, -1)])  # the first and the last one
        self._rows = sum(part.count for part in parts)
        self.count = self._rows - len(gone)

    @classmethod
    def of(cls, segments: Sequence[ListSegment | Unmerged]) -> Unmerged:
        """Return the segments as one."""
        parts: list[ListSegment] = []
        for segment in segments:
            parts += [p.remove(segment.gone) for p in segment.parts] if isinstance(segment, Unmerged) else [segment]
        return cls(parts)

    def __len__(self) -> int:
        return self._rows  # after the merge

    def locate(self, ids: Ids) -> tuple[None, Mask]:
        """Return (no rows, whether each id is here)."""
        here = np.any([part.locate(ids)[1] for part in self.parts], axis=0)
        return None, here & ~np.isin(ids, self.gone)

    def remove(self, ids: Ids) -> Unmerged:
        """Return the same without the rows of some ids, which need not be here."""
        return Unmerged(self.parts, np.concatenate([self.gone, ids[self.locate(ids)[1]]]))

    def merged(self) -> ListSegment:
        """Return the segment that all become."""
        return merge_segments(self.parts).remove(self.gone)


Merge = Callable[[Sequence[Any]], Any]


def merge_small(
    segments: Sequence[ListSegment],
    largest: int | None,
    *,
    below: int | None = None,
    merge: Merge = merge_segments,
) -> tuple[ListSegment, ...]:
    """Merge the newest segments while they are of similar size and share a codec, to at most `largest` rows.

    below: merge none of so many rows or more. merge: `Unmerged.of` leaves the work for later.
    """
    merged: list[ListSegment] = list(segments)
    most = MAX_MERGED if largest is None else min(largest, MAX_MERGED)
    while len(merged) > 1:
        older, newer = merged[-2], merged[-1]
        if older.codec is not newer.codec:
            break
        if below is not None and max(older.count, newer.count) >= below:
            break
        if older.count > RATIO * newer.count or older.count + newer.count > most:
            break
        merged[-2:] = [merge([older, newer])]
    return tuple(merged)


def merge_all(segments: Sequence[ListSegment], largest: int | None) -> tuple[ListSegment, ...]:
    """Merge all segments that share a codec, to at most `largest` rows, and free the space of removed rows."""
    groups: list[list[ListSegment]] = []
    growing: dict[int, list[ListSegment]] = {}  # the last group of each codec
    for segment in segments:
        group = growing.get(id(segment.codec), [])
        if not group or (largest is not None and sum(s.count for s in group) + segment.count > largest):
            group = growing[id(segment.codec)] = []
            groups.append(group)
        group.append(segment)
    return tuple(
        group[0] if len(group) == 1 and group[0].removed is None else merge_segments(group) for group in groups
    )

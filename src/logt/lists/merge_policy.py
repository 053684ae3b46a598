"""Tiers: small segments are merged as they accumulate, as in a log-structured merge tree, so that there are few."""

from __future__ import annotations

from collections.abc import Sequence

from logt._internal.segment import Segment
from logt.lists.segment import ListSegment, merge_segments

RATIO = 4
"""A segment is merged with the next newer one unless it is more than so many times as large."""

MAX_MERGED = 8192
"""Rows of a segment that this makes at most, so that no change takes long. `Index.compact` merges larger ones."""


def merge_tiers(segments: Sequence[Segment], largest: int | None, *, below: int | None = None) -> tuple[Segment, ...]:
    """Merge the newest segments while they are of similar size and share a codec, to at most `largest` rows.

    below: merge none of so many rows or more.
    """
    merged = list(segments)
    most = MAX_MERGED if largest is None else min(largest, MAX_MERGED)
    while len(merged) > 1:
        older, newer = merged[-2], merged[-1]
        if not isinstance(older, ListSegment) or not isinstance(newer, ListSegment) or older.codec is not newer.codec:
            break
        if below is not None and max(older.count, newer.count) >= below:
            break
        if older.count > RATIO * newer.count or older.count + newer.count > most:
            break
        merged[-2:] = [merge_segments([older, newer])]
    return tuple(merged)

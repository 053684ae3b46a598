"""Merge policy: small segments are merged as they accumulate, as in a log-structured merge tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from logt.lists.segment import ListSegment, merge_segments

RATIO = 4
"""A segment is merged with the next newer one unless it is more than so many times as large."""

FEW = 256
"""A segment of so few rows is merged with any newer one: this takes less time than to read one more file."""

MAX_MERGED = 8192
"""Rows of a segment that this makes at most, so that no change takes long. `Index.compact` merges larger ones."""

Merge = Callable[[Sequence[Any]], Any]


def merge_small(
    segments: Sequence[ListSegment],
    largest: int | None,
    *,
    below: int | None = None,
    merge: Merge = merge_segments,
) -> tuple[ListSegment, ...]:
    """Merge the newest segments while they are of similar size and share a codec, to at most `largest` rows.

    below: merge none of so many rows or more. merge: of two segments; `Planned.of` leaves the work for later.
    """
    merged: list[ListSegment] = list(segments)
    most = MAX_MERGED if largest is None else min(largest, MAX_MERGED)
    while len(merged) > 1:
        older, newer = merged[-2], merged[-1]
        if older.codec is not newer.codec:
            break
        if below is not None and max(older.count, newer.count) >= below:
            break
        if older.count > max(RATIO * newer.count, FEW) or older.count + newer.count > most:
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

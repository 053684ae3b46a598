"""Repeating a log, (segments, changes) -> segments: all at once, as if the changes were made one by one.

First the numbers of live vectors decide which segments are merged, then each new segment is made in one step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from logt._internal.removals import NEVER, LoggedChange, Removals
from logt._internal.segment import check_ids
from logt._internal.types import Array, Ids
from logt.lists.codec import Codec
from logt.lists.segment import ListSegment, merge_segments

_BY_COLUMN = ("unit", "weight")  # arrays with a column for each vector


class _Part(NamedTuple):
    """Some rows of a segment: a whole one from before the log, or the vectors of one change."""

    segment: ListSegment
    first: int
    end: int
    is_whole: bool


@dataclass
class Planned:
    """A segment that will be made. parts: what of. live: the present number of vectors of each part of the plan."""

    codec: Codec
    parts: tuple[int, ...]
    live: list[int]

    @property
    def count(self) -> int:
        return sum(self.live[part] for part in self.parts)

    @staticmethod
    def of(segments: Sequence[Planned]) -> Planned:
        """Return the segments as one."""
        live = segments[0].live
        parts = tuple(part for segment in segments for part in segment.parts if live[part])
        return replace(segments[0], parts=parts)


Join = Callable[[tuple[Planned, ...], Planned], tuple[Planned, ...]]


def repeat_changes(
    segments: Sequence[ListSegment], log: Sequence[LoggedChange], join: Join, check: Callable[[ListSegment], None]
) -> tuple[tuple[ListSegment, ...], int]:
    """Return the segments after the changes of a log, and how many changes there are up to the last that left none.

    join: returns planned segments with a new one, merged. check: raises unless a segment that was read fits the
    index. Raise one of UNUSABLE, or InvalidInputError, if the log does not fit the segments.
    """
    removals, times = Removals(log), [time for time, change in enumerate(log) if change.kind == "add"]
    parts = [_Part(segment, 0, len(segment), True) for segment in segments]
    parts += _read([log[time] for time in times], check)
    ids = [check_ids(log[time].ids) for time in times]
    added = np.repeat(np.array(times, np.int64), [len(some) for some in ids])
    all_ids = np.concatenate([np.empty(0, np.int64), *ids])
    removed = removals.after(all_ids, added)
    _check_new(segments, removals, all_ids, added, removed)

    lost = _losses(segments, removals, removed, [len(some) for some in ids])
    live = [part.segment.count if part.is_whole else part.end - part.first for part in parts]
    planned, start = _plan(parts, live, log, lost, join)
    kept = iter(np.split(removed == NEVER, np.cumsum([len(some) for some in ids])[:-1])) if ids else iter(())
    rows = [None if part.is_whole else part.first + np.flatnonzero(next(kept)) for part in parts]
    return tuple(_made([(parts[n], rows[n]) for n in plan.parts], removals.ids) for plan in planned), start


def _read(changes: Sequence[LoggedChange], check: Callable[[ListSegment], None]) -> list[_Part]:
    """Return the vectors of each addition. Those that are in no lists yet are read and checked together."""
    together: dict[int, list[int]] = defaultdict(list)
    for number, change in enumerate(changes):
        in_lists = len(change.arrays["starts"]) > 0
        together[-1 - number if in_lists else id(change.model)].append(number)
    found: dict[int, _Part] = {}
    for numbers in together.values():
        sizes = [len(changes[number].ids) for number in numbers]
        ends = np.cumsum(sizes).tolist()
        segment = _joined([changes[number] for number in numbers], ends)
        check(segment)
        found |= {
            n: _Part(segment, end - size, end, False) for n, size, end in zip(numbers, sizes, ends, strict=True)
        }
    return [found[number] for number in range(len(changes))]


def _joined(changes: Sequence[LoggedChange], ends: Sequence[int]) -> ListSegment:
    """Return the vectors of some changes as one segment, whose ids may repeat. ends: the rows after each change."""
    first = changes[0]
    if not isinstance(first.model, Codec):
        raise TypeError("vectors of inverted lists are encoded with a codec")
    if len(changes) == 1:
        return ListSegment.from_arrays(first.model, first.arrays)
    arrays: dict[str, Array] = {
        name: np.concatenate([change.arrays[name] for change in changes], axis=int(name in _BY_COLUMN))
        for name in first.arrays
    }
    starts = np.repeat([0, *ends[:-1]], [len(change.arrays["row"]) for change in changes])
    arrays["row"] = arrays["row"] + starts.astype(np.uint32)
    segment = ListSegment.from_arrays(first.model, {**arrays, "ids": np.arange(ends[-1])})
    return replace(segment, ids=arrays["ids"])


def _check_new(segments: Sequence[ListSegment], removals: Removals, ids: Ids, added: Ids, removed: Ids) -> None:
    """Raise ValueError if a vector is added while its id is in use."""
    order = np.argsort(ids, kind="stable")
    same = ids[order[1:]] == ids[order[:-1]]
    twice = bool((removed[order[:-1]][same] > added[order[1:]][same]).any())
    for segment in segments:
        here = segment.locate(ids)[1]
        twice |= bool((removals.after(ids[here], np.full(int(here.sum()), -1)) > added[here]).any())
    if twice:
        raise ValueError("an id is added twice")


def _losses(
    segments: Sequence[ListSegment], removals: Removals, removed: Ids, sizes: Sequence[int]
) -> dict[int, list[tuple[int, int]]]:
    """Return what each removal takes: (part, number of vectors), ... by the time. removed: of all added vectors."""
    times, parts = [removed], [np.repeat(np.arange(len(sizes)) + len(segments), sizes)]
    if len(removals.ids):
        for number, segment in enumerate(segments):
            times.append(removals.first[segment.locate(removals.ids)[1]])
            parts.append(np.full(len(times[-1]), number))
    time, part = np.concatenate(times), np.concatenate(parts)
    pairs, counts = np.unique(np.stack([time, part])[:, time < NEVER], axis=1, return_counts=True)
    lost = defaultdict(list)
    for when, number, count in zip(*pairs.tolist(), counts.tolist(), strict=True):
        lost[when].append((number, count))
    return lost


def _plan(
    parts: Sequence[_Part], live: list[int], log: Sequence[LoggedChange], lost: Any, join: Join
) -> tuple[tuple[Planned, ...], int]:
    """Return the segments that a log leaves, and how many changes there are up to the last that left none."""
    whole = sum(part.is_whole for part in parts)
    planned = tuple(Planned(part.segment.codec, (n,), live) for n, part in enumerate(parts[:whole]))
    start, new = 0, whole
    for time, change in enumerate(log):
        if change.kind == "add":
            planned = join(planned, Planned(parts[new].segment.codec, (new,), live))
            new += 1
            continue
        for part, count in lost.get(time, ()):
            live[part] -= count
        planned = tuple(segment for segment in planned if segment.count)
        start = start if planned else time + 1
    return planned, start


def _made(parts: Sequence[tuple[_Part, Ids | None]], removed: Ids) -> ListSegment:
    """Return a segment of some parts. removed: the ids that a segment from before the log loses."""
    segments = [part.segment.remove(removed) if part.is_whole else part.segment for part, _ in parts]
    if len(parts) == 1 and parts[0][0].is_whole:
        return segments[0]
    rows = [np.flatnonzero(s.live) if mine is None else mine for s, (_, mine) in zip(segments, parts, strict=True)]
    return merge_segments(segments, rows)

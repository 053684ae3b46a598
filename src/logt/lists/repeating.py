"""Repeating a log, (segments, changes) -> segments: all at once, as if the changes were made one by one.

First the numbers of live vectors decide which segments are merged, then each new segment is made in one step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from logt._internal.removals import NEVER, LoggedChange, Removals
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

    @property
    def vectors(self) -> int:
        return self.segment.count if self.is_whole else self.end - self.first


@dataclass(frozen=True)
class Planned:
    """A segment that will be made. parts: the numbers of what it is made of. count: its present number of vectors."""

    codec: Codec
    parts: tuple[int, ...]
    count: int

    @staticmethod
    def of(segments: Sequence[Planned]) -> Planned:
        """Return the segments as one."""
        parts = tuple(part for segment in segments for part in segment.parts)
        return Planned(segments[0].codec, parts, sum(segment.count for segment in segments))

    def without(self, lost: Mapping[int, int]) -> Planned:
        """Return the segment after a removal. lost: how many vectors some parts have lost."""
        return replace(self, count=self.count - sum(lost.get(part, 0) for part in self.parts))


Join = Callable[[tuple[Planned, ...], Planned], tuple[Planned, ...]]


def repeat_changes(
    segments: Sequence[ListSegment],
    log: Sequence[LoggedChange],
    removals: Removals,
    join: Join,
    check: Callable[[ListSegment], None],
) -> tuple[tuple[ListSegment, ...], int]:
    """Return the segments after the changes of a log, and how many changes there are up to the last that left none.

    join: returns planned segments with a new one, merged. check: raises unless a segment that was read fits the
    index. Raise one of UNUSABLE, or InvalidInputError, if the log does not fit the segments.
    """
    times = [time for time, change in enumerate(log) if change.kind == "add"]
    ids, sizes = _added_ids([log[time].ids for time in times])
    added = np.repeat(np.array(times, np.int64), sizes)
    removed = removals.after(ids, added)
    _check_new(segments, removals, ids, added, removed)
    parts = [_Part(segment, 0, len(segment), True) for segment in segments]
    parts += _read([log[time] for time in times], check)
    planned, start = _plan(parts, log, _losses(segments, removals, removed, sizes), join)
    kept = iter(np.split(removed == NEVER, np.cumsum(sizes)[:-1]))
    rows = [None if part.is_whole else part.first + np.flatnonzero(next(kept)) for part in parts]
    return tuple(_made([(parts[n], rows[n]) for n in plan.parts], removals.ids) for plan in planned), start


def _added_ids(ids: Sequence[Ids]) -> tuple[Ids, list[int]]:
    """Return (the ids of all additions, how many each has); raise ValueError unless those of each increase."""
    sizes, joined = [len(some) for some in ids], np.concatenate([np.empty(0, np.int64), *ids])
    increases = np.append(joined[1:] > joined[:-1], True)
    increases[np.cumsum(sizes, dtype=np.int64) - 1] = True  # the next one is of another addition
    if not all(sizes) or joined.min(initial=0) < 0 or not increases.all():
        raise ValueError("the ids do not increase")
    return joined, sizes


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
    for segment in segments if len(ids) else ():
        if ids.min() > segment.ids[-1]:
            continue
        here = segment.locate(ids)[1]
        twice |= bool((removals.after(ids[here], np.full(int(here.sum()), -1)) > added[here]).any())
    if twice:
        raise ValueError("an id is added twice")


def _losses(
    segments: Sequence[ListSegment], removals: Removals, removed: Ids, sizes: Sequence[int]
) -> dict[int, dict[int, int]]:
    """Return how many vectors each part loses, by the time of the removal. removed: of all added vectors."""
    lost: dict[int, dict[int, int]] = defaultdict(dict)
    if not len(removals.ids):
        return lost
    times, parts = [removed], [np.repeat(np.arange(len(sizes)) + len(segments), sizes)]
    for number, segment in enumerate(segments):
        times.append(removals.first[segment.locate(removals.ids)[1]])
        parts.append(np.full(len(times[-1]), number))
    time, part, most = np.concatenate(times), np.concatenate(parts), len(segments) + len(sizes)
    known = time < NEVER
    pairs, counts = np.unique(time[known] * most + part[known], return_counts=True)
    for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
        lost[pair // most][pair % most] = count
    return lost


def _plan(
    parts: Sequence[_Part], log: Sequence[LoggedChange], lost: Mapping[int, Mapping[int, int]], join: Join
) -> tuple[tuple[Planned, ...], int]:
    """Return the segments that a log leaves, and how many changes there are up to the last that left none."""
    plans = [Planned(part.segment.codec, (n,), part.vectors) for n, part in enumerate(parts)]
    whole = sum(part.is_whole for part in parts)
    planned, start, new = tuple(plans[:whole]), 0, iter(plans[whole:])
    for time, change in enumerate(log):
        if change.kind == "add":
            planned = join(planned, next(new))
        elif time in lost:
            left = (segment.without(lost[time]) for segment in planned)
            planned = tuple(segment for segment in left if segment.count)
            start = start if planned else time + 1
    return planned, start


def _made(parts: Sequence[tuple[_Part, Ids | None]], removed: Ids) -> ListSegment:
    """Return a segment of some parts. removed: the ids that a segment from before the log loses."""
    first = parts[0][0]
    if len(parts) == 1 and first.is_whole:
        return first.segment.remove(removed)
    rows: dict[int, list[Ids]] = defaultdict(list)  # of each segment
    for part, mine in parts:
        rows[id(part.segment)].append(np.flatnonzero(part.segment.remove(removed).live) if mine is None else mine)
    segments = {id(part.segment): part.segment for part, _ in parts}
    return merge_segments(list(segments.values()), [np.concatenate(mine) for mine in rows.values()])

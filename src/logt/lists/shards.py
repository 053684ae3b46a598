"""Shards, (candidates of each shard) -> results: the same ids and scores as a search of all segments in one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from logt._internal.types import Floats, Ids
from logt.lists.codec import Codec
from logt.lists.segment import ListSegment
from logt.lists.visible import VisibleRows


@dataclass(frozen=True, eq=False)
class ListTotals:
    """The vectors of one codec: rows and visible ones of each list, and those that are scanned without lists."""

    rows: Ids
    visible: Ids
    scanned: int

    @classmethod
    def empty(cls, codec: Codec) -> ListTotals:
        return cls(np.zeros(codec.units, np.int64), np.zeros(codec.units, np.int64), 0)

    def __add__(self, other: ListTotals) -> ListTotals:
        return ListTotals(self.rows + other.rows, self.visible + other.visible, self.scanned + other.scanned)


def segment_totals(segment: ListSegment, visible: VisibleRows) -> ListTotals:
    """Return what a segment adds to the totals of its codec."""
    by_list = visible.by_list(segment)
    if by_list is None:
        return replace(ListTotals.empty(segment.codec), scanned=visible.count)
    return ListTotals(np.diff(segment.starts), by_list, 0)


@dataclass(frozen=True)
class Candidates:
    """What a shard found for each query, (nq, at most R) each; what is missing has the key and score -inf and id -1.

    keys: choose the R candidates of all shards. scores: rank those.
    """

    keys: Floats
    scores: Floats
    ids: Ids

    def of(self, queries: slice) -> Candidates:
        """Return those of some queries."""
        return Candidates(self.keys[queries], self.scores[queries], self.ids[queries])


def merge_candidates(parts: Sequence[Candidates], R: int | None, k: int) -> tuple[Floats, Ids]:
    """Return (scores, ids) of the k best candidates of all shards. R: of the R best, as one search keeps them."""
    keys, scores, ids = (
        np.concatenate([getattr(part, name) for part in parts], axis=1) for name in ("keys", "scores", "ids")
    )
    if R is not None:
        best = _first(keys, ids, R)
        scores, ids = np.take_along_axis(scores, best, axis=1), np.take_along_axis(ids, best, axis=1)
    order = _first(scores, ids, k)
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(ids, order, axis=1)


def split_by_bytes(sizes: Sequence[int], budget: int) -> list[list[int]]:
    """Return the segments of each shard: as few shards as the budget allows, of about equal bytes."""
    count = max(1, min(len(sizes), -(-sum(sizes) // budget)))
    while count < len(sizes) and max(sum(sizes[i] for i in shard) for shard in balance(sizes, count)) > budget:
        count += 1
    return balance(sizes, count)


def balance(sizes: Sequence[int], count: int) -> list[list[int]]:
    """Return the segments of each of `count` shards, of about equal bytes."""
    shards: list[list[int]] = [[] for _ in range(count)]
    loads = [0] * count
    for number in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        least = loads.index(min(loads))
        shards[least].append(number)
        loads[least] += sizes[number]
    return [sorted(shard) for shard in shards]


def _first(values: Floats, ids: Ids, count: int) -> Ids:
    """Return the columns of the `count` largest values of each row, equal ones by id."""
    order: Ids = np.lexsort((ids, -values), axis=1)
    return order[:, :count]

"""Near-duplicates: an index of photos -> groups of photos that are scaled, compressed or retouched copies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from logt._threads import Progress
from logt._validation import check_fraction
from logt.engine.neighbor_graph import NeighborGraph
from logt.index import Index
from logt.photos.photo_index import Photos

_NEIGHBORS = 32  # neighbors of each photo that are compared; larger groups are connected through other members


@dataclass(frozen=True)
class DuplicateGroup:
    """Photos that are copies of each other.

    score: the lowest score of the pairs that connect them. names: of the photos, relative to their folder.
    """

    score: float
    names: tuple[str, ...]


def duplicates(
    photos: Photos,
    threshold: float | None = None,
    *,
    threads: int | None = None,
    progress: Progress | bool | None = None,
) -> list[DuplicateGroup]:
    """Return the groups of two or more photos that are near-duplicates; largest groups first.

    photos: an open index of photos.
    threshold: the minimum score of a pair, above 0 and at most 1; default `photos.duplicate_score`: 0.9 for the
    default model, 0.85 for others, 0.95 if the descriptors are not whitened.
    threads: the number of threads; default all cores.
    progress: True draws bars; a function is called as progress(what, done, total).
    """
    threshold = check_fraction("threshold", photos.duplicate_score if threshold is None else threshold)
    index = photos.index  # one state of it, even if `photos` is refreshed meanwhile
    graph = _neighbors(index, threads, progress)
    names: list[str] = graph.ids.tolist()
    groups = _ScoredGroups(len(names))
    rows = np.repeat(np.arange(len(names)), np.diff(graph.starts))
    for at in np.flatnonzero(graph.similarity >= threshold).tolist():
        groups.join(int(rows[at]), int(graph.rows[at]), float(graph.similarity[at]))
    return groups.to_list(names)


def _neighbors(index: Index, threads: int | None, progress: Progress | bool | None) -> NeighborGraph:
    """Return the neighbor graph that is stored, if it is large enough, otherwise a new one."""
    stored = index.links
    wanted = min(_NEIGHBORS, len(index) - 1)
    if stored is not None and len(stored) == len(index) and np.diff(stored.starts).min(initial=wanted) >= wanted:
        return stored
    return index.graph(_NEIGHBORS, threads=threads, progress=progress)


class _ScoredGroups:
    """Disjoint sets of rows (union-find), each with the lowest score that joined two of its parts."""

    def __init__(self, count: int):
        self._parent = np.arange(count)
        self._score = np.ones(count)

    def join(self, a: int, b: int, score: float) -> None:
        """Merge the groups of two rows; do nothing if they are in one group."""
        first, second = sorted((self._root(a), self._root(b)))
        if first != second:
            self._parent[second] = first
            self._score[first] = min(self._score[first], self._score[second], score)

    def to_list(self, names: list[str]) -> list[DuplicateGroup]:
        """Return the groups of two or more rows, by their names; largest groups first."""
        members: dict[int, list[str]] = {}
        for row, name in enumerate(names):
            members.setdefault(self._root(row), []).append(name)
        groups = [
            DuplicateGroup(float(self._score[root]), tuple(sorted(group)))
            for root, group in members.items()
            if len(group) > 1
        ]
        return sorted(groups, key=lambda group: (-len(group.names), -group.score, group.names))

    def _root(self, row: int) -> int:
        while self._parent[row] != row:
            self._parent[row] = self._parent[self._parent[row]]
            row = int(self._parent[row])
        return row

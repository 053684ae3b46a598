"""Near-duplicates: an index of photos -> groups of photos that are scaled, compressed or retouched copies."""

from __future__ import annotations

from collections.abc import Sequence, Set
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from logt._internal.threads import Progress
from logt._internal.validation import check_fraction
from logt._linked_index import stored_or_new_graph
from logt.graph.neighbor_graph import NeighborGraph, scored_groups
from logt.index import Index
from logt.photos.catalog import CATALOG_FILE, Catalog
from logt.photos.photo_index import Photos

_NEIGHBORS = 32  # neighbors of each photo that are compared; larger groups are connected through other members
_APART = "apart"  # the note in the catalog
MAX_APART = 10_000
"""Groups that are remembered as no duplicates."""

MAX_APART_NAMES = 100_000
"""Photos in all these groups; of more, the oldest groups are forgotten."""


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

    Photos that were marked as no duplicates of each other on the page are not connected.

    photos: an open index of photos.
    threshold: the minimum score of a pair, above 0 and at most 1; default `photos.duplicate_score`: 0.9 for the
    default model, 0.85 for others, 0.95 if the descriptors are not whitened.
    threads: the number of threads; default all cores.
    progress: True draws bars; a function is called as progress(what, done, total).
    """
    threshold = check_fraction("threshold", photos.duplicate_score if threshold is None else threshold)
    graph = duplicate_graph(photos.index, threads=threads, progress=progress)
    return duplicate_groups(graph, threshold, read_apart(photos.path))


def duplicate_graph(
    index: Index, *, threads: int | None = None, progress: Progress | bool | None = None
) -> NeighborGraph:
    """Return the graph that groups are read from: the stored one, or a new one."""
    return stored_or_new_graph(index, _NEIGHBORS, _NEIGHBORS, threads=threads, progress=progress)


def duplicate_groups(graph: NeighborGraph, threshold: float, apart: Sequence[Set[str]]) -> list[DuplicateGroup]:
    """Return the groups of photos that pairs of at least this score connect.

    apart: sets of photos that are no duplicates of each other.
    """
    groups = [
        DuplicateGroup(score, tuple(sorted(graph.ids[rows].tolist())))
        for rows, score in scored_groups(_without(graph, apart), threshold)
    ]
    return sorted(groups, key=lambda group: (-len(group.names), -group.score, group.names))


def keep_apart(index_path: Path, names: Sequence[str]) -> None:
    """Remember that photos are no duplicates of each other."""
    new = set(names)

    def add(groups: Any) -> list[list[str]]:
        kept = [*(sorted(group) for group in _to_sets(groups or []) if group != new), sorted(new)][-MAX_APART:]
        while len(kept) > 1 and sum(map(len, kept)) > MAX_APART_NAMES:
            del kept[0]
        return kept

    with closing(Catalog(index_path)) as catalog:
        catalog.change_note(_APART, add)


def read_apart(index_path: Path) -> list[set[str]]:
    """Return the sets of photos that are no duplicates of each other."""
    if not (index_path / CATALOG_FILE).is_file():
        return []
    with closing(Catalog(index_path, create=False)) as catalog:
        return catalog.read_note(_APART, _to_sets) or []


def _to_sets(groups: Any) -> list[set[str]]:
    return [set(map(str, names)) for names in groups]


def _without(graph: NeighborGraph, apart: Sequence[Set[str]]) -> NeighborGraph:
    if not apart:
        return graph
    row, similarity = {name: number for number, name in enumerate(graph.ids.tolist())}, graph.similarity.copy()
    for names in apart:
        rows = [row[name] for name in names if name in row]
        for number in rows:
            mine = slice(graph.starts[number], graph.starts[number + 1])
            similarity[mine][np.isin(graph.rows[mine], rows)] = -np.inf
    return replace(graph, similarity=similarity)

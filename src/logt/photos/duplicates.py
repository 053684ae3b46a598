"""Near-duplicates: an index of photos -> groups of photos that are scaled, compressed or retouched copies."""

from __future__ import annotations

from dataclasses import dataclass

from logt._internal.threads import Progress
from logt._internal.validation import check_fraction
from logt.graph.neighbor_graph import scored_groups
from logt.index import stored_or_new_graph
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
    graph = stored_or_new_graph(index, _NEIGHBORS, _NEIGHBORS, threads=threads, progress=progress)
    groups = [
        DuplicateGroup(score, tuple(sorted(graph.ids[rows].tolist())))
        for rows, score in scored_groups(graph, threshold)
    ]
    return sorted(groups, key=lambda group: (-len(group.names), -group.score, group.names))

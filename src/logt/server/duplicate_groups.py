"""Groups of duplicates on the page: in tiers, the photo to keep first."""

from __future__ import annotations

from dataclasses import dataclass, replace

from logt.graph.neighbor_graph import NeighborGraph
from logt.photos.duplicates import DuplicateGroup, duplicate_groups, read_apart
from logt.server.background import Work
from logt.server.library import Library
from logt.server.photo_collection import PhotoCollection

_TIERS = {"Same picture": 0.3, "Near-duplicates": 1.0, "Similar series": 2.5}
"""The least score of each tier: 1 − so many times the distance of near-duplicates."""


@dataclass(frozen=True)
class DuplicateSearch:
    """A search for duplicates: how far it is, its groups when it is done, or why it failed."""

    threshold: float
    done: int
    total: int
    groups: tuple[DuplicateGroup, ...] | None
    error: str


def find_groups(
    work: Work[NeighborGraph], collection: PhotoCollection, threshold: float | None = None
) -> DuplicateSearch:
    """Return the groups at a threshold, or the state of the work on the graph that they are read from."""
    threshold = collection.photos.duplicate_score if threshold is None else threshold
    groups = None
    if work.value is not None:
        found = duplicate_groups(work.value, threshold, read_apart(collection.photos.path))
        library = collection.state.library
        kept = (replace(group, names=tuple(filter(library.find, group.names))) for group in found)  # since the graph
        groups = tuple(best_first(group, library) for group in kept if len(group.names) > 1)
    return DuplicateSearch(threshold, work.done, work.total, groups, work.error)


def tiers(near: float) -> dict[str, float]:
    """Return the name and the least score of each tier, best first. near: the score of near-duplicates."""
    return {name: round(1 - share * (1 - near), 3) for name, share in _TIERS.items()}


def best_first(group: DuplicateGroup, library: Library) -> DuplicateGroup:
    """Return a group with the photo to keep first: most pixels, a date from the camera, most bytes, oldest."""

    def rank(name: str) -> tuple[int, bool, int, str, int, str]:
        photo = library.find(name)
        if photo is None:
            return 0, True, 0, "", len(name), name
        pixels = photo.width * photo.height
        return -pixels, not photo.taken, -photo.size, library.date(name), len(name), name

    return replace(group, names=tuple(sorted(group.names, key=rank)))

"""Groups of duplicates on the page: in tiers, the photo to keep first."""

from dataclasses import replace

from logt.graph.neighbor_graph import NeighborGraph
from logt.photos.duplicates import DuplicateGroup, duplicate_groups, read_apart
from logt.server.library import Library
from logt.server.photo_collection import PhotoCollection

_TIERS = {"Same picture": 0.3, "Near-duplicates": 1.0, "Similar series": 2.5}
"""The least score of each tier: 1 − so many times the distance of near-duplicates."""


def find_groups(graph: NeighborGraph, collection: PhotoCollection, threshold: float) -> list[DuplicateGroup]:
    """Return the groups of photos that are still there, the photo to keep first. graph: of the photos."""
    library = collection.state.library
    found = duplicate_groups(graph, threshold, read_apart(collection.photos.path))
    kept = (replace(group, names=tuple(filter(library.find, group.names))) for group in found)
    return [best_first(group, library) for group in kept if len(group.names) > 1]


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

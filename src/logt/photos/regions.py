"""Regions: a grid of overlapping parts of a photo, each with a vector of its own in the index.

The vector of the whole photo has the name of the photo as its id. The item of all of them is that name.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from logt._internal.types import Floats
from logt.descriptors import Box
from logt.index import Index
from logt.results import ItemResult

_CORNERS = (0.0, 0.25, 0.5)
BOXES: tuple[Box, ...] = ((0.0, 0.0, 1.0, 1.0), *((x, y, x + 0.5, y + 0.5) for y in _CORNERS for x in _CORNERS))
"""The whole photo, and nine regions of half its width and height."""

WHOLE = BOXES[:1]
"""The whole photo alone."""

_MARK = "\0"  # before the number of a region in an id; no file name contains it


class Match(NamedTuple):
    """A photo that was found, its score, and the region that matched; None for the whole photo."""

    name: str
    score: float
    box: Box | None = None


def boxes(regions: bool) -> Sequence[Box]:
    """Return the parts of a photo that have a vector each."""
    return BOXES if regions else WHOLE


def vector_ids(names: Iterable[str], *, regions: bool) -> list[str]:
    """Return the ids of the vectors of some photos."""
    numbers = range(len(boxes(regions)))
    return [f"{name}{_MARK}{number}" if number else name for name in names for number in numbers]


def has_regions(index: Index) -> bool:
    """Return whether an index of photos has vectors of regions."""
    return index._snapshot.items is not None


def upsert(index: Index, X: Floats, names: Sequence[str], threads: int | None = None) -> None:
    """Add or replace photos. X: one row per photo, or one for each of its regions."""
    regions = len(X) > len(names)
    items = np.repeat(np.array(names, object), len(BOXES)) if regions else None
    index.upsert(X, vector_ids(names, regions=regions), items=items, threads=threads)


def reconstruct(index: Index, names: Sequence[str]) -> Floats:
    """Return the vectors of photos, in one row for each; those of its regions one after the other."""
    return index.reconstruct(vector_ids(names, regions=has_regions(index))).reshape(len(names), -1)


def find(index: Index, x: Floats, k: int, names: Iterable[str] | None = None, **options: object) -> list[Match]:
    """Return the k photos that are most similar to a vector, best first.

    names: only these can be found. options: of `Index.search`.
    """
    regions = has_regions(index)
    wanted = None if names is None else vector_ids(names, regions=regions)
    found = index.search(x, k, filter=wanted, by="item" if regions else "vector", **options)  # type: ignore[arg-type]
    boxes = map(_box_of, found.ids.tolist())
    photos = found.items if isinstance(found, ItemResult) else found.ids
    rows = zip(photos.tolist(), found.scores.tolist(), boxes, strict=True)
    return [Match(*row) for row in rows if row[0] is not None]


def _box_of(id: str | None) -> Box | None:
    """Return the region that an id of a vector names."""
    number = (id or "").partition(_MARK)[2]
    return BOXES[int(number)] if number else None

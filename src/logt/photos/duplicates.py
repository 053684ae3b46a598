"""Near-duplicates, an index of photos -> groups of pictures that are one picture, scaled, compressed or retouched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from logt._threads import Progress, split_range
from logt._validation import check_float, normalize_rows, row_norms
from logt.errors import InvalidInputError
from logt.photos.photo_index import Photos

THRESHOLD = 0.85
"""Copies that were compressed, enlarged, brightened or cut a little score above it, views of one thing below."""

_NEAREST = 32  # neighbours of each picture that are looked at; larger groups hang together through others
_ROWS = 1024


@dataclass(frozen=True)
class Group:
    """Pictures that hang together by scores of at least `score`, by name."""

    score: float
    names: tuple[str, ...]


def duplicates(
    photos: Photos, threshold: float = THRESHOLD, *, threads: int | None = None, progress: Progress | None = None
) -> list[Group]:
    """The groups of two pictures and more that are linked by scores of at least `threshold`; largest groups first."""
    threshold = check_float("threshold", threshold)
    if not 0 < threshold <= 1:
        raise InvalidInputError(f"threshold must be above 0 and at most 1, got {threshold!r}")
    index = photos.index
    names: list[str] = index.ids.tolist()
    number = {name: i for i, name in enumerate(names)}
    parent = np.arange(len(names))
    weakest = np.ones(len(names))
    for part in split_range(len(names), _ROWS):
        rows = index.reconstruct(names[part])
        found = index.search(normalize_rows(rows, row_norms(rows)), min(_NEAREST, len(names)), threads=threads)
        for here, scores, ids in zip(range(part.start, part.stop), found.scores, found.ids, strict=True):
            for score, name in zip(scores.tolist(), ids.tolist(), strict=True):
                if score < threshold:
                    break
                a, b = _root(parent, here), _root(parent, number[name])
                if a != b:
                    parent[max(a, b)] = min(a, b)
                    weakest[min(a, b)] = min(weakest[a], weakest[b], score)
        if progress:
            progress("comparing", part.stop, len(names))
    groups: dict[int, list[str]] = {}
    for here, name in enumerate(names):
        groups.setdefault(_root(parent, here), []).append(name)
    linked = [Group(float(weakest[root]), tuple(sorted(group))) for root, group in groups.items() if len(group) > 1]
    return sorted(linked, key=lambda group: (-len(group.names), -group.score, group.names))


def _root(parent: np.ndarray, i: int) -> int:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = int(parent[i])
    return i

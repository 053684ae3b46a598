"""A photo collection with a known answer: landmarks seen in several views among clustered distractors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from logt._types import Array, Floats
from logt._validation import check_int
from logt.errors import InvalidInputError


@dataclass(frozen=True)
class Collection:
    """X: unit vectors; Q: one unseen view of each landmark; positives[q]: the rows of X that show it."""

    X: Floats
    Q: Floats
    positives: list[Array]


def photo_collection(
    N: int = 20_000,
    dim: int = 512,
    *,
    landmarks: int = 60,
    views: int = 20,
    likeness: tuple[float, float] = (0.3, 0.7),
    scenes: int | None = None,
    clutter: tuple[float, float] = (0.2, 0.7),
    seed: int = 0,
) -> Collection:
    """N descriptors, landmarks · views of them of landmarks, at random rows.

    A view is its landmark's direction, weighted by a likeness drawn between the two given, plus what is its own:
    the less alike, the harder. The rest falls into clusters of uneven size (N/50 `scenes`, alike by `clutter`), as
    photos of one event or kind of scene do: the more alike, the more they distract. Directions have a falling
    spectrum, as descriptors of networks do.
    """
    check_int("N", N), check_int("dim", dim), check_int("landmarks", landmarks), check_int("views", views)
    kinds = max(1, N // 50) if scenes is None else check_int("scenes", scenes)
    for name, (low, high) in {"likeness": likeness, "clutter": clutter}.items():
        if not 0 <= low <= high <= 1:
            raise InvalidInputError(f"{name} must be two rising numbers from 0 to 1, got {(low, high)}")
    rng = np.random.default_rng(seed)
    spread = (np.arange(dim, dtype=np.float32) + dim / 16) ** -0.35

    def directions(count: int) -> Floats:
        return _unit(rng.standard_normal((count, dim), np.float32) * spread)

    seen = min(N, landmarks * views)
    places = directions(landmarks)
    shown = np.arange(seen) % landmarks
    sights = directions(kinds)
    popularity = rng.pareto(1.2, kinds) + 0.05
    scene = rng.choice(kinds, N - seen, p=popularity / popularity.sum())

    views_of = _mixed(places[shown], directions(seen), rng.uniform(*likeness, seen))
    others = _mixed(sights[scene], directions(N - seen), rng.uniform(*clutter, N - seen))
    row_of = rng.permutation(N)
    X = np.empty((N, dim), np.float32)
    X[row_of[:seen]], X[row_of[seen:]] = views_of, others
    Q = _mixed(places, directions(landmarks), np.full(landmarks, sum(likeness) / 2))
    positives = [np.sort(row_of[:seen][shown == q]) for q in range(landmarks)]
    return Collection(X, Q, positives)


def _mixed(shared: Floats, own: Floats, likeness: Array) -> Floats:
    weight = likeness[:, None].astype(np.float32)
    return _unit(weight * shared + np.sqrt(1 - np.square(weight), dtype=np.float32) * own)


def _unit(V: Floats) -> Floats:
    unit: Floats = V / np.linalg.norm(V, axis=1, keepdims=True)
    return unit

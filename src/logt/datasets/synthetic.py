"""A photo collection with a known answer: landmarks seen in several views among clustered distractors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from logt._types import Array, Floats


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
    seed: int = 0,
) -> Collection:
    """N descriptors, landmarks · views of them of landmarks, at random rows.

    A view is its landmark's direction, weighted by a likeness drawn between the two given, plus what is its own.
    The rest falls into clusters of uneven size, as photos of one event or kind of scene do. Directions have a
    falling spectrum, as descriptors of networks do.
    """
    rng = np.random.default_rng(seed)
    spread = (np.arange(dim, dtype=np.float32) + dim / 16) ** -0.35

    def directions(count: int) -> Floats:
        return _unit(rng.standard_normal((count, dim), np.float32) * spread)

    seen = min(N, landmarks * views)
    places = directions(landmarks)
    shown = np.arange(seen) % landmarks
    scenes = directions(max(1, N // 50))
    popularity = rng.pareto(1.2, len(scenes)) + 0.05
    scene = rng.choice(len(scenes), N - seen, p=popularity / popularity.sum())

    views_of = _mixed(places[shown], directions(seen), rng.uniform(*likeness, seen))
    others = _mixed(scenes[scene], directions(N - seen), rng.uniform(0.2, 0.7, N - seen))
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

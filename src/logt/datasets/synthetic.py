"""Synthetic descriptors with a known ground truth: landmarks seen in several views, among clustered distractors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from logt._internal.types import Array, Floats
from logt._internal.validation import check_int
from logt.errors import InvalidInputError

_CLUSTER_SIMILARITY = (0.2, 0.7)  # range of the cosine between a distractor and its cluster


@dataclass(frozen=True)
class SyntheticCollection:
    """X: unit vectors; Q: one new view of each landmark; positives[q]: the rows of X that are views of landmark q."""

    X: Floats
    Q: Floats
    positives: list[Array]


def synthetic_collection(
    N: int = 20_000,
    dim: int = 512,
    *,
    landmarks: int = 60,
    views: int = 20,
    view_similarity: tuple[float, float] = (0.3, 0.7),
    seed: int = 0,
) -> SyntheticCollection:
    """Return N descriptors like those of a photo collection: views of landmarks at random rows, and distractors.

    Distractors are in N / 50 clusters of uneven sizes, as photos of one event are.

    N: the number of vectors; landmarks * views of them show a landmark, the others are distractors.
    dim: their dimension.
    landmarks: the number of landmarks, which is also the number of queries.
    views: the number of views of each landmark.
    view_similarity: range of the cosine between a view and its landmark; lower values are harder.
    seed: the seed of the random numbers.
    """
    for name, count in {"N": N, "dim": dim, "landmarks": landmarks, "views": views}.items():
        check_int(name, count)
    low, high = view_similarity
    if not 0 <= low <= high <= 1:
        raise InvalidInputError(f"view_similarity must be two increasing numbers from 0 to 1, got {(low, high)}")
    rng = np.random.default_rng(seed)
    source = _VectorSource(dim, rng)

    cluster_count = max(1, N // 50)
    view_count = min(N, landmarks * views)
    landmark_vectors = source.directions(landmarks)
    landmark_of = np.arange(view_count) % landmarks
    cluster_vectors = source.directions(cluster_count)
    popularity = rng.pareto(1.2, cluster_count) + 0.05
    cluster_of = rng.choice(cluster_count, N - view_count, p=popularity / popularity.sum())

    landmark_views = source.views(landmark_vectors[landmark_of], view_similarity)
    distractors = source.views(cluster_vectors[cluster_of], _CLUSTER_SIMILARITY)
    rows = rng.permutation(N)
    view_rows = rows[:view_count]
    X = np.empty((N, dim), np.float32)
    X[view_rows], X[rows[view_count:]] = landmark_views, distractors
    Q = source.views(landmark_vectors, ((low + high) / 2, (low + high) / 2))
    return SyntheticCollection(X, Q, [np.sort(view_rows[landmark_of == q]) for q in range(landmarks)])


class _VectorSource:
    """Random unit vectors whose spectrum decays, as that of network descriptors does."""

    def __init__(self, dim: int, rng: np.random.Generator):
        self._rng = rng
        self._spectrum = (np.arange(dim, dtype=np.float32) + dim / 16) ** -0.35

    def directions(self, count: int) -> Floats:
        """Return `count` independent unit vectors."""
        size = (count, len(self._spectrum))
        return _normalize(self._rng.standard_normal(size, np.float32) * self._spectrum)

    def views(self, centers: Floats, similarity: tuple[float, float]) -> Floats:
        """Return one unit vector near each center; its expected cosine with the center is uniform in the range."""
        noise = self.directions(len(centers))
        weight = self._rng.uniform(*similarity, len(centers))[:, None].astype(np.float32)
        return _normalize(weight * centers + np.sqrt(1 - np.square(weight), dtype=np.float32) * noise)


def _normalize(V: Floats) -> Floats:
    normalized: Floats = V / np.linalg.norm(V, axis=1, keepdims=True)
    return normalized

"""Units of similar vectors, X -> units: k-means (Iscen, Amsaleg and Furon 2016)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from logt._internal.kmeans import kmeans
from logt._internal.threads import SERIAL, Workers
from logt._internal.types import Floats
from logt._internal.validation import check_fields, check_float, check_int
from logt.errors import InvalidInputError
from logt.group_testing.grouping import Units


@dataclass(frozen=True)
class KMeans:
    """Assign each vector to the nearest of N / n centroids by direction, which are trained on a random sample.

    n: vectors per unit. rounds: of training. sample: vectors per centroid that it is trained on.
    """

    n: float = 12.5
    rounds: int = 8
    sample: int = 32

    def __post_init__(self) -> None:
        check_fields(self, n=check_float, rounds=check_int, sample=check_int)
        if not 1 <= self.n < math.inf:
            raise InvalidInputError(f"n must be at least 1 and finite, got {self.n!r}")

    def __call__(self, X: Floats, rng: np.random.Generator, workers: Workers = SERIAL) -> Units:
        M = max(1, round(len(X) / self.n))
        label = kmeans(X, M, rng, workers, rounds=self.rounds, sample=self.sample)
        return Units(label[:, None], M)

"""Units of similar vectors, X -> units: k-means, spherical (Iscen, Amsaleg and Furon 2016) or Euclidean."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from logt._internal.threads import SERIAL, Workers, split_range
from logt._internal.types import Floats, Ints
from logt._internal.validation import check_float, check_int, check_positive
from logt.errors import InvalidInputError
from logt.group_testing.grouping import Units
from logt.group_testing.memory_vectors import Mean

_ROWS = 1024  # vectors compared with all centroids together


@dataclass(frozen=True)
class KMeans:
    """Assign each vector to the nearest of M centroids, which are trained on a random sample.

    units: M; by default 4·√N for N vectors, so that comparing a query with the centroids costs as much as scanning
    √N lists, up to a constant. rounds: of training. sample: vectors per centroid that it is trained on. n: sets M to
    N / n instead. spherical: compare directions, with centroids of norm 1; None means yes, except in a codec of
    vectors whose norms differ.
    """

    units: int | None = None
    rounds: int = 8
    sample: int = 32
    n: float | None = None
    spherical: bool | None = None

    def __post_init__(self) -> None:
        check_positive(self, "rounds", "sample")
        if self.units is not None and self.n is not None:
            raise InvalidInputError(f"units={self.units!r} and n={self.n!r} both set the number of units: pass one")
        if self.units is not None:
            object.__setattr__(self, "units", check_int("units", self.units))
        if self.n is not None:
            object.__setattr__(self, "n", check_float("n", self.n))
            if not 1 <= self.n < math.inf:
                raise InvalidInputError(f"n must be at least 1 and finite, got {self.n!r}")

    @property
    def _spherical(self) -> bool:
        return self.spherical is not False

    def count(self, N: int) -> int:
        """Return the number of units for N vectors."""
        if self.n is not None:
            return max(1, round(N / self.n))
        return min(N, self.units or round(4 * N**0.5))

    def __call__(self, X: Floats, rng: np.random.Generator, workers: Workers = SERIAL) -> Units:
        N, M = len(X), self.count(len(X))
        S = X if self.sample * M >= N else X[np.sort(rng.choice(N, self.sample * M, replace=False))]
        centroids = S[rng.choice(len(S), M, replace=False)]
        silent = Workers(workers.threads)  # progress is reported per round
        mean = Mean(normalize=self._spherical)
        for done in range(self.rounds):
            unit, similarity = self._nearest(S, centroids, silent)
            centroids = mean(S, Units(unit[:, None], M), silent)
            empty = np.flatnonzero(np.bincount(unit, minlength=M) == 0)
            centroids[empty] = S[np.argsort(similarity, kind="stable")[: len(empty)]]  # the worst represented
            workers.report("k-means", done + 1, self.rounds)
        return Units(self._nearest(X, centroids, workers)[0][:, None], M)

    def _nearest(self, X: Floats, centroids: Floats, workers: Workers) -> tuple[Ints, Floats]:
        """Return (the nearest centroid of each row, how similar it is)."""
        unit, similarity = np.empty(len(X), np.int32), np.empty(len(X), np.float32)
        half_squares = np.float32(0) if self._spherical else np.square(centroids).sum(axis=1) / 2

        def fill(rows: slice) -> None:
            V = X[rows]
            S = V @ centroids.T - half_squares
            unit[rows] = S.argmax(axis=1)
            similarity[rows] = S.max(axis=1)
            if not self._spherical:
                similarity[rows] -= np.square(V).sum(axis=1) / 2

        workers.map(fill, split_range(len(X), _ROWS))
        return unit, similarity

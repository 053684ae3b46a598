"""Units of similar vectors, X -> units: spherical k-means (Iscen, Amsaleg and Furon 2016)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from logt._threads import SERIAL, Workers, spans
from logt._types import Floats, Ints
from logt.errors import InvalidInputError, at_least_one, real, whole
from logt.stages.grouping import Units
from logt.stages.memory_vectors import Mean

_ROWS = 1024  # vectors compared with all centres together


@dataclass(frozen=True)
class KMeans:
    """Each vector in the unit whose mean direction is nearest. Learned from `sample` vectors a unit, at random.

    `units` is how many are made, or `n` how many vectors they hold on average; without both, 4·√N for N vectors:
    then a query is compared with as many memory vectors, up to a constant, as √N units hold vectors.
    """

    units: int | None = None
    rounds: int = 8
    sample: int = 32
    n: float | None = None

    def __post_init__(self) -> None:
        at_least_one(self, "rounds", "sample")
        if self.units is not None and self.n is not None:
            raise InvalidInputError(f"units={self.units!r} and n={self.n!r} both say how many units: give one")
        if self.units is not None:
            object.__setattr__(self, "units", whole("units", self.units))
        if self.n is not None:
            object.__setattr__(self, "n", real("n", self.n))
            if not 1 <= self.n < math.inf:
                raise InvalidInputError(f"n must be at least 1 and finite, got {self.n!r}")

    def count(self, N: int) -> int:
        """How many units N vectors make."""
        if self.n is not None:
            return max(1, round(N / self.n))
        return min(N, self.units or round(4 * N**0.5))

    def __call__(self, X: Floats, rng: np.random.Generator, workers: Workers = SERIAL) -> Units:
        N, M = len(X), self.count(len(X))
        S = X if self.sample * M >= N else X[np.sort(rng.choice(N, self.sample * M, replace=False))]
        centres = S[rng.choice(len(S), M, replace=False)]
        silent = Workers(workers.threads)  # rounds are what is told, not what is done in each
        for done in range(self.rounds):
            unit, similar = _nearest(S, centres, silent)
            centres = Mean()(S, Units(unit[:, None], M), silent)
            empty = np.flatnonzero(np.bincount(unit, minlength=M) == 0)
            centres[empty] = S[np.argsort(similar, kind="stable")[: len(empty)]]  # those served worst
            workers.tell("units", done + 1, self.rounds)
        return Units(_nearest(X, centres, workers)[0][:, None], M)


def _nearest(X: Floats, centres: Floats, workers: Workers) -> tuple[Ints, Floats]:
    """(the centre most similar to each row, how similar)."""
    unit, similar = np.empty(len(X), np.int32), np.empty(len(X), np.float32)

    def fill(rows: slice) -> None:
        S = X[rows] @ centres.T
        unit[rows] = S.argmax(axis=1)
        similar[rows] = S.max(axis=1)

    workers.each(fill, spans(len(X), _ROWS))
    return unit, similar

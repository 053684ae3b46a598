"""Memory units, X -> units: which vectors are grouped together (section 3.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from logt import _kernels
from logt._internal.kmeans import kmeans, members
from logt._internal.threads import SERIAL, Workers
from logt._internal.types import Floats, Ids, Ints
from logt._internal.validation import check_choice, check_fields, check_float, check_int, check_positive
from logt.errors import InvalidInputError

MIN_UNITS = 16
"""Units made per round at least, if there are as many vectors: fewer could not tell a small batch apart."""


@dataclass(frozen=True)
class Units:
    """The paper's G by vector: `assignment[i]` are the m units of vector i, numbered from 0 to count - 1."""

    assignment: Ints
    count: int

    @cached_property
    def members(self) -> tuple[Ids, Ints]:
        """Return (offsets, rows): unit j holds rows[offsets[j]:offsets[j + 1]], in increasing order."""
        return members(self.assignment, self.count)

    def rows(self, unit: int) -> Ints:
        """Return the rows of one unit."""
        offsets, rows = self.members
        return rows[offsets[unit] : offsets[unit + 1]]


@dataclass(frozen=True)
class Random:
    """m random partitions into units of n vectors, as in Shi et al. (2014)."""

    n: int = 50
    m: int = 4

    def __post_init__(self) -> None:
        check_positive(self, "n", "m")

    def __call__(self, X: Floats, rng: np.random.Generator, workers: Workers = SERIAL) -> Units:
        N = len(X)
        starts = _unit_starts(N, self.n)
        count = len(starts) - 1
        assignment = np.empty((N, self.m), np.int32)
        for r in range(self.m):
            assignment[rng.permutation(N), r] = r * count + np.repeat(np.arange(count), np.diff(starts))
        return Units(assignment, self.m * count)


@dataclass(frozen=True)
class Orthogonal:
    """m partitions into units of n nearly orthogonal vectors.

    Each round cuts a random order of all vectors into chunks of k·n. In a chunk, k units start with one vector each
    and take turns; each takes the free vector that is most orthogonal to its members, by the chosen criterion: the
    smallest maximum of |cos| ("max_abs"), sum of cos² ("sum_squares") or maximum of cos ("max_signed").
    """

    n: int = 50
    m: int = 4
    k: int = 20
    criterion: Literal["max_abs", "sum_squares", "max_signed"] = "max_abs"

    def __post_init__(self) -> None:
        check_positive(self, "n", "m", "k")
        check_choice("criterion", self.criterion, ("max_abs", "sum_squares", "max_signed"))

    def __call__(self, X: Floats, rng: np.random.Generator, workers: Workers = SERIAL) -> Units:
        N = len(X)
        starts = _unit_starts(N, self.n)
        count = len(starts) - 1
        assignment = np.empty((N, self.m), np.int32)
        rounds = [(r, rng.permutation(N)) for r in range(self.m)]
        chunks = np.array_split(np.arange(count), -(-count // self.k))

        def grow(job: tuple[int, Ids, Ids]) -> None:
            r, order, units = job
            chunk = order[starts[units[0]] : starts[units[-1] + 1]]
            assignment[chunk, r] = r * count + units[0] + self._grow(X[chunk], np.diff(starts)[units])

        workers.map(grow, [(r, order, units) for r, order in rounds for units in chunks], "grouping")
        return Units(assignment, self.m * count)

    def _grow(self, V: Floats, sizes: Ids) -> Ints:
        """Return the unit of each row of V, for units of the given sizes."""
        A = V @ V.T
        if self.criterion == "max_abs":
            np.abs(A, out=A)
        elif self.criterion == "sum_squares":
            np.square(A, out=A)
        unit = np.empty(len(V), np.int32)
        _kernels.grow_units(A, sizes.astype(np.int32), self.criterion == "sum_squares", unit)
        return unit


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


def _unit_starts(N: int, n: int) -> Ids:
    """Return where each of the ⌊N/n⌋ (at least MIN_UNITS) units of a round starts; sizes differ by at most one."""
    count = max(N // n, min(N, MIN_UNITS))
    return -(-np.arange(count + 1, dtype=np.int64) * N // count)

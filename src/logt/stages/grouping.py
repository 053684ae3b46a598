"""Memory units, X -> units: which vectors are kept together (section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from logt import _kernels
from logt._threads import SERIAL, Workers
from logt._types import Floats, Ids, Ints
from logt.errors import at_least_one, one_of


@dataclass(frozen=True)
class Units:
    """The paper's G, by vector: `of[i]` are the m units of vector i, numbered from 0 to count - 1."""

    of: Ints
    count: int

    @cached_property
    def members(self) -> tuple[Ids, Ints]:
        """(offsets, rows): unit j holds rows[offsets[j]:offsets[j + 1]], in rising order."""
        flat = self.of.ravel()
        by_unit = np.argsort(flat, kind="stable")
        sizes = np.bincount(flat, minlength=self.count)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return offsets, (by_unit // self.of.shape[1]).astype(np.int32)

    def rows(self, unit: int) -> Ints:
        offsets, rows = self.members
        return rows[offsets[unit] : offsets[unit + 1]]


@dataclass(frozen=True)
class Random:
    """m random partitions into units of n, as Shi et al. (2014)."""

    n: int = 50
    m: int = 4

    def __post_init__(self) -> None:
        at_least_one(self, "n", "m")

    def __call__(self, X: Floats, rng: np.random.Generator, workers: Workers = SERIAL) -> Units:
        N = len(X)
        starts = _unit_starts(N, self.n)
        count = len(starts) - 1
        of = np.empty((N, self.m), np.int32)
        for r in range(self.m):
            of[rng.permutation(N), r] = r * count + np.repeat(np.arange(count), np.diff(starts))
        return Units(of, self.m * count)


@dataclass(frozen=True)
class Orthogonal:
    """m partitions into units of n nearly orthogonal vectors.

    Each round cuts a random order of all vectors into chunks of k·n. In a chunk, k units start from one
    vector each and take turns, each taking the free vector that is most orthogonal to what it holds: least
    in the largest |cos| to its members, in the sum of cos², or in the largest signed cos.
    """

    n: int = 50
    m: int = 4
    k: int = 20
    criterion: Literal["max_abs", "sum_squares", "max_signed"] = "max_abs"

    def __post_init__(self) -> None:
        at_least_one(self, "n", "m", "k")
        one_of("criterion", self.criterion, ("max_abs", "sum_squares", "max_signed"))

    def __call__(self, X: Floats, rng: np.random.Generator, workers: Workers = SERIAL) -> Units:
        N = len(X)
        starts = _unit_starts(N, self.n)
        count = len(starts) - 1
        of = np.empty((N, self.m), np.int32)
        rounds = [(r, rng.permutation(N)) for r in range(self.m)]
        chunks = np.array_split(np.arange(count), -(-count // self.k))

        def grow(job: tuple[int, Ids, Ids]) -> None:
            r, order, units = job
            chunk = order[starts[units[0]] : starts[units[-1] + 1]]
            of[chunk, r] = r * count + units[0] + self._grow(X[chunk], np.diff(starts)[units])

        workers.each(grow, [(r, order, units) for r, order in rounds for units in chunks], "grouping")
        return Units(of, self.m * count)

    def _grow(self, V: Floats, sizes: Ids) -> Ints:
        """The unit of each row of V, units being of the given sizes."""
        A = V @ V.T
        if self.criterion == "max_abs":
            np.abs(A, out=A)
        elif self.criterion == "sum_squares":
            np.square(A, out=A)
        unit = np.empty(len(V), np.int32)
        _kernels.grow_units(A, sizes.astype(np.int32), self.criterion == "sum_squares", unit)
        return unit


@dataclass(frozen=True)
class KdTree:
    """m randomised kd-trees, whose leaves are units of at most n similar vectors (Iscen, Amsaleg and Furon 2016).

    Each node is cut at the median along one of the `axes` coordinates that vary most in a sample of it, taken at
    random, as in FLANN; leaves of one tree differ by at most one vector.
    """

    n: int = 50
    m: int = 1
    axes: int = 5

    def __post_init__(self) -> None:
        at_least_one(self, "n", "m", "axes")

    def __call__(self, X: Floats, rng: np.random.Generator, workers: Workers = SERIAL) -> Units:
        N = len(X)
        count = max(-(-N // self.n), min(N, FEWEST))
        of = np.empty((N, self.m), np.int32)

        def plant(tree: tuple[int, np.random.Generator]) -> None:
            r, own = tree
            of[:, r] = r * count + self._leaves(X, count, own)

        workers.each(plant, list(enumerate(rng.spawn(self.m))), "kd-trees")
        return Units(of, self.m * count)

    def _leaves(self, X: Floats, count: int, rng: np.random.Generator) -> Ints:
        """The leaf of each row, of one tree with `count` leaves."""
        leaf = np.empty(len(X), np.int32)
        nodes = [(np.arange(len(X)), 0, count)]  # rows, and the first and number of their leaves
        while nodes:
            rows, first, leaves = nodes.pop()
            if leaves == 1:
                leaf[rows] = first
                continue
            order = rows[np.argsort(X[rows, self._axis(X, rows, rng)], kind="stable")]
            left = leaves // 2
            middle = -(-len(rows) * left // leaves)
            nodes += [(order[:middle], first, left), (order[middle:], first + left, leaves - left)]
        return leaf

    def _axis(self, X: Floats, rows: Ids, rng: np.random.Generator) -> int:
        sample = rows if len(rows) <= _SAMPLE else rng.choice(rows, _SAMPLE, replace=False)
        variance = X[sample].var(axis=0)
        axes = min(self.axes, X.shape[1])
        widest = np.argpartition(-variance, axes - 1)[:axes]
        return int(rng.choice(np.sort(widest)))


_SAMPLE = 100
"""Vectors of a node whose coordinates are compared, as in FLANN."""

FEWEST = 16
"""Units that a round makes at least, while there are vectors for them: fewer could not tell a small batch apart."""


def _unit_starts(N: int, n: int) -> Ids:
    """Where each of the ⌊N/n⌋ units of a round begins, FEWEST at least: sizes differ by at most one."""
    count = max(N // n, min(N, FEWEST))
    return -(-np.arange(count + 1, dtype=np.int64) * N // count)

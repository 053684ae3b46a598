"""Group testing that keeps the vectors and verifies some of them by their true similarities."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from logt._internal.threads import Workers, split_range
from logt._internal.types import Floats, Ids, Ints
from logt._internal.validation import check_int, check_positive
from logt.baselines.base import BuiltSystem, System, normalize_queries, pad_ids, sample_queries, workers_for
from logt.errors import InvalidInputError
from logt.group_testing.grouping import KdTree, Orthogonal, Random, Units
from logt.group_testing.kmeans import KMeans
from logt.group_testing.memory_vectors import Mean, Pinv, Sum

_TILE = 16  # queries measured together


@dataclass(frozen=True)
class BackPropagation(System):
    """GT of Shi et al. (2014): random units and sums; true similarities correct the estimates of the other vectors.

    A search works in `batches`: it verifies the vectors with the best estimates and subtracts their true similarities
    from the measurements c = G s of their units. The `verified` vectors come first, by true similarity; the others
    follow, by the remaining measurements of their units.

    n: vectors per unit. m: units per vector. batches: of verified vectors, per search.
    """

    n: int = 50
    m: int = 4
    batches: int = 10

    def __post_init__(self) -> None:
        check_positive(self, "n", "m", "batches")

    def _build(self, X: Floats, seed: int, workers: Workers) -> BuiltBackPropagation:
        units = Random(self.n, self.m)(X, np.random.default_rng(seed), workers)
        return BuiltBackPropagation(X, Sum()(X, units, workers), units, self.batches)


@dataclass(frozen=True)
class MemoryVectors(System):
    """Memory vectors of Iscen et al. (2014, 2016): each vector is in one unit, and a search probes some units.

    Units are probed by decreasing score, as many as hold at most `budget` vectors. The members of probed units come
    first, by true similarity; the others follow, by the score of their unit.

    group: X -> units, one per vector. memory: X, units -> memory vectors.
    """

    group: Random | Orthogonal | KMeans | KdTree = field(default_factory=lambda: Random(50, 1))
    memory: Sum | Pinv | Mean = field(default_factory=Pinv)

    def __post_init__(self) -> None:
        if getattr(self.group, "m", 1) != 1:
            raise InvalidInputError(f"each vector is in one unit: m must be 1, got {self.group!r}")

    def _build(self, X: Floats, seed: int, workers: Workers) -> BuiltMemoryVectors:
        units = self.group(X, np.random.default_rng(seed), workers)
        return BuiltMemoryVectors(X, self.memory(X, units, workers), units, seed)


class _BuiltGroupTesting(BuiltSystem):
    """Vectors X, memory vectors Y, and a ranking of one query at a time."""

    def __init__(self, X: Floats, Y: Floats):
        self._X, self._Y = X, Y
        self._N, self._M = len(X), len(Y)
        self.memory_ratio = 1 + self._M / self._N

    @abstractmethod
    def _rank(self, q: Floats, c: Floats, k: int, setting: Any) -> Ids:
        """Return at most k rows, best first, for one query with measurements c."""

    def _search(self, Q: Any, k: int, setting: Any, threads: int) -> Ids:
        queries, k = normalize_queries(Q, self._Y.shape[1]), check_int("k", k)
        out = np.full((len(queries), k), -1, np.int64)

        def fill(tile: slice) -> None:
            for number, c in enumerate(queries[tile] @ self._Y.T, tile.start):
                out[number] = pad_ids(self._rank(queries[number], c, k, setting)[None], k)

        workers_for(threads).map(fill, split_range(len(queries), _TILE))
        return out


class BuiltBackPropagation(_BuiltGroupTesting):
    """GT with back-propagation over a collection."""

    def __init__(self, X: Floats, Y: Floats, units: Units, batches: int):
        super().__init__(X, Y)
        self._assignment: Ints = np.ascontiguousarray(units.assignment.T)  # (m, N)
        self._batches = batches
        self.nbytes = X.nbytes + Y.nbytes + self._assignment.nbytes

    def search(self, Q: Any, k: int, *, verified: int = 1000, threads: int = 1) -> Ids:
        R = min(check_int("verified", verified), self._N)
        batch_sizes = np.diff(np.linspace(0, R, self._batches + 1).astype(int))
        return self._search(Q, k, batch_sizes, threads)

    def rho(self, *, verified: int = 1000) -> float:
        """Count measuring, estimating all (per batch and at the end), verifying, and correcting m units each."""
        m, N, d = len(self._assignment), self._N, self._X.shape[1]
        R = min(verified, N)
        return float(self._M / N + (self._batches + 1) * m / d + R / N + R * m / (d * N))

    def _rank(self, q: Floats, c: Floats, k: int, setting: Ids) -> Ids:
        """Verify as many vectors per batch as `setting` lists."""
        units, remaining = self._assignment, c.astype(np.float64)
        similarity = np.full(self._N, np.nan)
        for size in setting[setting > 0]:
            estimates = sum(remaining[column] for column in units)
            estimates[~np.isnan(similarity)] = -np.inf
            picked = np.sort(np.argpartition(-estimates, size - 1)[:size])
            similarity[picked] = self._X[picked] @ q
            explained = np.tile(similarity[picked], len(units))
            remaining -= np.bincount(units[:, picked].ravel(), explained, minlength=len(remaining))
        verified = np.flatnonzero(~np.isnan(similarity))
        ranking = verified[np.argsort(-similarity[verified], kind="stable")]
        if len(ranking) < k:
            others = np.flatnonzero(np.isnan(similarity))
            estimates = sum(remaining[column[others]] for column in units)
            ranking = np.concatenate([ranking, others[np.argsort(-estimates, kind="stable")]])
        return ranking[:k]


class BuiltMemoryVectors(_BuiltGroupTesting):
    """Memory vectors over a collection; the members of a unit are stored next to each other."""

    def __init__(self, X: Floats, Y: Floats, units: Units, seed: int):
        self._offsets, self._row = units.members
        super().__init__(X[self._row], Y)
        self._sizes = np.diff(self._offsets)
        self._sample = sample_queries(self._X, seed)
        self.nbytes = X.nbytes + Y.nbytes + self._offsets.nbytes + self._row.nbytes

    def search(self, Q: Any, k: int, *, budget: int, threads: int = 1) -> Ids:
        return self._search(Q, k, check_int("budget", budget), threads)

    def rho(self, *, budget: int) -> float:
        """Count the vectors in the units that sample queries probe."""
        scanned = [self._sizes[self._split(c, budget)[0]].sum() for c in self._sample @ self._Y.T]
        return float(self._M / self._N + np.mean(scanned) / self._N)

    def _split(self, scores: Floats, budget: int) -> tuple[Ids, Ids]:
        """Return (the units that are probed, at least one, and the others), by decreasing score."""
        order = np.argsort(-scores, kind="stable")
        count = max(1, int(np.searchsorted(np.cumsum(self._sizes[order]), budget, side="right")))
        return order[:count], order[count:]

    def _rank(self, q: Floats, c: Floats, k: int, setting: int) -> Ids:
        probed, others = self._split(c, setting)
        positions = self._positions(probed)
        rows = self._row[positions]
        ranking = rows[np.lexsort((rows, -(self._X[positions] @ q)))]  # equal similarities by row
        if len(ranking) < k:
            ranking = np.concatenate([ranking, self._row[self._positions(others)]])
        return ranking[:k].astype(np.int64)

    def _positions(self, units: Ids) -> Ids:
        """Return the positions of the members of some units, one unit after the other."""
        starts, sizes = self._offsets[units], self._sizes[units]
        before = np.cumsum(sizes) - sizes
        return np.repeat(starts - before, sizes) + np.arange(sizes.sum())

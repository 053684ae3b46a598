"""Group testing that keeps the vectors and looks at some of them: (X, units) -> a search with true similarities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from logt._threads import Progress, split_range
from logt._types import Array, Floats, Ids, Ints
from logt._validation import check_float, check_int, check_positive
from logt.baselines.base import Built, padded_ids, probes, unit_queries, unit_vectors, workers_for
from logt.errors import InvalidInputError
from logt.stages.grouping import KdTree, Orthogonal, Random
from logt.stages.kmeans import KMeans
from logt.stages.memory_vectors import Mean, Pinv, Sum

_TILE = 16  # queries measured together


@dataclass(frozen=True)
class BackPropagation:
    """GT of Shi et al. (2014): random units and sums; true similarities correct the estimates of the others.

    In `batches`, the vectors of the best estimates are verified, and what they contribute is taken out of the
    measurements c = G s of their units. `verified` vectors lead the ranking by true similarity; the others follow
    by what is left of their units.
    """

    n: int = 50
    m: int = 4
    batches: int = 10
    name: str = "GT back-propagation"

    def __post_init__(self) -> None:
        check_positive(self, "n", "m", "batches")

    def build(
        self, X: Floats, *, seed: int = 0, threads: int | None = None, progress: Progress | None = None
    ) -> Built:
        V, workers = unit_vectors(X), workers_for(threads, progress)
        N, d = V.shape
        units = Random(self.n, self.m)(V, np.random.default_rng(seed), workers)
        Y = Sum()(V, units, workers)
        of = np.ascontiguousarray(units.assignment.T)
        M = units.count

        def search(Q: Any, k: int, *, verified: int = 1000, threads: int = 1) -> Ids:
            R = min(check_int("verified", verified), N)
            sizes = np.diff(np.linspace(0, R, self.batches + 1).astype(int))

            def answer(q: Floats, c: Floats) -> Ids:
                return _back_propagated(V, of, q, c, sizes, check_int("k", k))

            return _one_by_one(Q, k, Y, answer, threads)

        def rho(*, verified: int = 1000) -> float:
            """Measuring, estimating all for each batch and at the end, verifying, and correcting m units each."""
            R = min(verified, N)
            return float(M / N + (self.batches + 1) * self.m / d + R / N + R * self.m / (d * N))

        return Built(search, V.nbytes + Y.nbytes + of.nbytes, 1 + M / N, rho)


@dataclass(frozen=True)
class MemoryVectors:
    """Memory vectors of Iscen et al. (2014, 2016): each vector in one unit; units are opened by how they answer.

    A search opens units by falling score, while they hold at most `budget` vectors, or those that score at least
    `threshold`. Members of opened units are ranked by true similarity, before the others, by that of their unit.
    """

    group: Random | Orthogonal | KMeans | KdTree = field(default_factory=lambda: Random(50, 1))
    memory: Sum | Pinv | Mean = field(default_factory=Pinv)

    def __post_init__(self) -> None:
        if getattr(self.group, "m", 1) != 1:
            raise InvalidInputError(f"each vector is in one unit: m must be 1, got {self.group!r}")

    @property
    def name(self) -> str:
        return f"memory vectors, {type(self.group).__name__}, {type(self.memory).__name__}"

    def build(
        self, X: Floats, *, seed: int = 0, threads: int | None = None, progress: Progress | None = None
    ) -> Built:
        V, workers = unit_vectors(X), workers_for(threads, progress)
        N = len(V)
        units = self.group(V, np.random.default_rng(seed), workers)
        Y = self.memory(V, units, workers)
        offsets, row = units.members
        V = V[row]  # the members of a unit side by side
        M, sizes = units.count, np.diff(offsets)

        def search(
            Q: Any, k: int, *, budget: int | None = None, threshold: float | None = None, threads: int = 1
        ) -> Ids:
            opened = _opening(sizes, budget, threshold)

            def answer(q: Floats, c: Floats) -> Ids:
                first, rest = opened(c)
                places = _places(offsets, first)
                found = row[places][_ranked(V[places] @ q, row[places])]
                if len(found) >= k:
                    return found[:k].astype(np.int64)
                return np.concatenate([found, row[_places(offsets, rest)]])[:k].astype(np.int64)

            return _one_by_one(Q, k, Y, answer, threads)

        def rho(*, budget: int | None = None, threshold: float | None = None) -> float:
            """With some of the vectors as queries: what they open is counted."""
            opened = _opening(sizes, budget, threshold)
            seen = [sizes[opened(c)[0]].sum() for c in sample @ Y.T]
            return float(M / N + np.mean(seen) / N)

        sample = probes(V, seed)
        size = V.nbytes + Y.nbytes + offsets.nbytes + row.nbytes
        return Built(search, size, 1 + M / N, rho)


def _opening(sizes: Ids, budget: int | None, threshold: float | None) -> Callable[[Floats], tuple[Ids, Ids]]:
    """The scores of all units -> (those that are opened, the others), by falling score."""
    if (budget is None) == (threshold is None):
        raise InvalidInputError(f"give a budget or a threshold, got budget={budget!r}, threshold={threshold!r}")
    most = None if budget is None else check_int("budget", budget)
    least = -np.inf if threshold is None else check_float("threshold", threshold)

    def opened(scores: Floats) -> tuple[Ids, Ids]:
        order = np.argsort(-scores, kind="stable")
        if most is not None:
            count = max(1, int(np.searchsorted(np.cumsum(sizes[order]), most, side="right")))
        else:
            count = int((scores >= least).sum())
        return order[:count], order[count:]

    return opened


def _places(offsets: Ids, units: Ids) -> Ids:
    """The places of the members of some units, one unit after the other."""
    starts, sizes = offsets[units], offsets[units + 1] - offsets[units]
    before = np.cumsum(sizes) - sizes
    return np.repeat(starts - before, sizes) + np.arange(sizes.sum())


def _ranked(scores: Array, rows: Array) -> Array:
    """The order of falling scores; equal ones by row."""
    return np.lexsort((rows, -scores))


def _one_by_one(Q: Any, k: int, Y: Floats, answer: Callable[[Floats, Floats], Ids], threads: int) -> Ids:
    """answer(q, its measurements) for each query."""
    queries, k = unit_queries(Q, Y.shape[1]), check_int("k", k)
    out = np.full((len(queries), k), -1, np.int64)

    def fill(tile: slice) -> None:
        for number, c in enumerate(queries[tile] @ Y.T, tile.start):
            out[number] = padded_ids(answer(queries[number], c)[None], k)

    workers_for(threads).map(fill, split_range(len(queries), _TILE))
    return out


def _back_propagated(X: Floats, of: Ints, q: Floats, c: Floats, sizes: Ids, k: int) -> Ids:
    """The best k for one query, verifying so many a batch; of: the units of each vector, (m, N)."""
    N, left = len(X), c.astype(np.float64)
    true = np.full(N, np.nan)
    for size in sizes[sizes > 0]:
        estimates = sum(left[units] for units in of)
        estimates[~np.isnan(true)] = -np.inf
        picked = np.sort(np.argpartition(-estimates, size - 1)[:size])
        true[picked] = X[picked] @ q
        left -= np.bincount(of[:, picked].ravel(), np.tile(true[picked], len(of)), minlength=len(left))
    seen = np.flatnonzero(~np.isnan(true))
    found = seen[np.argsort(-true[seen], kind="stable")]
    if len(found) < k:
        rest = np.flatnonzero(np.isnan(true))
        estimates = sum(left[units[rest]] for units in of)
        found = np.concatenate([found, rest[np.argsort(-estimates, kind="stable")]])
    return found[:k]

"""Group testing that keeps the vectors and verifies some of them by their true similarities."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from logt._internal.threads import Workers, split_range
from logt._internal.types import Floats, Ids, Ints
from logt._internal.validation import check_int, check_positive
from logt.baselines.base import BuiltSystem, System, normalize_queries, pad_ids, workers_for
from logt.group_testing.grouping import Random, Units
from logt.group_testing.memory_vectors import Sum

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

    def _build(self, X: Floats, seed: int, workers: Workers) -> "BuiltBackPropagation":
        units = Random(self.n, self.m)(X, np.random.default_rng(seed), workers)
        return BuiltBackPropagation(X, Sum()(X, units, workers), units, self.batches)


class BuiltBackPropagation(BuiltSystem):
    """Vectors X, memory vectors Y, and the units of each vector."""

    def __init__(self, X: Floats, Y: Floats, units: Units, batches: int):
        self._X, self._Y, self._batches = X, Y, batches
        self._assignment: Ints = np.ascontiguousarray(units.assignment.T)  # (m, N)
        self.memory_ratio = 1 + len(Y) / len(X)
        self.nbytes = X.nbytes + Y.nbytes + self._assignment.nbytes

    def search(self, Q: Any, k: int, *, verified: int = 1000, threads: int = 1) -> Ids:
        queries, k = normalize_queries(Q, self._Y.shape[1]), check_int("k", k)
        R = min(check_int("verified", verified), len(self._X))
        batch_sizes = np.diff(np.linspace(0, R, self._batches + 1).astype(int))
        out = np.full((len(queries), k), -1, np.int64)

        def fill(tile: slice) -> None:
            for number, c in enumerate(queries[tile] @ self._Y.T, tile.start):
                out[number] = pad_ids(self._rank(queries[number], c, k, batch_sizes)[None], k)

        workers_for(threads).map(fill, split_range(len(queries), _TILE))
        return out

    def rho(self, *, verified: int = 1000) -> float:
        """Count measuring, estimating all (per batch and at the end), verifying, and correcting m units each."""
        m, (N, d) = len(self._assignment), self._X.shape
        R = min(verified, N)
        return float(len(self._Y) / N + (self._batches + 1) * m / d + R / N + R * m / (d * N))

    def _rank(self, q: Floats, c: Floats, k: int, batch_sizes: Ids) -> Ids:
        """Return at most k rows, best first, for one query with measurements c."""
        units, remaining = self._assignment, c.astype(np.float64)
        similarity = np.full(len(self._X), np.nan)
        for size in batch_sizes[batch_sizes > 0]:
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

"""Systems that score every vector: exhaustive search, the reference of all figures, and PCA at equal cost.

PCA is the simplest way to make a search cheaper, which other methods should beat.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from logt._internal.threads import Workers, single_threaded_blas, split_range
from logt._internal.types import Floats, Ids
from logt._internal.validation import check_fraction, check_int
from logt.baselines.base import BuiltSystem, System, normalize_queries, pad_ids, workers_for
from logt.group_testing.search import rank_scores

_TILE = 64  # queries scored together
_BLOCK, _PRODUCTS = 4096, 16  # rows that are centred together at least, and products of them at most


class ScoringSystem(BuiltSystem):
    """A system that scores every vector for each query."""

    dim: int

    @abstractmethod
    def scores(self, Q: Floats) -> Floats:
        """Return the score (nq, N) of each vector for some normalized queries."""

    def search(self, Q: Any, k: int, *, threads: int = 1) -> Ids:
        queries, k = normalize_queries(Q, self.dim), check_int("k", k)
        tiles = split_range(len(queries), _TILE)
        ids = workers_for(threads).map(lambda tile: top_k(self.scores(queries[tile]), k), tiles)
        return np.concatenate([np.empty((0, k), np.int64), *ids])


def top_k(scores: Floats, k: int) -> Ids:
    """Return the columns of the k largest scores of each row, equal scores by column, padded with -1."""
    nq, N = scores.shape
    columns = np.broadcast_to(np.arange(N), (nq, N))
    order = rank_scores(np.ascontiguousarray(scores), np.ascontiguousarray(columns), min(k, N))
    return pad_ids(order, k)


@dataclass(frozen=True)
class Exhaustive(System):
    """q·x for all x, in float32 by BLAS."""

    def _build(self, X: Floats, seed: int, workers: Workers) -> BuiltExhaustive:
        return BuiltExhaustive(X)


class BuiltExhaustive(ScoringSystem):
    """The normalized vectors."""

    memory_ratio = 1.0

    def __init__(self, X: Floats):
        self._X, self.dim, self.nbytes = X, X.shape[1], X.nbytes

    def scores(self, Q: Floats) -> Floats:
        # for one query, BLAS is faster with X as the first factor
        return (self._X @ Q[0])[None] if len(Q) == 1 else Q @ self._X.T

    def rho(self) -> float:
        return 1.0


@dataclass(frozen=True)
class PCA(System):
    """Vectors projected on the principal axes of the centred vectors.

    ratio: the complexity ratio of a search, up to 1, from which the number of axes is computed. Vectors are ranked by
    q·mean + Pq·P(x − mean), the best estimate of q·x of this rank.
    """

    ratio: float = 0.25

    def __post_init__(self) -> None:
        object.__setattr__(self, "ratio", check_fraction("ratio", self.ratio))

    def count(self, N: int, d: int) -> int:
        """Return the number of axes: a query is projected on them and compared with N vectors of dimension d."""
        return min(max(int(self.ratio * N * d / (N + d)), 1), d)

    def _build(self, X: Floats, seed: int, workers: Workers) -> BuiltPCA:
        mean: Floats = X.mean(axis=0, dtype=np.float64).astype(np.float32)
        blocks = split_range(len(X), max(_BLOCK, -(-len(X) // _PRODUCTS)))

        def covariance(rows: slice) -> Floats:
            centred = X[rows] - mean
            product: Floats = centred.T @ centred
            return product

        total = np.sum(workers.map(covariance, blocks), axis=0, dtype=np.float64)
        with single_threaded_blas():
            axes = np.linalg.eigh(total)[1].T[::-1]  # by decreasing variance
        P = np.ascontiguousarray(axes[: self.count(*X.shape)], np.float32)
        projected = workers.map(lambda rows: (X[rows] - mean) @ P.T, blocks, "projection")
        return BuiltPCA(P, np.concatenate(projected))


class BuiltPCA(ScoringSystem):
    """The principal axes P (as rows) and the projected vectors."""

    def __init__(self, P: Floats, projected: Floats):
        self._P, self._projected = P, BuiltExhaustive(projected)
        self._N, self.dim = len(projected), P.shape[1]
        self.nbytes = projected.nbytes + P.nbytes
        self.memory_ratio = self.nbytes / (4 * self._N * self.dim)

    def scores(self, Q: Floats) -> Floats:
        return self._projected.scores(Q @ self._P.T)

    def rho(self) -> float:
        return len(self._P) / self.dim + len(self._P) / self._N

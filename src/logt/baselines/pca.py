"""PCA at equal cost: the simplest way to make a search cheaper, which other methods should beat."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from logt._internal.threads import Workers, single_threaded_blas, split_range
from logt._internal.types import Array, Floats
from logt._internal.validation import check_float, check_int
from logt.baselines.base import ScoringSystem, VectorSystem
from logt.errors import InvalidInputError
from logt.group_testing.quantize import Codebook, Float32, Int8

_BLOCK = 4096  # rows whose covariance is computed together


@dataclass(frozen=True)
class PCA(VectorSystem):
    """Vectors projected on the principal axes of the centred vectors, as float32 or int8.

    dims: the number of axes or, as a float up to 1, the complexity ratio from which it is computed. quantize: how the
    projected vectors are stored.

    Vectors are ranked by q·mean + Pq·P(x − mean), the best estimate of q·x of this rank.
    """

    dims: int | float = 0.25
    quantize: Float32 | Int8 = field(default_factory=Float32)

    def __post_init__(self) -> None:
        if isinstance(self.dims, float | np.floating):
            object.__setattr__(self, "dims", check_float("dims", self.dims))
            if not 0 < self.dims <= 1:
                raise InvalidInputError(
                    f"dims, as a complexity ratio, must be above 0 and at most 1, got {self.dims!r}"
                )
        else:
            object.__setattr__(self, "dims", check_int("dims", self.dims))

    @property
    def name(self) -> str:
        return f"PCA {self.dims}" + (" int8" if isinstance(self.quantize, Int8) else "")

    def count(self, N: int, d: int) -> int:
        """Return the number of axes for N vectors of dimension d.

        A ratio limits the cost of projecting a query and scanning N vectors.
        """
        wanted = self.dims if isinstance(self.dims, int) else int(self.dims * N * d / (N + d))
        return min(max(wanted, 1), d)

    def _build(self, X: Floats, seed: int, workers: Workers) -> BuiltPCA:
        N, d = X.shape
        mean: Floats = X.mean(axis=0, dtype=np.float64).astype(np.float32)
        P = np.ascontiguousarray(principal_axes(X, mean, workers)[: self.count(N, d)])
        projected = np.empty((N, len(P)), np.float32)

        def project(rows: slice) -> None:
            np.matmul(X[rows] - mean, P.T, out=projected[rows])

        workers.map(project, split_range(N, _BLOCK), "projection")
        return BuiltPCA(P, self.quantize(projected, np.random.default_rng(seed)))


class BuiltPCA(ScoringSystem):
    """The principal axes P (as rows) and the projected vectors."""

    def __init__(self, P: Floats, projected: Codebook):
        self._P = P
        self._projected = projected
        self._N = projected.shape[0]
        self.dim = P.shape[1]

    def scores(self, Q: Floats) -> Floats:
        return self._projected.measure(Q @ self._P.T)

    @property
    def nbytes(self) -> int:
        return self._projected.nbytes + self._P.nbytes

    @property
    def memory_ratio(self) -> float:
        return self.nbytes / (4 * self._N * self.dim)

    def rho(self) -> float:
        return len(self._P) / self.dim + len(self._P) / self._N


def principal_axes(X: Floats, mean: Floats, workers: Workers) -> Floats:
    """Return the eigenvectors (d, d) of the covariance as rows, by decreasing variance."""

    def covariance(rows: slice) -> Array:
        centred = X[rows] - mean
        product: Array = centred.T @ centred
        return product

    total: Any = np.zeros((X.shape[1], X.shape[1]))
    for group in split_range(len(X), _BLOCK * workers.threads):
        blocks = [
            slice(group.start + s.start, group.start + s.stop) for s in split_range(group.stop - group.start, _BLOCK)
        ]
        for product in workers.map(covariance, blocks):
            total += product
    with single_threaded_blas():
        _, axes = np.linalg.eigh(total)
    return np.ascontiguousarray(axes.T[::-1], np.float32)

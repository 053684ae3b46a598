"""PCA at equal cost: the plainest way to make a search cheaper, which any other has to beat."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from logt._threads import Progress, Workers, single_threaded_blas, split_range
from logt._types import Array, Floats
from logt._validation import check_float, check_int
from logt.baselines.base import Built, by_tile, unit_vectors, workers_for
from logt.errors import InvalidInputError
from logt.stages.quantize import Float32, Int8

_ROWS = 4096  # vectors whose covariance is summed together


@dataclass(frozen=True)
class PCA:
    """The main directions of the centred vectors, and each vector's part along them, as float32 or int8.

    `dims` is their number or, as a float up to 1, the complexity ratio that decides it. The ranking is that of
    q·mean + Pq·P(x − mean), the best estimate of q·x of this rank.
    """

    dims: int | float = 0.25
    quantize: Float32 | Int8 = field(default_factory=Float32)

    def __post_init__(self) -> None:
        if isinstance(self.dims, float | np.floating):
            object.__setattr__(self, "dims", check_float("dims", self.dims))
            if not 0 < self.dims <= 1:
                raise InvalidInputError(
                    f"dims, as a part of the cost, must be above 0 and at most 1, got {self.dims!r}"
                )
        else:
            object.__setattr__(self, "dims", check_int("dims", self.dims))

    @property
    def name(self) -> str:
        return f"PCA {self.dims}" + (" int8" if isinstance(self.quantize, Int8) else "")

    def count(self, N: int, d: int) -> int:
        """How many directions: projecting a query and reading N vectors then cost what is wanted."""
        wanted = self.dims if isinstance(self.dims, int) else int(self.dims * N * d / (N + d))
        return min(max(wanted, 1), d)

    def build(
        self, X: Floats, *, seed: int = 0, threads: int | None = None, progress: Progress | None = None
    ) -> Built:
        V, workers = unit_vectors(X), workers_for(threads, progress)
        N, d = V.shape
        mean: Floats = V.mean(axis=0, dtype=np.float64).astype(np.float32)
        P = np.ascontiguousarray(main_directions(V, mean, workers)[: self.count(N, d)])
        kept = np.empty((N, len(P)), np.float32)

        def project(rows: slice) -> None:
            np.matmul(V[rows] - mean, P.T, out=kept[rows])

        workers.map(project, split_range(N, _ROWS), "projection")
        memory = self.quantize(kept, np.random.default_rng(seed))
        rho = len(P) / d + len(P) / N
        return Built(
            search=by_tile(d, lambda Q: memory.measure(Q @ P.T)),
            bytes=memory.nbytes + P.nbytes,
            memory=(memory.nbytes + P.nbytes) / V.nbytes,
            rho=lambda: rho,
        )


def main_directions(X: Floats, mean: Floats, workers: Workers) -> Floats:
    """The eigenvectors (d, d) of the covariance as rows, by falling variance."""

    def covariance(rows: slice) -> Array:
        centred = X[rows] - mean
        product: Array = centred.T @ centred
        return product

    total: Any = np.zeros((X.shape[1], X.shape[1]))
    for group in split_range(len(X), _ROWS * workers.threads):
        parts = [
            slice(group.start + s.start, group.start + s.stop) for s in split_range(group.stop - group.start, _ROWS)
        ]
        for product in workers.map(covariance, parts):
            total += product
    with single_threaded_blas():
        _, directions = np.linalg.eigh(total)
    return np.ascontiguousarray(directions.T[::-1], np.float32)

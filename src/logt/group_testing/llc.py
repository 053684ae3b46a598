"""Locality-constrained linear coding, (X, Ŷ) -> U: affine combinations of the nearest memory vectors (Wang 2010)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from logt._internal.arrays import unit_dtype
from logt._internal.threads import SERIAL, Workers, split_range
from logt._internal.types import Array, Floats
from logt._internal.validation import check_fields, check_int, check_ridge
from logt.group_testing.codes import Codes
from logt.group_testing.grouping import Units

_ROWS = 128  # vectors encoded by one task


@dataclass(frozen=True)
class LocalityConstrained:
    """The L nearest memory vectors, with weights of sum 1 that make their combination closest to the vector.

    With Z = y − x for each of them, (ZZᵀ + ridge · trace · I) w = 1, and w is then divided by its sum.
    """

    L: int = 10
    ridge: float = 1e-4

    def __post_init__(self) -> None:
        check_fields(self, L=check_int, ridge=check_ridge)

    def __call__(self, X: Floats, Y: Floats, units: Units, workers: Workers = SERIAL) -> Codes:
        L = min(self.L, len(Y))
        squares = np.square(Y).sum(axis=1)
        unit = np.empty((len(X), L), unit_dtype(len(Y)))
        weight = np.empty((len(X), L), np.float32)

        def fill(rows: slice) -> None:
            nearness = X[rows] @ Y.T - squares / 2
            nearest = np.argpartition(-nearness, L - 1, axis=1)[:, :L]
            w = self._weights(Y[nearest] - X[rows, None])
            order = np.argsort(-np.abs(w), axis=1, kind="stable")
            unit[rows] = np.take_along_axis(nearest, order, axis=1)
            weight[rows] = np.take_along_axis(w, order, axis=1)

        workers.map(fill, split_range(len(X), _ROWS), "decoder")
        return Codes.from_matrices(unit, weight, np.ones(len(X), np.float32))

    def _weights(self, Z: Array) -> NDArray[np.float64]:
        """Solve for the weights. Z: (rows, L, d), the differences y − x."""
        gram = (Z @ Z.transpose(0, 2, 1)).astype(np.float64)
        trace = np.trace(gram, axis1=1, axis2=2)
        gram += (self.ridge * np.maximum(trace, 1e-12))[:, None, None] * np.eye(Z.shape[1])
        w = np.linalg.solve(gram, np.ones((*gram.shape[:2], 1)))[:, :, 0]
        normalized: NDArray[np.float64] = w / w.sum(axis=1, keepdims=True)
        return normalized

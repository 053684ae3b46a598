"""Memory vectors, (X, units) -> Y: one vector that represents a unit (eqs. 3 and 7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from logt._internal.kmeans import for_each_group, normalized_sum
from logt._internal.threads import SERIAL, Workers
from logt._internal.types import Array, Floats
from logt._internal.validation import check_fields, check_ridge
from logt.group_testing.grouping import Units


@dataclass(frozen=True)
class Sum:
    """y_j is the sum of its members, so that the measurements are exactly c = G s."""

    def __call__(self, X: Floats, units: Units, workers: Workers = SERIAL) -> Floats:
        return _for_each_unit(lambda V: V.sum(axis=0, dtype=np.float64), X, units, workers)


@dataclass(frozen=True)
class Pinv:
    """y_j has inner product 1 with each of its members: y_j = X_jᵀ (X_j X_jᵀ + ridge·I)⁻¹ 1.

    The ridge keeps y_j bounded when members are equal or nearly equal.
    """

    ridge: float = 1e-6

    def __post_init__(self) -> None:
        check_fields(self, ridge=check_ridge)

    def __call__(self, X: Floats, units: Units, workers: Workers = SERIAL) -> Floats:
        return _for_each_unit(self._solve, X, units, workers)

    def _solve(self, V: Floats) -> Array:
        V64 = V.astype(np.float64)
        gram = V64 @ V64.T
        gram[np.diag_indices_from(gram)] += self.ridge
        return np.linalg.solve(gram, np.ones(len(V))) @ V64


@dataclass(frozen=True)
class Mean:
    """y_j is the direction of the mean of its members, of norm 1; 0 if there are none."""

    def __call__(self, X: Floats, units: Units, workers: Workers = SERIAL) -> Floats:
        return _for_each_unit(normalized_sum, X, units, workers)


def _for_each_unit(function: Callable[[Floats], Array], X: Floats, units: Units, workers: Workers) -> Floats:
    return for_each_group(function, X, *units.members, workers, "memory vectors")

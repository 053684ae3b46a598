"""Memory vectors, (X, units) -> Y: one vector that answers for a whole unit (eqs. 3 and 7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from logt._threads import SERIAL, Workers, spans
from logt._types import Array, Floats
from logt.errors import InvalidInputError, real
from logt.stages.grouping import Units


@dataclass(frozen=True)
class Sum:
    """y_j is the sum of its members, so that the measurements are exactly c = G s."""

    def __call__(self, X: Floats, units: Units, workers: Workers = SERIAL) -> Floats:
        return _by_unit(lambda V: V.sum(axis=0, dtype=np.float64), X, units, workers)


@dataclass(frozen=True)
class Pinv:
    """y_j answers 1 to each of its members: y_j = X_jᵀ (X_j X_jᵀ + ridge·I)⁻¹ 1.

    The ridge is what makes equal and nearly equal members share one answer instead of blowing up.
    """

    ridge: float = 1e-6

    def __post_init__(self) -> None:
        object.__setattr__(self, "ridge", real("ridge", self.ridge))
        if not self.ridge > 0:
            raise InvalidInputError(f"ridge must be above 0, got {self.ridge!r}")

    def __call__(self, X: Floats, units: Units, workers: Workers = SERIAL) -> Floats:
        return _by_unit(self._of, X, units, workers)

    def _of(self, V: Floats) -> Array:
        V64 = V.astype(np.float64)
        gram = V64 @ V64.T
        gram[np.diag_indices_from(gram)] += self.ridge
        return np.linalg.solve(gram, np.ones(len(V))) @ V64


@dataclass(frozen=True)
class Mean:
    """y_j is the mean direction of its members, of length 1; 0 where there are none."""

    def __call__(self, X: Floats, units: Units, workers: Workers = SERIAL) -> Floats:
        return _by_unit(_direction, X, units, workers)


def _direction(V: Floats) -> Array:
    total: Array = V.sum(axis=0, dtype=np.float64)
    total /= max(float(np.linalg.norm(total)), 1e-12)
    return total


def _by_unit(of: Callable[[Floats], Array], X: Floats, units: Units, workers: Workers) -> Floats:
    Y = np.empty((units.count, X.shape[1]), np.float32)

    def fill(block: slice) -> None:
        for j in range(block.start, block.stop):
            Y[j] = of(X[units.rows(j)])

    _ = units.members  # made once, before the threads ask for it
    workers.each(fill, spans(units.count, 64), "memory vectors")
    return Y

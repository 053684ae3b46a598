"""The nearest units, (rows, units) -> for each row the nearest unit, and those with the highest products.

Rows and units are compared as int8, which is exact enough to rank them, and several times as fast as float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from logt import _kernels
from logt._internal.int8 import to_int8
from logt._internal.types import Array, Floats
from logt._internal.validation import row_norms

_FEW_DIMS = 64  # up to so many, float32 is as fast, and int8 is too coarse for units that are close to each other
_NO_LISTS = (np.empty(0, np.int64), np.empty(0, np.uint32), np.empty((0, 0), np.uint32))

Rows = NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class Nearest:
    """Of each row: the nearest unit and its value, x·y − ‖y‖²/2, and the units with the highest products.

    unit, product: (rows, k), the products with units scaled to norm 1. The nearest unit is one of them. counts: of
    them; the others are undefined.
    """

    nearest: Rows
    value: Floats
    unit: Rows
    product: Floats
    counts: NDArray[np.int32]


class UnitFinder:
    """Finds the units nearest to rows.

    unit_norm: all units count as of norm 1, whatever it is.
    """

    def __init__(self, Y: Floats, *, unit_norm: bool = False):
        norms = row_norms(Y).astype(np.float32)
        atoms = (Y / np.where(norms > 0, norms, 1)[:, None]).astype(np.float32)
        self.unit_norm = unit_norm
        self.norm = np.ones_like(norms) if unit_norm else norms
        self._atoms = atoms if Y.shape[1] <= _FEW_DIMS else None
        self._codes, self._scale = to_int8(atoms)

    def find(self, X: Floats, k: int = 0) -> Nearest:
        """Return the nearest unit of each row, and the k units with the highest products."""
        return self._find_exactly(X, k) if self._atoms is not None else self._compare(X, k)

    def find_among(self, X: Floats, units: Rows) -> Nearest:
        """Return the nearest of some units of each row, (rows, k)."""
        if self._atoms is not None:
            return self.find(X)
        N, k = units.shape
        lists = np.arange(N + 1) * k, units.ravel(), np.arange(N, dtype=np.uint32)[:, None]
        return self._compare(X, 0, lists)

    def _compare(self, X: Floats, k: int, lists: tuple[Array, Rows, Rows] = _NO_LISTS) -> Nearest:
        return self._compare_codes(*to_int8(X), k, lists)

    def _compare_codes(self, codes: Array, scale: Floats, k: int, lists: tuple[Array, Rows, Rows]) -> Nearest:
        N, k = len(codes), min(k, len(self._codes))
        found = Nearest(
            np.zeros(N, np.uint32),
            np.full(N, -np.inf, np.float32),
            np.zeros((N, k), np.uint32),
            np.zeros((N, k), np.float32),
            np.zeros(N, np.int32),
        )
        _kernels.nearest_units(
            *(codes, scale, self._codes, self._scale, self.norm, *lists),
            *(found.nearest, found.value, found.unit, found.product, found.counts),
        )
        return found

    def _find_exactly(self, X: Floats, k: int) -> Nearest:
        """Return what `find` does, computed in float32."""
        assert self._atoms is not None
        N, k = len(X), min(k, len(self._atoms))
        products: Floats = X @ self._atoms.T
        values = (products - self.norm / 2) * self.norm
        nearest = values.argmax(axis=1)
        ranked = -products
        ranked[np.arange(N), nearest] = -np.inf
        unit = np.argpartition(ranked, k - 1, axis=1)[:, :k] if k else np.empty((N, 0), np.int64)
        return Nearest(
            nearest.astype(np.uint32),
            values[np.arange(N), nearest],
            unit.astype(np.uint32),
            np.take_along_axis(products, unit, axis=1),
            np.full(N, k, np.int32),
        )

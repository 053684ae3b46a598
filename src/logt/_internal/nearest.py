"""The nearest units, (rows, units) -> for each row the nearest unit, and those with the highest products.

Rows and units are compared as int8, which is exact enough to rank them, and several times as fast as float32. Where
there are many of both, units are grouped, and a row is compared with those of the nearest groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from logt import _kernels
from logt._internal.int8 import Bytes, to_int8
from logt._internal.threads import Workers, single_threaded_blas, split_range
from logt._internal.types import Array, Floats
from logt._internal.validation import row_norms

_FEW_DIMS = 64  # up to so many, float32 is as fast, and int8 is too coarse for units that are close to each other
_MANY = 2048  # units; up to so many, a row is compared with all
_GROUPED = 3  # times √M groups of M units
_GROUPS = 10  # whose units a row is compared with
_EXPANDED, _NEIGHBORS = 8, 64  # units found first whose neighbors are compared too, and how many of each
_NO_LISTS = (np.empty(0, np.int64), np.empty(0, np.uint32), np.empty((0, 0), np.uint32))

Rows = NDArray[np.uint32]
Lists = tuple[Array, Rows, Rows]
"""(starts, units, lists): row i is compared with the units of lists[i]; list j is units[starts[j]:starts[j + 1]]."""


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

    @classmethod
    def none(cls, rows: int, k: int) -> Nearest:
        """Return where nothing was found yet."""
        value, counts = np.full(rows, -np.inf, np.float32), np.zeros(rows, np.int32)
        unit, product = np.zeros((rows, k), np.uint32), np.zeros((rows, k), np.float32)
        return cls(np.zeros(rows, np.uint32), value, unit, product, counts)


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

    @property
    def atoms(self) -> Floats:
        """The units, scaled to norm 1."""
        atoms: Floats = self._codes * self._scale[:, None]
        return atoms

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

    def grouped(self, rows: int, workers: Workers) -> UnitFinder | GroupedUnits:
        """Return what finds units near so many rows sooner, if they are many."""
        return GroupedUnits(self, workers) if rows >= len(self._codes) > _MANY and self._atoms is None else self

    def _compare(self, X: Floats, k: int, lists: Lists = _NO_LISTS) -> Nearest:
        found = Nearest.none(len(X), min(k, len(self._codes)))
        self.improve(found, *to_int8(X), lists)
        return found

    def improve(self, found: Nearest, codes: Bytes, scale: Floats, lists: Lists = _NO_LISTS) -> None:
        """Add to what was found what is nearer among the units of some lists, or among all."""
        _kernels.nearest_units(
            *(codes, scale, self._codes, self._scale, self.norm, *lists),
            *(found.nearest, found.value, found.unit, found.product, found.counts),
        )

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


class GroupedUnits:
    """Finds units near rows in the nearest groups of units, and among the neighbors of the best that are there."""

    def __init__(self, units: UnitFinder, workers: Workers):
        self._units = units
        atoms = units.atoms
        M, G = len(atoms), round(_GROUPED * len(atoms) ** 0.5)
        centers = atoms[np.random.default_rng(0).choice(M, G, replace=False)]
        for _ in range(4):
            self._centers = UnitFinder(centers, unit_norm=True)
            group = self._centers.find(atoms).nearest
            with single_threaded_blas():
                centers = (group == np.arange(G)[:, None]).astype(np.float32) @ atoms
        self._starts = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=G))]).astype(np.int64)
        self._members = np.argsort(group, kind="stable").astype(np.uint32)
        near = workers.map(lambda part: units.find(atoms[part], _NEIGHBORS).unit, split_range(M, 256))
        self._neighbors = np.arange(M + 1) * _NEIGHBORS, np.concatenate(near).ravel()

    def find(self, X: Floats, k: int = 0) -> Nearest:
        """Return about the nearest unit of each row, and the k units with the highest products."""
        codes, scale = to_int8(X)
        groups = Nearest.none(len(X), _GROUPS)
        self._centers.improve(groups, codes, scale)
        found = Nearest.none(len(X), max(k, _EXPANDED))
        self._units.improve(found, codes, scale, (self._starts, self._members, groups.unit))
        best = np.ascontiguousarray(found.unit[:, :_EXPANDED])
        self._units.improve(found, codes, scale, (*self._neighbors, best))
        return found

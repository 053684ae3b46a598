"""Decoders, (X, Ŷ, units) -> U: x_i ≈ Σ_j u_ij y_j (section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from logt import _kernels
from logt._internal.arrays import unit_dtype
from logt._internal.threads import SERIAL, Workers, split_range
from logt._internal.types import Array, Floats, Ints
from logt._internal.validation import check_choice, check_int, check_positive
from logt.group_testing.codes import Codes
from logt.group_testing.grouping import Units

WeightType = Literal["float32", "int8"]
Support = Literal["S0", "S1", "free"]

GRAM_LIMIT = 2 << 30
"""Bytes of Ŷ·Ŷᵀ up to which it is computed once; above, the part of each vector's support is computed in turn."""

UNLIMITED = int(np.iinfo(np.int32).max)
"""Entries per vector if the whole support is kept."""

_ROWS = 128  # vectors encoded by one task
_NO_FIRST = np.empty(0, np.int32)
_ITERATIONS = 50  # of conjugate gradients, at most
_SOLVED = 1e-6  # a row is solved, and stays as it is, when its gradient is so much smaller than at the start


@dataclass(frozen=True)
class Transpose:
    """U = G: the estimate of a vector is the sum of the measurements of its units."""

    def __call__(self, X: Floats, Y: Floats, units: Units, workers: Workers = SERIAL) -> Codes:
        unit = np.sort(units.assignment, axis=1).astype(unit_dtype(units.count))
        return Codes.from_matrices(unit, np.ones(unit.shape, np.int8), np.ones(len(X), np.float32))


@dataclass(frozen=True)
class GroupPinv:
    """U = G⁺: the least-norm similarities that explain the measurements, by conjugate gradients per query."""

    def __call__(self, X: Floats, Y: Floats, units: Units, workers: Workers = SERIAL) -> Codes:
        return replace(Transpose()(X, Y, units, workers), inverse=True)


@dataclass(frozen=True)
class Sparse:
    """At most L units, chosen one by one by orthogonal matching pursuit within a support.

    L: entries per vector; None keeps the whole support, by least squares. support: S₀ (the units of x_i), S₁ (the
    units of all vectors that share a unit with x_i), or the units with the largest |cos| to x_i ("free"). candidates:
    the number of units of "free", at least L. weights: how they are stored, "float32" or "int8".
    """

    L: int | None = 300
    support: Support = "S1"
    candidates: int = 400
    weights: WeightType = "int8"

    def __post_init__(self) -> None:
        check_positive(self, "candidates", *([] if self.L is None else ["L"]))
        check_choice("support", self.support, ("S0", "S1", "free"))
        check_choice("weights", self.weights, ("float32", "int8"))

    def __call__(self, X: Floats, Y: Floats, units: Units, workers: Workers = SERIAL) -> Codes:
        return self.path(X, Y, units, [UNLIMITED if self.L is None else self.L], workers)[0]

    def path(self, X: Floats, Y: Floats, units: Units, Ls: Sequence[int], workers: Workers = SERIAL) -> list[Codes]:
        """Return the codes of this decoder for several L, at little more than the cost of the largest.

        X: vectors. Y: memory vectors. units: of the vectors. Ls: the values of L. workers: the threads.
        """
        N, M = len(X), len(Y)
        norms = np.linalg.norm(Y, axis=1)
        rescale = (1 / np.where(norms > 0, norms, 1)).astype(np.float32)
        A = Y * rescale[:, None]  # unit-norm atoms: the choice must not depend on the norm of y
        supports = self._supports(X, A, units, max(Ls))
        most = min(supports.capacity, np.iinfo(np.uint16).max)  # prefix lengths are uint16
        increasing = sorted({check_int("L", L) for L in Ls})
        lengths = np.array([min(L, most) for L in increasing], np.int32)
        gram = _gram(A, workers) if 4 * M * M <= GRAM_LIMIT else None
        partial = [_PartialCodes.empty(N, M, int(length), self.weights) for length in lengths]

        def fill(rows: slice) -> None:
            support, counts, corr = supports.block(rows)
            unit = np.zeros((len(support), int(lengths.sum())), np.uint32)
            weight = np.zeros(unit.shape, np.float32)
            if gram is not None:
                _kernels.omp_path(gram, corr, support, counts, _NO_FIRST, rescale, lengths, unit, weight)
            else:
                for i, count in enumerate(counts):
                    unit[i], weight[i] = _pursue_alone(A, support[i, :count], corr[i, :count], rescale, lengths)
            stop = 0
            for length, part in zip(lengths, partial, strict=True):
                start, stop = stop, stop + int(length)
                part.fill(rows, unit[:, start:stop], weight[:, start:stop])

        workers.map(fill, split_range(N, _ROWS), "decoder")
        return [partial[increasing.index(L)].finish() for L in Ls]

    def _supports(self, X: Floats, A: Floats, units: Units, longest: int) -> _OwnUnits | _MostSimilar:
        if self.support == "free":
            return _MostSimilar(X, A, max(self.candidates, longest))
        return (_OwnUnits if self.support == "S0" else _FirstOrder)(X, A, units)


# -------------------------------------------------------------------------------------------------- supports


# The units among which each vector is encoded; `capacity` is the largest number for one vector. `block` returns
# (units (rows, capacity) in increasing order, how many of them count, their correlations with x).


class _OwnUnits:
    """S₀."""

    def __init__(self, X: Floats, A: Floats, units: Units):
        self._X, self._A, self._units = X, A, units
        self.capacity = units.assignment.shape[1]

    def units(self, rows: slice) -> tuple[Ints, Ints]:
        support = np.sort(self._units.assignment[rows], axis=1)
        return support, np.full(len(support), self.capacity, np.int32)

    def block(self, rows: slice) -> tuple[Ints, Ints, Floats]:
        support, counts = self.units(rows)
        corr = np.zeros(support.shape, np.float32)
        _kernels.correlate(self._X[rows], self._A, support, counts, corr)
        return support, counts, corr


class _FirstOrder(_OwnUnits):
    """S₁."""

    def __init__(self, X: Floats, A: Floats, units: Units):
        super().__init__(X, A, units)
        m, largest = units.assignment.shape[1], int(np.diff(units.members[0]).max())
        self.capacity = min(units.count, m + m * (largest - 1) * (m - 1))

    def units(self, rows: slice) -> tuple[Ints, Ints]:
        support = np.zeros((rows.stop - rows.start, self.capacity), np.int32)
        counts = np.empty(len(support), np.int32)
        _kernels.first_order(self._units.assignment, *self._units.members, rows.start, support, counts)
        return support, counts


class _MostSimilar:
    """The units with the largest |cos| to x."""

    def __init__(self, X: Floats, A: Floats, candidates: int):
        self._X, self._A = X, A
        self.capacity = min(len(A), candidates)

    def block(self, rows: slice) -> tuple[Ints, Ints, Floats]:
        corr = self._X[rows] @ self._A.T
        best = np.argpartition(-np.abs(corr), self.capacity - 1, axis=1)[:, : self.capacity]
        best.sort(axis=1)
        counts = np.full(len(corr), self.capacity, np.int32)
        return best.astype(np.int32), counts, np.take_along_axis(corr, best, axis=1)


# --------------------------------------------------------------------------------------------------- pursuit


@dataclass(frozen=True)
class _PartialCodes:
    """Codes as plain matrices, while they are filled."""

    unit: Array
    weight: Array
    scale: Floats

    @classmethod
    def empty(cls, N: int, M: int, width: int, weights: WeightType) -> _PartialCodes:
        return cls(np.zeros((N, width), unit_dtype(M)), np.zeros((N, width), weights), np.ones(N, np.float32))

    def fill(self, rows: slice, unit: Array, weight: Floats) -> None:
        self.unit[rows] = unit
        if self.weight.dtype == np.int8:
            self.scale[rows] = np.maximum(np.abs(weight[:, 0]), np.float32(1e-30)) / 127
            weight = np.rint(weight / self.scale[rows, None])
        self.weight[rows] = weight

    def finish(self) -> Codes:
        used = int((self.weight != 0).any(axis=0).nonzero()[0].max(initial=0)) + 1
        return Codes.from_matrices(self.unit[:, :used], self.weight[:, :used], self.scale)


def _pursue_alone(A: Floats, support: Ints, corr: Floats, rescale: Floats, lengths: Ints) -> tuple[Ints, Floats]:
    """Encode one vector with the Gram matrix of its own support only."""
    atoms = A[support]
    everything = np.arange(len(support), dtype=np.int32)[None]
    counts = np.array([len(support)], np.int32)
    u, w = np.zeros((1, lengths.sum()), np.uint32), np.zeros((1, lengths.sum()), np.float32)
    _kernels.omp_path(atoms @ atoms.T, corr[None], everything, counts, _NO_FIRST, rescale[support], lengths, u, w)
    return np.where(w[0] != 0, support[u[0]], 0), w[0]


def _gram(A: Floats, workers: Workers) -> Floats:
    gram = np.empty((len(A), len(A)), np.float32)

    def fill(rows: slice) -> None:
        np.matmul(A[rows], A.T, out=gram[rows])

    workers.map(fill, split_range(len(A), 256))
    return gram


# ------------------------------------------------------------------------------------------- pseudo-inverse of G


def solve_group_inverse(C: Floats, units: Units) -> Floats:
    """Return Z (nq, M) with Z·G = C·G⁺ᵀ, by conjugate gradients on the normal equations of G s = c.

    GGᵀ is singular; conjugate gradients started at 0 still give the least-norm solution.

    C: measurements, (nq, M). units: of the vectors.
    """
    offsets, rows = units.members
    used = np.diff(offsets) > 0

    def spread(Z: Array) -> Array:  # Gᵀ: units -> vectors
        out: Array = Z[:, units.assignment].sum(axis=2)
        return out

    def gather(S: Array) -> Array:  # G: vectors -> units
        out = np.zeros((len(S), units.count))
        out[:, used] = np.add.reduceat(S[:, rows], offsets[:-1][used], axis=1)
        return out

    residual = C.astype(np.float64)
    Z, W = np.zeros_like(residual), residual.copy()
    gradient = spread(residual)
    step = gradient.copy()
    size = np.square(gradient).sum(axis=1, keepdims=True)
    goal = size * _SOLVED**2
    for _ in range(_ITERATIONS):
        unsolved = size > goal
        if not unsolved.any():
            break
        image = gather(step)
        length = unsolved * size / np.maximum(np.square(image).sum(axis=1, keepdims=True), 1e-300)
        Z += length * W
        residual -= length * image
        gradient = spread(residual)
        new_size = np.square(gradient).sum(axis=1, keepdims=True)
        beta = new_size / np.maximum(size, 1e-300)
        size, step, W = new_size, gradient + beta * step, residual + beta * W
    return Z.astype(np.float32)

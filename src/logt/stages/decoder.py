"""Decoders, (X, Ŷ, units) -> U: x_i ≈ Σ_j u_ij y_j (section 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from logt import _kernels
from logt._threads import SERIAL, Workers, spans
from logt._types import Array, Floats, Ints
from logt.errors import InvalidInputError, at_least_one, one_of, real, whole
from logt.stages.codes import Codes, unit_type
from logt.stages.grouping import Units

WeightType = Literal["float32", "int8"]
Support = Literal["S0", "S1", "S0+random", "free", "near"]

GRAM_LIMIT = 2 << 30
"""Bytes of Ŷ·Ŷᵀ up to which it is made once; above, each vector's own part of it is made in turn."""

_ROWS = 128  # vectors coded by one task


@dataclass(frozen=True)
class Transpose:
    """U = G: a vector's estimate is the sum of its units' measurements."""

    def __call__(self, X: Floats, Y: Floats, units: Units, workers: Workers = SERIAL) -> Codes:
        unit = np.sort(units.of, axis=1).astype(unit_type(units.count))
        return Codes.of(unit, np.ones(unit.shape, np.int8), np.ones(len(X), np.float32))


@dataclass(frozen=True)
class GroupPinv:
    """U = G⁺: the least-norm similarities that explain the measurements, by conjugate gradients per query."""

    def __call__(self, X: Floats, Y: Floats, units: Units, workers: Workers = SERIAL) -> Codes:
        return replace(Transpose()(X, Y, units, workers), inverse=True)


@dataclass(frozen=True)
class Local:
    """Least squares over S₀ (the units of x_i) or S₁ (the units of all vectors that share a unit with x_i)."""

    order: Literal[0, 1] = 1
    weights: WeightType = "int8"

    def __post_init__(self) -> None:
        one_of("order", self.order, (0, 1))
        one_of("weights", self.weights, ("float32", "int8"))

    def __call__(self, X: Floats, Y: Floats, units: Units, workers: Workers = SERIAL) -> Codes:
        everything = np.iinfo(np.int32).max
        support: Support = "S0" if self.order == 0 else "S1"
        return _pursue(X, Y, units, Sparse(everything, support, weights=self.weights), workers)


@dataclass(frozen=True)
class Sparse:
    """At most L units, chosen one by one by orthogonal matching pursuit within a support.

    The support is S₀, S₁, or `candidates` units (at least L): "free", those most correlated with x_i, of either sign,
    or "near", those most similar to it. "S0+random" is the control of S₁: S₀ and random units, as many in all.
    """

    L: int = 300
    support: Support = "S1"
    candidates: int = 400
    weights: WeightType = "int8"

    def __post_init__(self) -> None:
        at_least_one(self, "L", "candidates")
        one_of("support", self.support, ("S0", "S1", "S0+random", "free", "near"))
        one_of("weights", self.weights, ("float32", "int8"))

    def __call__(self, X: Floats, Y: Floats, units: Units, workers: Workers = SERIAL) -> Codes:
        return _pursue(X, Y, units, self, workers)

    def path(self, X: Floats, Y: Floats, units: Units, Ls: Sequence[int], workers: Workers = SERIAL) -> list[Codes]:
        """The codes of this decoder for each of several L, at little more than the cost of the largest."""
        lengths = sorted({whole("L", L) for L in Ls})
        codes = _pursue_path(X, Y, units, replace(self, L=lengths[-1]), lengths, workers)
        return [codes[lengths.index(L)] for L in Ls]


@dataclass(frozen=True)
class Cascade:
    """How U is read: U⁰ (the part p of each row's energy) for all vectors, all of U for the R best of those."""

    p: float = 0.7
    R: int = 1000

    def __post_init__(self) -> None:
        at_least_one(self, "R")
        object.__setattr__(self, "p", real("p", self.p))
        if not 0 < self.p <= 1:
            raise InvalidInputError(f"p must be above 0 and at most 1, got {self.p!r}")


def solve_group_inverse(C: Floats, units: Units, *, iterations: int = 50, tolerance: float = 1e-6) -> Floats:
    """Z with Z·G = C·G⁺ᵀ, by conjugate gradients on the normal equations of G s = c (safe though GGᵀ is singular).

    C: (nq, M) -> (nq, M).
    """
    offsets, rows = units.members
    used = np.diff(offsets) > 0

    def spread(Z: Array) -> Array:  # Gᵀ: units -> vectors
        out: Array = Z[:, units.of].sum(axis=2)
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
    goal = size * tolerance**2
    for _ in range(iterations):
        if (size <= goal).all():
            break
        image = gather(step)
        length = size / np.maximum(np.square(image).sum(axis=1, keepdims=True), 1e-300)
        Z += length * W
        residual -= length * image
        gradient = spread(residual)
        grown = np.square(gradient).sum(axis=1, keepdims=True)
        turn = grown / np.maximum(size, 1e-300)
        size, step, W = grown, gradient + turn * step, residual + turn * W
    return Z.astype(np.float32)


_Supports = Callable[[slice], tuple[Ints, Ints, Floats]]
"""rows -> (units (rows, capacity) in rising order, how many of them are used, their correlations with x)"""


def _own(X: Floats, A: Floats, units: Units) -> tuple[int, _Supports]:
    """S₀."""
    m = units.of.shape[1]

    def of(rows: slice) -> tuple[Ints, Ints, Floats]:
        support = np.sort(units.of[rows], axis=1)
        counts = np.full(len(support), m, np.int32)
        return support, counts, _correlations(X[rows], A, support, counts)

    return m, of


def _first_order(units: Units) -> tuple[int, Callable[[slice], tuple[Ints, Ints]]]:
    """S₁ alone: (the most units it can have, rows -> (units, how many))."""
    m = units.of.shape[1]
    offsets, members = units.members
    largest = int(np.diff(offsets).max())
    capacity = min(units.count, m + m * (largest - 1) * (m - 1))

    def of(rows: slice) -> tuple[Ints, Ints]:
        support = np.zeros((rows.stop - rows.start, capacity), np.int32)
        counts = np.empty(len(support), np.int32)
        _kernels.first_order(units.of, offsets, members, rows.start, support, counts)
        return support, counts

    return capacity, of


def _neighbours(X: Floats, A: Floats, units: Units) -> tuple[int, _Supports]:
    """S₁."""
    capacity, first_order = _first_order(units)

    def of(rows: slice) -> tuple[Ints, Ints, Floats]:
        support, counts = first_order(rows)
        return support, counts, _correlations(X[rows], A, support, counts)

    return capacity, of


def _random_instead(X: Floats, A: Floats, units: Units) -> tuple[int, _Supports]:
    """S₀ and random units: as many in all as S₁ has."""
    capacity, first_order = _first_order(units)

    def of(rows: slice) -> tuple[Ints, Ints, Floats]:
        support, counts = first_order(rows)
        rng = np.random.default_rng([units.count, rows.start])  # of these rows, whichever thread codes them
        for own, chosen, count in zip(units.of[rows], support, counts, strict=True):
            drawn = rng.choice(units.count, count, replace=False)
            others = drawn[~np.isin(drawn, own)][: count - len(own)]
            chosen[:count] = np.sort(np.concatenate([own, others]))
        return support, counts, _correlations(X[rows], A, support, counts)

    return capacity, of


def _most_correlated(X: Floats, A: Floats, candidates: int, *, signed: bool) -> tuple[int, _Supports]:
    """The units of largest cos, or |cos|, with x."""
    capacity = min(len(A), candidates)

    def of(rows: slice) -> tuple[Ints, Ints, Floats]:
        corr = X[rows] @ A.T
        size = corr if signed else np.abs(corr)
        best = np.argpartition(-size, capacity - 1, axis=1)[:, :capacity]
        best.sort(axis=1)
        counts = np.full(len(corr), capacity, np.int32)
        return best.astype(np.int32), counts, np.take_along_axis(corr, best, axis=1)

    return capacity, of


def _correlations(X: Floats, A: Floats, support: Ints, counts: Ints) -> Floats:
    corr = np.zeros(support.shape, np.float32)
    _kernels.correlate(X, A, support, counts, corr)
    return corr


def _pursue(X: Floats, Y: Floats, units: Units, wanted: Sparse, workers: Workers) -> Codes:
    """Orthogonal matching pursuit of each row of X among the memory vectors of its support."""
    return _pursue_path(X, Y, units, wanted, [wanted.L], workers)[0]


def _pursue_path(
    X: Floats, Y: Floats, units: Units, wanted: Sparse, Ls: Sequence[int], workers: Workers
) -> list[Codes]:
    """The pursuit, with the solution after each of the rising Ls, the last of which is that of `wanted`."""
    N, M = len(X), len(Y)
    norms = np.linalg.norm(Y, axis=1)
    rescale = (1 / np.where(norms > 0, norms, 1)).astype(np.float32)
    A = Y * rescale[:, None]  # unit-norm atoms: what is chosen must not depend on the length of y
    if wanted.support in ("free", "near"):
        signed = wanted.support == "near"
        capacity, support_of = _most_correlated(X, A, max(wanted.candidates, wanted.L), signed=signed)
    elif wanted.support == "S0":
        capacity, support_of = _own(X, A, units)
    elif wanted.support == "S0+random":
        capacity, support_of = _random_instead(X, A, units)
    else:
        capacity, support_of = _neighbours(X, A, units)
    most = min(capacity, np.iinfo(np.uint16).max)  # what the lengths of prefixes can count
    lengths = np.array([min(L, most) for L in Ls], np.int32)
    gram = _gram(A, workers) if 4 * M * M <= GRAM_LIMIT else None
    made = [_Filling.of(N, M, int(length), wanted.weights) for length in lengths]

    def fill(rows: slice) -> None:
        support, counts, corr = support_of(rows)
        u = np.zeros((len(support), int(lengths.sum())), np.uint32)
        w = np.zeros(u.shape, np.float32)
        if gram is not None:
            _kernels.omp_path(gram, corr, support, counts, rescale, lengths, u, w)
        else:
            for i, count in enumerate(counts):
                u[i], w[i] = _pursue_alone(A, support[i, :count], corr[i, :count], rescale, lengths)
        stop = 0
        for length, part in zip(lengths, made, strict=True):
            start, stop = stop, stop + int(length)
            part.fill(rows, u[:, start:stop], w[:, start:stop])

    workers.each(fill, spans(N, _ROWS), "decoder")
    return [part.codes() for part in made]


@dataclass(frozen=True)
class _Filling:
    """Codes as plain matrices, while they are filled."""

    unit: Array
    weight: Array
    scale: Floats

    @classmethod
    def of(cls, N: int, M: int, width: int, weights: WeightType) -> _Filling:
        return cls(np.zeros((N, width), unit_type(M)), np.zeros((N, width), weights), np.ones(N, np.float32))

    def fill(self, rows: slice, unit: Array, weight: Floats) -> None:
        self.unit[rows] = unit
        if self.weight.dtype == np.int8:
            self.scale[rows] = np.maximum(np.abs(weight[:, 0]), np.float32(1e-30)) / 127
            weight = np.rint(weight / self.scale[rows, None])
        self.weight[rows] = weight

    def codes(self) -> Codes:
        used = int((self.weight != 0).any(axis=0).nonzero()[0].max(initial=0)) + 1
        return Codes.of(self.unit[:, :used], self.weight[:, :used], self.scale)


def _pursue_alone(A: Floats, support: Ints, corr: Floats, rescale: Floats, lengths: Ints) -> tuple[Ints, Floats]:
    """One vector, with the Gram matrix of its own support only."""
    atoms = A[support]
    everything = np.arange(len(support), dtype=np.int32)[None]
    counts = np.array([len(support)], np.int32)
    u, w = np.zeros((1, lengths.sum()), np.uint32), np.zeros((1, lengths.sum()), np.float32)
    _kernels.omp_path(atoms @ atoms.T, corr[None], everything, counts, rescale[support], lengths, u, w)
    return np.where(w[0] != 0, support[u[0]], 0), w[0]


def _gram(A: Floats, workers: Workers) -> Floats:
    gram = np.empty((len(A), len(A)), np.float32)

    def fill(rows: slice) -> None:
        np.matmul(A[rows], A.T, out=gram[rows])

    workers.each(fill, spans(len(A), 256))
    return gram

"""Dictionary learning, (X, units) -> Y: memory vectors learned together with the codes that use them.

Iscen, Rabbat and Furon (2016), the paper's eq. 8. The penalty λ‖U‖₁ is read as what the final codes have, at most L
entries a vector; atoms are of length 1, and what they lose in length is in U.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from logt import _kernels
from logt._threads import SERIAL, Workers, one_blas_thread, spans
from logt._types import Array, Floats
from logt.errors import InvalidInputError, at_least_one, one_of, real
from logt.stages.codes import Codes
from logt.stages.decoder import Sparse
from logt.stages.grouping import Units
from logt.stages.memory_vectors import Mean

Coreset = Literal["sensitivity", "uniform"]

_SWEEPS = 2  # over all atoms, in one update
_ATOMS, _COLUMNS = 256, 256  # solved together; of one task
_ROWS = 256  # vectors reconstructed by one task
_SLICES = 8  # of the atoms, each of which reads all codes


@dataclass(frozen=True)
class DictionaryLearning:
    """Y minimises ‖X − U Y‖² with U of L entries a vector, from the mean directions of the units on.

    Each epoch codes the vectors by orthogonal matching pursuit among the `candidates` atoms most correlated with
    them, and then solves for the atoms, block by block. With a coreset, it learns from the part `part` of the
    vectors, drawn by sensitivity and weighted, or uniformly.
    """

    L: int = 50
    epochs: int = 4
    candidates: int = 200
    coreset: Coreset | None = None
    part: float = 0.2

    def __post_init__(self) -> None:
        at_least_one(self, "L", "epochs", "candidates")
        one_of("coreset", self.coreset, (None, "sensitivity", "uniform"))
        object.__setattr__(self, "part", real("part", self.part))
        if not 0 < self.part <= 1:
            raise InvalidInputError(f"part must be above 0 and at most 1, got {self.part!r}")

    def __call__(self, X: Floats, units: Units, rng: np.random.Generator, workers: Workers = SERIAL) -> Floats:
        learned = X
        for done, (Y, objective) in enumerate(self.epoch_by_epoch(X, units, rng, workers), 1):
            workers.tell(f"dictionary, objective {objective:.4f}", done, self.epochs)
            learned = Y
        return learned

    def epoch_by_epoch(
        self, X: Floats, units: Units, rng: np.random.Generator, workers: Workers = SERIAL
    ) -> Iterator[tuple[Floats, float]]:
        """(Y, the mean of ½‖x − Yᵀu‖² over what is learned from) after each epoch; the mean never rises.

        A vector of weight w is learned from as √w·x: its error then counts w times, and its code has the same atoms.
        """
        _refuse_too_many(units.count)
        silent = Workers(workers.threads)
        Y = Mean()(X, units, silent)
        S, total = X, float(len(X))
        if self.coreset is not None:
            S, weight = self._drawn(X, Y, units, rng)
            S, total = S * np.sqrt(weight)[:, None], float(weight.sum())
        codes: Codes | None = None
        error = np.full(len(S), np.inf)
        for _ in range(self.epochs):
            codes, error = _better(S, Y, codes, error, self._coded(S, Y, silent), silent)
            Y = _solved(S, codes, _revived(Y, codes, S, error), silent)
            Y, codes = _of_length_one(Y, codes)
            error = _errors(S, Y, codes, silent)
            yield Y, 0.5 * float(error.sum()) / total

    def _coded(self, S: Floats, Y: Floats, workers: Workers) -> Codes:
        nowhere = Units(np.empty((len(S), 0), np.int32), 0)
        return Sparse(self.L, "free", max(self.L, self.candidates), "float32")(S, Y, nowhere, workers)

    def _drawn(self, X: Floats, Y: Floats, units: Units, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """(a part of the vectors, how many each stands for)."""
        K = max(1, round(self.part * len(X)))
        if self.coreset == "uniform":
            rows = np.sort(rng.choice(len(X), K, replace=False))
            return X[rows], np.full(K, len(X) / K, np.float32)
        sensitivity = sensitivities(X, Y, units)
        rows, times = np.unique(rng.choice(len(X), K, p=sensitivity), return_counts=True)
        return X[rows], (times / (K * sensitivity[rows])).astype(np.float32)


def _refuse_too_many(M: int) -> None:
    """The atoms' products UᵀU are M × M."""
    if not hasattr(os, "sysconf"):
        return
    there, needed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), 4 * M * M
    if needed > there // 2:
        raise InvalidInputError(
            f"{M:,} atoms need {needed / 2**30:.0f} GiB for their products, of {there / 2**30:.0f} GiB there are: "
            "learn fewer atoms, or from the vectors in batches"
        )


def sensitivities(X: Floats, Y: Floats, units: Units) -> NDArray[np.float64]:
    """How much each vector can matter to a clustering, as probabilities (Feldman, Faulkner and Krause's family).

    Half of it is its part of the squared distances to the centres Y, half an equal part of its unit, all units alike.
    """
    unit = units.of[:, 0]
    distance = np.empty(len(X))
    for block in spans(len(X), _ROWS):
        distance[block] = np.square(X[block] - Y[unit[block]]).sum(axis=1)
    share = 1 / np.bincount(unit, minlength=units.count)[unit]
    share /= share.sum()
    total = float(distance.sum())
    probability: NDArray[np.float64] = (distance / total + share) / 2 if total > 0 else share
    return probability


def _errors(S: Floats, Y: Floats, codes: Codes, workers: Workers) -> NDArray[np.float64]:
    """‖x − Yᵀu‖² of each vector."""
    error = np.empty(len(S))

    def fill(rows: slice) -> None:
        error[rows] = np.square(S[rows] - codes.reconstructed(Y, rows)).sum(axis=1)

    workers.each(fill, spans(len(S), _ROWS))
    return error


def _better(
    S: Floats, Y: Floats, old: Codes | None, old_error: Array, new: Codes, workers: Workers
) -> tuple[Codes, NDArray[np.float64]]:
    """For each vector the code that leaves less: pursuit is greedy, and need not beat what was there."""
    error = _errors(S, Y, new, workers)
    if old is None:
        return new, error
    worse = error > old_error
    if not worse.any():
        return new, error
    (unit, weight), (old_unit, old_weight) = new.rows(), old.rows()
    width = max(unit.shape[1], old_unit.shape[1])
    unit, weight, old_unit, old_weight = (
        np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in (unit, weight, old_unit, old_weight)
    )
    unit[worse], weight[worse] = old_unit[worse], old_weight[worse]
    return Codes.of(unit, weight, new.scale), np.minimum(error, old_error)


def _revived(Y: Floats, codes: Codes, S: Floats, error: Array) -> Floats:
    """Atoms that no code uses begin anew, as the vectors that are served worst."""
    unit, weight = codes.rows()
    unused = np.flatnonzero(np.bincount(unit[weight != 0], minlength=len(Y)) == 0)[: len(S)]
    Y = Y.copy()
    Y[unused] = S[np.argsort(-error, kind="stable")[: len(unused)]]
    return Y


def _solved(S: Floats, codes: Codes, Y: Floats, workers: Workers) -> Floats:
    """Y brought nearer to the least-squares solution for these codes, by exact steps over blocks of atoms."""
    A, B = _normal_equations(S, codes, len(Y), workers)
    blocks = spans(len(Y), _ATOMS)
    with one_blas_thread():
        inverses = [_inverse(A[block, block]) for block in blocks]
    out = np.empty_like(Y)

    def solve(columns: slice) -> None:
        part, wanted = Y[:, columns].copy(), B[:, columns]
        for _ in range(_SWEEPS):
            for block, inverse in zip(blocks, inverses, strict=True):
                part[block] += inverse @ (wanted[block] - A[block] @ part)
        out[:, columns] = part

    workers.each(solve, spans(Y.shape[1], _COLUMNS))
    return out


def _normal_equations(S: Floats, codes: Codes, M: int, workers: Workers) -> tuple[Floats, Floats]:
    """(UᵀU, UᵀS)."""
    unit, weight = codes.rows()
    unit = unit.astype(np.uint32)
    A, B = np.zeros((M, M), np.float32), np.zeros((M, S.shape[1]), np.float32)

    def fill(atoms: slice) -> None:
        _kernels.normal_rows(unit, weight, S, atoms.start, A[atoms], B[atoms])

    workers.each(fill, spans(M, -(-M // _SLICES)))
    return A, B


def _inverse(A: Floats) -> Floats:
    """Of a positive semi-definite matrix, with a small ridge."""
    ridge = 1e-6 * max(float(np.trace(A)) / len(A), 1e-12)
    return np.linalg.inv(A.astype(np.float64) + ridge * np.eye(len(A))).astype(np.float32)


def _of_length_one(Y: Floats, codes: Codes) -> tuple[Floats, Codes]:
    """The same products with atoms of length 1."""
    length = np.linalg.norm(Y, axis=1)
    length[length == 0] = 1
    unit, weight = codes.rows()
    return Y / length[:, None], Codes.of(unit, weight * length[unit], codes.scale)

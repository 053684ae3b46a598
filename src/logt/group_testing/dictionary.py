"""Dictionary learning, (X, units) -> Y: memory vectors trained together with the codes that use them.

Iscen, Rabbat and Furon (2016), the paper's eq. 8. The penalty λ‖U‖₁ is read as the limit of the final codes, at most
L entries per vector. Atoms have norm 1; their norm is moved into U.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from logt import _kernels
from logt._internal.memory import memory_bytes
from logt._internal.threads import SERIAL, Workers, single_threaded_blas, split_range
from logt._internal.types import Array, Floats
from logt._internal.validation import check_choice, check_fields, check_fraction, check_int
from logt.errors import InvalidInputError
from logt.group_testing.codes import Codes
from logt.group_testing.decoder import Sparse
from logt.group_testing.grouping import Units
from logt.group_testing.memory_vectors import Mean

_SWEEPS = 2  # over all atoms, in one update
_ATOMS, _COLUMNS = 256, 256  # solved together; of one task
_ROWS = 256  # vectors reconstructed by one task
_SLICES = 8  # of the atoms, each of which reads all codes


@dataclass(frozen=True)
class DictionaryLearning:
    """Y minimizes ‖X − U Y‖² with U of L entries per vector, starting from the normalized means of the units.

    Each epoch encodes the vectors by orthogonal matching pursuit among the `candidates` atoms most correlated with
    them, then solves for the atoms, block by block. With a coreset, it trains on the fraction `part` of the vectors,
    drawn by sensitivity and weighted.

    L: entries per vector. epochs: rounds of training. candidates: atoms that a code is chosen from. coreset:
    "sensitivity", or None to train on all vectors. part: the size of a coreset.
    """

    L: int = 50
    epochs: int = 4
    candidates: int = 200
    coreset: Literal["sensitivity"] | None = None
    part: float = 0.2

    def __post_init__(self) -> None:
        check_fields(self, L=check_int, epochs=check_int, candidates=check_int, part=check_fraction)
        check_choice("coreset", self.coreset, (None, "sensitivity"))

    def __call__(self, X: Floats, units: Units, rng: np.random.Generator, workers: Workers = SERIAL) -> Floats:
        trained = X
        for done, (Y, objective) in enumerate(self.epoch_by_epoch(X, units, rng, workers), 1):
            workers.report(f"dictionary, objective {objective:.4f}", done, self.epochs)
            trained = Y
        return trained

    def epoch_by_epoch(
        self, X: Floats, units: Units, rng: np.random.Generator, workers: Workers = SERIAL
    ) -> Iterator[tuple[Floats, float]]:
        """Yield (Y, the mean of ½‖x − Yᵀu‖² over the training vectors) after each epoch; the mean never increases.

        A vector of weight w is replaced by √w·x: its error then counts w times, and its code has the same atoms.

        X: vectors. units: their units, whose means are the first atoms. rng: the source of random numbers. workers:
        the threads.
        """
        _refuse_too_many(units.count)
        silent = Workers(workers.threads)
        Y = Mean()(X, units, silent)
        S, total = X, float(len(X))
        if self.coreset is not None:
            S, weight = self._draw(X, Y, units, rng)
            S, total = S * np.sqrt(weight)[:, None], float(weight.sum())
        codes: Codes | None = None
        error = np.full(len(S), np.inf)
        for _ in range(self.epochs):
            codes, error = _keep_better(S, Y, codes, error, self._encode(S, Y, silent), silent)
            Y = _update_atoms(S, codes, _replace_unused(Y, codes, S, error), silent)
            Y, codes = _normalize_atoms(Y, codes)
            error = _errors(S, Y, codes, silent)
            yield Y, 0.5 * float(error.sum()) / total

    def _encode(self, S: Floats, Y: Floats, workers: Workers) -> Codes:
        no_units = Units(np.empty((len(S), 0), np.int32), 0)
        return Sparse(self.L, "free", max(self.L, self.candidates), "float32")(S, Y, no_units, workers)

    def _draw(self, X: Floats, Y: Floats, units: Units, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Return (a sample of the vectors, their weights)."""
        K = max(1, round(self.part * len(X)))
        sensitivity = sensitivities(X, Y, units)
        rows, times = np.unique(rng.choice(len(X), K, p=sensitivity), return_counts=True)
        return X[rows], (times / (K * sensitivity[rows])).astype(np.float32)


def _refuse_too_many(M: int) -> None:
    """Raise if the M × M matrix UᵀU would not fit into memory."""
    there, needed = memory_bytes(), 4 * M * M
    if there is not None and needed > there // 2:
        raise InvalidInputError(
            f"{M:,} atoms need {needed / 2**30:.0f} GiB for their products, but there are {there / 2**30:.0f} GiB: "
            "train fewer atoms, or add the vectors in batches"
        )


def sensitivities(X: Floats, Y: Floats, units: Units) -> NDArray[np.float64]:
    """Return how much each vector can influence a clustering, as probabilities (after Feldman, Faulkner and Krause).

    Half is its share of the squared distances to the centroids Y, half an equal share of its unit.

    X: vectors. Y: centroids. units: of the vectors.
    """
    unit = units.assignment[:, 0]
    distance = np.empty(len(X))
    for block in split_range(len(X), _ROWS):
        distance[block] = np.square(X[block] - Y[unit[block]]).sum(axis=1)
    share = 1 / np.bincount(unit, minlength=units.count)[unit]
    share /= share.sum()
    total = float(distance.sum())
    probability: NDArray[np.float64] = (distance / total + share) / 2 if total > 0 else share
    return probability


def _errors(S: Floats, Y: Floats, codes: Codes, workers: Workers) -> NDArray[np.float64]:
    """Return ‖x − Yᵀu‖² of each vector."""
    error = np.empty(len(S))

    def fill(rows: slice) -> None:
        error[rows] = np.square(S[rows] - codes.reconstruct(Y, rows)).sum(axis=1)

    workers.map(fill, split_range(len(S), _ROWS))
    return error


def _keep_better(
    S: Floats, Y: Floats, old: Codes | None, old_error: Array, new: Codes, workers: Workers
) -> tuple[Codes, NDArray[np.float64]]:
    """Keep for each vector the code with the smaller error: pursuit is greedy and need not improve on the old one."""
    error = _errors(S, Y, new, workers)
    if old is None:
        return new, error
    worse = error > old_error
    (unit, weight), (old_unit, old_weight) = new.matrices(), old.matrices()
    width = max(unit.shape[1], old_unit.shape[1])
    unit, weight, old_unit, old_weight = (
        np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in (unit, weight, old_unit, old_weight)
    )
    unit[worse], weight[worse] = old_unit[worse], old_weight[worse]
    return Codes.from_matrices(unit, weight, new.scale), np.minimum(error, old_error)


def _replace_unused(Y: Floats, codes: Codes, S: Floats, error: Array) -> Floats:
    """Replace atoms that no code uses by the vectors with the largest errors."""
    unit, weight = codes.matrices()
    unused = np.flatnonzero(np.bincount(unit[weight != 0], minlength=len(Y)) == 0)[: len(S)]
    Y = Y.copy()
    Y[unused] = S[np.argsort(-error, kind="stable")[: len(unused)]]
    return Y


def _update_atoms(S: Floats, codes: Codes, Y: Floats, workers: Workers) -> Floats:
    """Move Y towards the least-squares solution for these codes, by exact steps over blocks of atoms."""
    A, B = _normal_equations(S, codes, len(Y), workers)
    blocks = split_range(len(Y), _ATOMS)
    with single_threaded_blas():
        inverses = [_inverse(A[block, block]) for block in blocks]
    out = np.empty_like(Y)

    def solve(columns: slice) -> None:
        part, wanted = Y[:, columns].copy(), B[:, columns]
        for _ in range(_SWEEPS):
            for block, inverse in zip(blocks, inverses, strict=True):
                part[block] += inverse @ (wanted[block] - A[block] @ part)
        out[:, columns] = part

    workers.map(solve, split_range(Y.shape[1], _COLUMNS))
    return out


def _normal_equations(S: Floats, codes: Codes, M: int, workers: Workers) -> tuple[Floats, Floats]:
    """Return (UᵀU, UᵀS)."""
    unit, weight = codes.matrices()
    unit = unit.astype(np.uint32)
    A, B = np.zeros((M, M), np.float32), np.zeros((M, S.shape[1]), np.float32)

    def fill(atoms: slice) -> None:
        _kernels.normal_rows(unit, weight, S, atoms.start, A[atoms], B[atoms])

    workers.map(fill, split_range(M, -(-M // _SLICES)))
    return A, B


def _inverse(A: Floats) -> Floats:
    """Invert a positive semi-definite matrix, with a small ridge."""
    ridge = 1e-6 * max(float(np.trace(A)) / len(A), 1e-12)
    return np.linalg.inv(A.astype(np.float64) + ridge * np.eye(len(A))).astype(np.float32)


def _normalize_atoms(Y: Floats, codes: Codes) -> tuple[Floats, Codes]:
    """Scale the atoms to norm 1, keeping the products."""
    length = np.linalg.norm(Y, axis=1)
    length[length == 0] = 1
    unit, weight = codes.matrices()
    return Y / length[:, None], Codes.from_matrices(unit, weight * length[unit], codes.scale)

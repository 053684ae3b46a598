"""Dictionary learning (Iscen et al.) and locality-constrained codes as systems, each built as an Index."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from logt._internal.threads import Progress
from logt._internal.types import Floats
from logt._internal.validation import check_choice, check_float, check_int, check_positive
from logt.baselines.composed import BuiltIndex, Composed
from logt.errors import InvalidInputError
from logt.methods import dictionary, llc


@dataclass(frozen=True)
class Dictionary:
    """Dictionary learning with L entries per vector.

    atoms: the number of atoms or, as a float, their fraction of N. coreset: train on N/5 vectors, chosen by
    sensitivity or uniformly. epochs: rounds of training. batches: the number of batches, each with its own
    dictionary. unit_norm: estimate with reconstructions scaled to norm 1.
    """

    atoms: int | float = 0.08
    L: int = 50
    coreset: Literal["sensitivity", "uniform"] | None = None
    epochs: int = 4
    batches: int = 1
    unit_norm: bool = False

    def __post_init__(self) -> None:
        check_positive(self, "L", "epochs", "batches")
        check_choice("coreset", self.coreset, (None, "sensitivity", "uniform"))
        _check_atoms(self, self.atoms)

    @property
    def name(self) -> str:
        coreset = f", {self.coreset} coreset" if self.coreset else ""
        return "dictionary" + coreset + (", unit norm" if self.unit_norm else "")

    def build(
        self, X: Floats, *, seed: int = 0, threads: int | None = None, progress: Progress | bool | None = None
    ) -> BuiltIndex:
        """Build from vectors X; seed, threads, progress: as in `System.build`."""
        method = dictionary(
            n=_vectors_per_atom(self.atoms, len(X)), L=self.L, epochs=self.epochs, coreset=self.coreset
        )
        system = Composed(replace(method, unit_norm=self.unit_norm), self.name, self.batches)
        return system.build(X, seed=seed, threads=threads, progress=progress)


@dataclass(frozen=True)
class LLC:
    """Locality-constrained codes of L entries over k-means centroids.

    atoms: as in `Dictionary`. L: entries per vector. name: for reports.
    """

    atoms: int | float = 0.08
    L: int = 10
    name: str = "LLC"

    def __post_init__(self) -> None:
        check_positive(self, "L")
        _check_atoms(self, self.atoms)

    def build(
        self, X: Floats, *, seed: int = 0, threads: int | None = None, progress: Progress | bool | None = None
    ) -> BuiltIndex:
        """Build from vectors X; seed, threads, progress: as in `System.build`."""
        method = llc(n=_vectors_per_atom(self.atoms, len(X)), L=self.L)
        return Composed(method, self.name).build(X, seed=seed, threads=threads, progress=progress)


def _check_atoms(system: object, atoms: int | float) -> None:
    if not isinstance(atoms, float | np.floating):
        object.__setattr__(system, "atoms", check_int("atoms", atoms))
        return
    fraction = check_float("atoms", atoms)
    if not 0 < fraction <= 1:
        raise InvalidInputError(f"atoms, as a fraction of N, must be above 0 and at most 1, got {atoms!r}")
    object.__setattr__(system, "atoms", fraction)


def _vectors_per_atom(atoms: int | float, N: int) -> float:
    """Return the number of vectors per atom."""
    return 1 / atoms if isinstance(atoms, float) else max(1.0, N / atoms)

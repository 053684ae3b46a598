"""The paper's systems as the experiments set them: one build serves a system with and without its correction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from logt._threads import Progress
from logt._types import Floats, Ids
from logt.baselines import BuiltSystem, Composed, Dictionary, System
from logt.methods import lo_gt, rnd, sketched, starred
from logt.reproduce import paper
from logt.reproduce.plan import Plan
from logt.reproduce.trials import Trial

VARIANTS = ("LO-GT*", "LO-GT", "RND*", "RND")
_MAKERS = {"LO-GT": lo_gt, "RND": rnd}


def local(name: str, plan: Plan, *, batches: int = 1, **changes: Any) -> Composed:
    """LO-GT or RND at the plan's n, m and L, or with some of them changed; `name` may have its star."""
    plain = name.removesuffix("*")
    parameters = {"n": plan.n, "m": plan.m, "L": plan.L, **changes}
    told = " ".join(f"{symbol}={'all' if value is None else value}" for symbol, value in parameters.items())
    told += f" in {batches} batches" if batches > 1 else ""
    return Composed(starred(_MAKERS[plain](**parameters)), name=f"{plain} {told}", batches=batches)


def variant(name: str, system: Composed, *, timed: bool = False, **setting: Any) -> Trial:
    """A search with the correction where the name has a star, else without; all of U unless a setting says less."""
    setting = {"p": 1.0, **setting, "correct": name.endswith("*")}
    return Trial.of(system, timed=timed, **setting)


def default_index(*, batches: int = 1, **changes: Any) -> Composed:
    """The index that logt makes when nothing is said, or with some of its parameters changed."""
    told = "".join(f" {name}={value}" for name, value in changes.items())
    told += f" in {batches} batches" if batches > 1 else ""
    return Composed(sketched(**changes), name=f"logt{told}", batches=batches)


@dataclass(frozen=True)
class Sampled:
    """A system that holds only a random part of the vectors, for what would take too long with all."""

    system: System
    count: int

    @property
    def name(self) -> str:
        return f"{self.system.name} on a sample of {self.count:,}"

    def build(
        self, X: Floats, *, seed: int = 0, threads: int | None = None, progress: Progress | None = None
    ) -> BuiltSample:
        rng = np.random.default_rng([seed, 3])
        rows = np.sort(rng.choice(len(X), min(self.count, len(X)), replace=False))
        return BuiltSample(self.system.build(X[rows], seed=seed, threads=threads, progress=progress), rows)


class BuiltSample(BuiltSystem):
    """A system over some rows of a collection; it returns their row numbers in the collection."""

    def __init__(self, sample: BuiltSystem, rows: Ids):
        self._sample, self._rows = sample, rows
        self.index = sample.index

    def search(self, Q: Any, k: int, **settings: Any) -> Ids:
        ids = self._sample.search(Q, k, **settings)
        return np.where(ids >= 0, self._rows[ids], -1)

    @property
    def nbytes(self) -> int:
        return self._sample.nbytes

    @property
    def memory_ratio(self) -> float:
        return self._sample.memory_ratio

    def rho(self, **settings: Any) -> float:
        return self._sample.rho(**settings)


def dictionary(plan: Plan, *, coreset: Any = None, batches: int = 1) -> Dictionary:
    """Dictionary learning with the paper's M, and entries that make the ratio its table states."""
    row = paper.TABLE["dictionary + coreset" if coreset else "dictionary"]
    L = max(1, round((row.complexity - 0.08) * plan.dim))
    return Dictionary(atoms=plan.m / plan.n, L=L, coreset=coreset, batches=batches)

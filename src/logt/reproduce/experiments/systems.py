"""The systems of several experiments, with the paper's settings."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from logt._internal.threads import Workers
from logt._internal.types import Floats
from logt.baselines import BuiltSystem, Composed, System
from logt.methods import dictionary, lo_gt, rnd, sketched, starred
from logt.reproduce import paper
from logt.reproduce.plan import Plan
from logt.reproduce.trials import Trial

DEFAULT, LINKED, DIFFUSED = "logt (default)", "logt, linked", "logt, linked, diffusion"
VARIANTS = ("LO-GT*", "LO-GT", "RND*", "RND")
_METHODS = {"LO-GT": lo_gt, "RND": rnd}


def local_system(name: str, plan: Plan, *, batches: int = 1, **changes: Any) -> Composed:
    """Return LO-GT or RND with the plan's n, m and L, or with some of them changed.

    The result does not depend on the star in the name: the same build is searched with and without the correction.
    """
    parameters = {"n": plan.n, "m": plan.m, "L": plan.L, **changes}
    return Composed(starred(_METHODS[name.removesuffix("*")](**parameters)), batches)


def variant_trial(name: str, system: Composed, *, timed: bool = False, **settings: Any) -> Trial:
    """Return a trial with the correction if the name ends in a star; it reads all of U unless p is given."""
    return Trial(system, {"p": 1.0, **settings, "correct": name.endswith("*")}, timed=timed)


def sparse_trial(name: str, plan: Plan, L: int, *, timed: bool = False) -> Trial:
    """Return a trial of the sparse decoder with L entries per vector."""
    return variant_trial(name, local_system(name, plan, L=L), timed=timed)


def cascade_trial(name: str, plan: Plan, p: float, *, timed: bool = False) -> Trial:
    """Return a trial of the cascade with the fraction p of the energy, at the largest L."""
    return variant_trial(name, local_system(name, plan), timed=timed, p=p, R=plan.R)


def default_index(*, batches: int = 1, linked: bool = False) -> Composed:
    """Return the default index of logt, with its neighbor graph if linked."""
    return Composed(sketched(), batches, linked)


def default_trials(plan: Plan) -> dict[str, Trial]:
    """Return the ways to search the default index: by name, with the list length of the plan."""
    linked = default_index(linked=True)
    return {
        DEFAULT: Trial(default_index(), depth=plan.list_length, timed=True),
        LINKED: Trial(linked, depth=plan.list_length, timed=True),
        DIFFUSED: Trial(linked, {"rerank": "diffusion"}, depth=plan.list_length, timed=True),
    }


def dictionary_system(plan: Plan, *, coreset: Any = None, batches: int = 1) -> Composed:
    """Return dictionary learning with the paper's M, and with L so that ρ is as in its table."""
    row = paper.TABLE["dictionary + coreset" if coreset else "dictionary"]
    L = max(1, round((row.complexity - 0.08) * plan.dim))
    return Composed(dictionary(n=plan.n / plan.m, L=L, coreset=coreset), batches)


@dataclass(frozen=True)
class Sampled(System):
    """A system built from a random sample of the vectors, because all of them would take too long.

    Only its cost can be measured: the ids that it finds are rows of the sample.
    """

    system: System
    count: int

    def _build(self, X: Floats, seed: int, workers: Workers) -> BuiltSystem:
        rows = np.random.default_rng([seed, 3]).choice(len(X), min(self.count, len(X)), replace=False)
        return self.system._build(X[np.sort(rows)], seed, workers)

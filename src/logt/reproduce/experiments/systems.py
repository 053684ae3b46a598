"""The paper's systems as the experiments set them: one build serves a system with and without its correction."""

from __future__ import annotations

from typing import Any

from logt.baselines import Composed
from logt.methods import lo_gt, rnd, sketched, starred
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


def dictionary(plan: Plan, *, coreset: Any = None, batches: int = 1) -> Dictionary:
    """Dictionary learning with the paper's M, and entries that make the ratio its table states."""
    row = paper.TABLE["dictionary + coreset" if coreset else "dictionary"]
    L = max(1, round((row.complexity - 0.08) * plan.dim))
    return Dictionary(atoms=plan.m / plan.n, L=L, coreset=coreset)

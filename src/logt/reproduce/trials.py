"""A trial: one point of a figure or one row of a table, and what was measured of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from logt.baselines import System
from logt.reproduce.together import family

Setting = tuple[tuple[str, Any], ...]
Measured = dict[str, Any]
"""Figures by name (see Lab), or a note that says why there are none."""


@dataclass(frozen=True)
class Trial:
    """A system, built with a seed and searched with a setting; lists as long as the collection, or of `depth`."""

    system: System
    setting: Setting = ()
    seed: int = 0
    depth: int | None = None
    timed: bool = False

    @classmethod
    def of(cls, system: System, *, depth: int | None = None, timed: bool = False, **setting: Any) -> Trial:
        return cls(system, tuple(setting.items()), 0, depth, timed)

    def seeded(self, seed: int) -> Trial:
        return replace(self, seed=seed)

    @property
    def family(self) -> str:
        """What it shares with the trials whose indexes are built together."""
        return json.dumps([family(self.system), self.seed])

    @property
    def key(self) -> str:
        """Its name among all points; times are added to a point, they make no other."""
        return json.dumps([repr(self.system), self.seed, dict(self.setting), self.depth])


@dataclass(frozen=True)
class Mean:
    """A figure over seeds: mean, deviation, and how many seeds there were."""

    value: float
    deviation: float = 0.0
    seeds: int = 1

    @classmethod
    def of(cls, values: list[float]) -> Mean:
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        return cls(float(np.mean(values)), deviation, len(values))

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return self.deviation / math.sqrt(self.seeds)

    def __str__(self) -> str:
        return f"{self.value:.1f}" + (f" ± {self.deviation:.1f}" if self.seeds > 1 else "")


@dataclass(frozen=True)
class Results:
    """What was measured, by key of the trial; `main` is the protocol of the figures."""

    points: Mapping[str, Measured]
    main: str

    def has(self, trial: Trial) -> bool:
        point = self.points.get(trial.key)
        return point is not None and ("ms" in point or "note" in point or not trial.timed)

    def of(self, trial: Trial) -> Measured:
        return self.points[trial.key]

    def note(self, trial: Trial) -> str:
        """Why there is no figure, or nothing."""
        return str(self.of(trial).get("note", ""))

    def mean_ap(self, trial: Trial, seeds: int = 1, *, kind: str = "map", protocol: str | None = None) -> Mean:
        """mAP over seeds."""
        return Mean.of([self.of(trial.seeded(seed))[kind][protocol or self.main] for seed in range(seeds)])

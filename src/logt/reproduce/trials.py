"""A trial: one point of a figure or one row of a table, and what was measured of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from logt.baselines import System
from logt.reproduce.shared_builds import family

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
    """A figure over seeds, with what it is at each."""

    values: tuple[float, ...]

    @property
    def value(self) -> float:
        return float(np.mean(self.values))

    @property
    def deviation(self) -> float:
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else 0.0

    @property
    def error(self) -> float:
        """The standard error of the mean; 0 where one seed tells nothing of it."""
        return self.deviation / math.sqrt(len(self.values))

    def __sub__(self, other: Mean) -> Mean:
        """Seed by seed, over those that both have: what a draw of units does to both of them cancels."""
        return Mean(tuple(a - b for a, b in zip(self.values, other.values, strict=False)))

    def __str__(self) -> str:
        return f"{self.value:.1f}" + (f" ± {self.deviation:.1f}" if self.deviation else "")


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
        points = (self.of(trial.seeded(seed)) for seed in range(seeds))
        return Mean(tuple(point[kind][protocol or self.main] for point in points))

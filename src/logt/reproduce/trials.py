"""A trial, one point of a figure or one row of a table, and the values measured for it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from logt.baselines import System
from logt.reproduce.shared_builds import family

Settings = tuple[tuple[str, Any], ...]
Point = dict[str, Any]
"""The measured values of a trial, by name (see measurement.py); or a note that explains why there are none."""


@dataclass(frozen=True)
class Trial:
    """A system, built with a seed and searched with some settings.

    depth: length of the result lists; None ranks the whole collection. timed: whether searches are timed.
    """

    system: System
    settings: Settings = ()
    seed: int = 0
    depth: int | None = None
    timed: bool = False

    @classmethod
    def from_settings(
        cls, system: System, *, depth: int | None = None, timed: bool = False, **settings: Any
    ) -> Trial:
        """Build from the keyword arguments of the search."""
        return cls(system, tuple(settings.items()), 0, depth, timed)

    def with_seed(self, seed: int) -> Trial:
        """Return the same trial with another seed."""
        return replace(self, seed=seed)

    def repeat(self, seeds: int) -> list[Trial]:
        """Return the trial with each of the seeds from 0 to seeds - 1."""
        return [self.with_seed(seed) for seed in range(seeds)]

    @property
    def family(self) -> str:
        """A key shared by the trials whose indexes are built together."""
        return json.dumps([family(self.system), self.seed])

    @property
    def key(self) -> str:
        """The key of its point; a timed trial has the same key, because times are added to the point."""
        return json.dumps([repr(self.system), self.seed, dict(self.settings), self.depth])


@dataclass(frozen=True)
class SeedMean:
    """A value measured with several seeds."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def deviation(self) -> float:
        """The standard deviation over seeds; 0 for a single seed."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else 0.0

    @property
    def standard_error(self) -> float:
        """The standard error of the mean; 0 for a single seed."""
        return self.deviation / math.sqrt(len(self.values))

    def __sub__(self, other: SeedMean) -> SeedMean:
        """Return the differences by seed, over the seeds that both have: the common effect of a seed cancels."""
        return SeedMean(tuple(a - b for a, b in zip(self.values, other.values, strict=False)))

    def __str__(self) -> str:
        return f"{self.mean:.1f}" + (f" ± {self.deviation:.1f}" if self.deviation else "")


@dataclass(frozen=True)
class Measurements:
    """The points of all trials, by key; `protocol` is the main one of the benchmark."""

    points: Mapping[str, Point]
    protocol: str

    def has(self, trial: Trial) -> bool:
        """Return whether a trial was measured, with its times if it is a timed one."""
        point = self.points.get(trial.key)
        return point is not None and ("ms" in point or "note" in point or not trial.timed)

    def point(self, trial: Trial) -> Point:
        return self.points[trial.key]

    def note(self, trial: Trial) -> str:
        """Return why there are no values, or an empty string."""
        return str(self.point(trial).get("note", ""))

    def mean_ap(self, trial: Trial, seeds: int = 1, *, kind: str = "map", protocol: str | None = None) -> SeedMean:
        """Return the mAP over seeds."""
        points = map(self.point, trial.repeat(seeds))
        return SeedMean(tuple(point[kind][protocol or self.protocol] for point in points))

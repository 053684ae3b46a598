"""A trial, one point of a figure or one row of a table, and the values measured for it."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from logt.baselines import Exhaustive, System
from logt.reproduce.shared_builds import family

Point = dict[str, Any]
"""The measured values of a trial, by column of a table; or a note that explains why there are none."""

TRUNCATED = "mAP of truncated lists"
"""The column that compares systems with long and with short lists in the same way."""


@dataclass(frozen=True)
class Trial:
    """A system, built with a seed and searched with some settings.

    settings: keyword arguments of the search. depth: length of the result lists; None ranks the whole collection, 0
    measures the build only. timed: whether searches are timed.
    """

    system: System
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    depth: int | None = None
    timed: bool = False

    def repeat(self, seeds: int) -> "list[Trial]":
        return [replace(self, seed=seed) for seed in range(seeds)]

    @property
    def family(self) -> str:
        """A key shared by the trials whose indexes are built together."""
        return json.dumps([family(self.system), self.seed])

    @property
    def key(self) -> str:
        """The key of its point; a timed trial has the same key, because times are added to the point."""
        return json.dumps([repr(self.system), self.seed, dict(self.settings), self.depth])


EXHAUSTIVE = Trial(Exhaustive(), timed=True)
"""Exhaustive search: part of every experiment."""


class Points:
    """The points of one benchmark and one version of the library, kept in a file, so that no work is repeated.

    Each line is a point. An interrupt may leave half a line, which is skipped; a new point starts with a line end.
    """

    def __init__(self, path: Path, fingerprint: str, version: str):
        self._path, self._origin = path, f"{fingerprint} {version}"
        self._known: dict[str, Point] = {}
        for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
            with suppress(ValueError, KeyError, TypeError, RecursionError):  # of a damaged line
                stored = json.loads(line)
                if stored["origin"] == self._origin:
                    self._known[stored["trial"]] = dict(stored["point"])

    def __getitem__(self, trial: Trial) -> Point:
        return self._known[trial.key]

    def has(self, trial: Trial) -> bool:
        """Return whether a trial was measured, with its times if it is a timed one."""
        point = self._known.get(trial.key)
        return point is not None and ("ms" in point or "note" in point or not trial.timed)

    def add(self, trial: Trial, point: Point) -> None:
        """Keep a point, on disk too unless it is a note: what is not installed now may be in the next run."""
        self._known[trial.key] = point
        if "note" not in point:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with open(self._path, "a") as file:
                file.write("\n" + json.dumps({"origin": self._origin, "trial": trial.key, "point": point}))

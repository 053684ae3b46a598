"""The run: experiments -> points on disk -> CSVs, figures and one report."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logt._threads import Progress
from logt.datasets import Benchmark
from logt.errors import InvalidInputError
from logt.reproduce import plots, report
from logt.reproduce import report_text as contents
from logt.reproduce.experiments import ALL, BASELINE, Experiment, Found, Row
from logt.reproduce.measurement import Lab
from logt.reproduce.plan import Plan
from logt.reproduce.point_store import Store
from logt.reproduce.trials import Mean, Measured, Results, Trial


def chosen(names: Sequence[str]) -> list[Experiment]:
    """The experiments of these names, in the order of the paper; all, without names."""
    unknown = [name for name in names if name not in ALL]
    if unknown:
        raise InvalidInputError(f"there is no experiment {unknown[0]!r}; there are {', '.join(ALL)}")
    return [experiment for name, experiment in ALL.items() if not names or name in names]


@dataclass
class Run:
    """Experiments on one benchmark, kept in one folder. `tell` hears of points, `progress` of the work on one."""

    benchmark: Benchmark
    plan: Plan
    out: Path
    version: str
    tell: Progress = lambda what, done, total: None
    progress: Progress | None = None
    measured: int = 0
    _points: dict[str, Measured] = field(default_factory=dict)
    _found: dict[str, Found] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.benchmark.metric != "cosine":
            raise InvalidInputError(
                f"{self.benchmark.name} compares by {self.benchmark.metric}; the paper's experiments need cosine"
            )
        self._store = Store(self.out / "points", self.benchmark.fingerprint, self.version)
        self._results = Results(self._points, self.benchmark.main)
        self._lab = Lab(self.benchmark, self.plan.cut)

    def __call__(self, names: Sequence[str] = ()) -> Path:
        """Measure what is missing, experiment by experiment, and write what is complete; the path of the report."""
        experiments = chosen(names)
        wanted = _merged([trial for experiment in experiments for trial in experiment.trials(self.plan)])
        for trial in wanted.values():
            self._recall(trial)
        for experiment in sorted(experiments, key=lambda experiment: experiment.slow):
            self._complete(experiment.trials(self.plan), wanted)
            self.write()
        return self.out / "report.md"

    def _recall(self, trial: Trial) -> bool:
        """Whether a trial is known, from this run or from the disk."""
        if trial.key not in self._points and (known := self._store.read(trial)) is not None:
            self._points[trial.key] = known
        return self._results.has(trial)

    def _complete(self, trials: Sequence[Trial], wanted: dict[str, Trial]) -> None:
        """Measure what these trials lack; what is built for one serves all that are wanted of it."""
        for trial in trials:
            if self._results.has(wanted[trial.key]):
                continue
            lacking = [other for other in wanted.values() if not self._results.has(other)]
            same = [other for other in lacking if other.family == trial.family]
            self.tell(f"{trial.system.name}, seed {trial.seed}", self._known(wanted), len(wanted))
            self._lab.measure(same, self.progress, self._keep)
            self.tell(f"{trial.system.name}, seed {trial.seed}", self._known(wanted), len(wanted))

    def _known(self, wanted: dict[str, Trial]) -> int:
        return sum(map(self._results.has, wanted.values()))

    def _keep(self, trial: Trial, measured: Measured) -> None:
        self._points[trial.key] = measured
        self.measured += 1
        if "note" not in measured:  # what was not installed may be, next time
            self._store.write(trial, measured)

    def found(self, name: str) -> Found:
        """What an experiment found, once all its points are known."""
        rows = ALL[name].rows(self.plan, self._results)
        base = Mean(self._results.mean_ap(BASELINE).values * self.plan.seeds)  # the same at every seed
        return Found(self.plan, rows, base, self.benchmark.main)

    def write(self) -> None:
        """CSV and figure of each experiment whose points are all known, and the report over all of them."""
        for name, experiment in ALL.items():
            if name not in self._found and all(map(self._recall, experiment.trials(self.plan))):
                found = self._found[name] = self.found(name)
                _write_csv(self.out / f"{name}.csv", found.rows)
                plots.draw(_drawing(experiment, found), self.out, name, experiment.size)
        done = {name: self._found[name] for name in ALL if name in self._found}
        blocks = contents.blocks(self.benchmark, self.plan, self._results, done)
        _write(self.out / "report.md", report.markdown(blocks))
        _write(self.out / "report.html", report.page(contents.TITLE, blocks))


def _drawing(experiment: Experiment, found: Found) -> Callable[[object], None]:
    return lambda figure: experiment.draw(figure, found)


def _merged(trials: Sequence[Trial]) -> dict[str, Trial]:
    """Each trial once, by key; timed if one of its like is."""
    merged: dict[str, Trial] = {}
    for trial in trials:
        if trial.key not in merged or trial.timed:
            merged[trial.key] = trial
    return merged


def _write_csv(path: Path, rows: Sequence[Row]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    unfinished = path.with_suffix(".csv.tmp")
    with open(unfinished, "w", newline="") as file:
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        writer.writerows({name: _csv_cell(value) for name, value in row.items()} for row in rows)
    os.replace(unfinished, path)


def _csv_cell(value: Any) -> Any:
    if isinstance(value, tuple):
        return " ".join(f"{part:.4f}" for part in value)
    return round(value, 4) if isinstance(value, float) else value


def _write(path: Path, text: str) -> None:
    unfinished = path.with_suffix(f"{path.suffix}.tmp")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, path)

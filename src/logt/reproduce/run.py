"""A run of experiments: measure points, keep them on disk, and write CSV files, figures and a report."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from logt._internal.threads import Progress
from logt.datasets import Benchmark
from logt.errors import InvalidInputError
from logt.reproduce import plots
from logt.reproduce.experiments import EXHAUSTIVE, EXPERIMENTS, Experiment, ExperimentResult, Row
from logt.reproduce.measurement import Evaluator
from logt.reproduce.plan import Plan
from logt.reproduce.point_store import PointStore
from logt.reproduce.report import to_html, to_markdown
from logt.reproduce.report_text import TITLE, report_blocks
from logt.reproduce.trials import Measurements, Point, SeedMean, Trial


def select_experiments(names: Sequence[str]) -> list[Experiment]:
    """Return the experiments with these names, in the order of the paper; all of them if there are no names."""
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown:
        raise InvalidInputError(f"there is no experiment {unknown[0]!r}; choose from {', '.join(EXPERIMENTS)}")
    return [experiment for name, experiment in EXPERIMENTS.items() if not names or name in names]


@dataclass
class Run:
    """Experiments on one benchmark, with all output in one folder.

    point_progress: called with a system, the number of known points and their total. build_progress: called during
    a build. new_points: how many points were measured so far.
    """

    benchmark: Benchmark
    plan: Plan
    out: Path
    version: str
    point_progress: Progress = lambda what, done, total: None
    build_progress: Progress | None = None
    new_points: int = 0
    _points: dict[str, Point] = field(default_factory=dict)
    _results: dict[str, ExperimentResult] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.benchmark.metric != "cosine":
            raise InvalidInputError(
                f"{self.benchmark.name} uses metric {self.benchmark.metric}; the paper's experiments need cosine"
            )
        self._store = PointStore(self.out / "points", self.benchmark.fingerprint, self.version)
        self._measurements = Measurements(self._points, self.benchmark.main)
        self._evaluator = Evaluator(self.benchmark, self.plan.list_length)

    def __call__(self, names: Sequence[str] = ()) -> Path:
        """Measure missing points, write every experiment that is complete, and return the path of the report."""
        experiments = select_experiments(names)
        wanted = _merge_trials([trial for experiment in experiments for trial in experiment.trials(self.plan)])
        for trial in wanted.values():
            self._load(trial)
        for experiment in sorted(experiments, key=lambda experiment: experiment.slow):
            self._measure_missing(experiment.trials(self.plan), wanted)
            self.write()
        return self.out / "report.md"

    def result(self, name: str) -> ExperimentResult:
        """Return the result of an experiment whose points are all known."""
        rows = EXPERIMENTS[name].rows(self.plan, self._measurements)
        exhaustive = SeedMean(self._measurements.mean_ap(EXHAUSTIVE).values * self.plan.seeds)  # equal for all seeds
        return ExperimentResult(self.plan, rows, exhaustive, self.benchmark.main)

    def write(self) -> None:
        """Write the CSV file and the figure of each complete experiment, and the report."""
        for name, experiment in EXPERIMENTS.items():
            if name not in self._results and all(map(self._load, experiment.trials(self.plan))):
                result = self._results[name] = self.result(name)
                _write_csv(self.out / f"{name}.csv", result.rows)
                plots.save_figure(partial(experiment.draw, result=result), self.out, name, experiment.figure_size)
        complete = {name: self._results[name] for name in EXPERIMENTS if name in self._results}
        blocks = report_blocks(self.benchmark, self.plan, self._measurements, complete)
        _write_text(self.out / "report.md", to_markdown(blocks))
        _write_text(self.out / "report.html", to_html(TITLE, blocks))

    def _load(self, trial: Trial) -> bool:
        """Read the point of a trial from disk if needed; return whether it is known."""
        if trial.key not in self._points and (point := self._store.read(trial)) is not None:
            self._points[trial.key] = point
        return self._measurements.has(trial)

    def _measure_missing(self, trials: Sequence[Trial], wanted: dict[str, Trial]) -> None:
        """Measure the missing trials, each together with all wanted trials of its family: they share the build."""
        for trial in trials:
            if self._measurements.has(wanted[trial.key]):
                continue
            missing = [other for other in wanted.values() if not self._measurements.has(other)]
            same_family = [other for other in missing if other.family == trial.family]
            self._report_progress(trial, wanted)
            self._evaluator.measure(same_family, self.build_progress, self._keep)
            self._report_progress(trial, wanted)

    def _report_progress(self, trial: Trial, wanted: dict[str, Trial]) -> None:
        known = sum(map(self._measurements.has, wanted.values()))
        self.point_progress(f"{trial.system.name}, seed {trial.seed}", known, len(wanted))

    def _keep(self, trial: Trial, point: Point) -> None:
        self._points[trial.key] = point
        self.new_points += 1
        if "note" not in point:  # a library that is not installed now may be installed in the next run
            self._store.write(trial, point)


def _merge_trials(trials: Sequence[Trial]) -> dict[str, Trial]:
    """Return each trial once, by key; the timed one if there is one."""
    merged: dict[str, Trial] = {}
    for trial in trials:
        if trial.key not in merged or trial.timed:
            merged[trial.key] = trial
    return merged


def _write_csv(path: Path, rows: Sequence[Row]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    temporary = path.with_suffix(".csv.tmp")
    with open(temporary, "w", newline="") as file:
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        writer.writerows({name: _csv_cell(value) for name, value in row.items()} for row in rows)
    os.replace(temporary, path)


def _csv_cell(value: Any) -> Any:
    if isinstance(value, tuple):
        return " ".join(f"{part:.4f}" for part in value)
    return round(value, 4) if isinstance(value, float) else value


def _write_text(path: Path, text: str) -> None:
    temporary = path.with_suffix(f"{path.suffix}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)

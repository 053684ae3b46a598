"""A run of experiments: measure points, keep them on disk, and write CSV files, figures and a report."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logt._internal.threads import Progress
from logt.datasets import Benchmark
from logt.errors import InvalidInputError
from logt.reproduce import plots
from logt.reproduce.experiments import EXPERIMENTS, Experiment, Result, Row
from logt.reproduce.measurement import Evaluator
from logt.reproduce.plan import Plan
from logt.reproduce.report import markdown_report, smoke_test
from logt.reproduce.trials import EXHAUSTIVE, Point, Points, Trial
from logt.storage.files import replace_file


def select_experiments(names: Sequence[str]) -> list[Experiment]:
    """Return the experiments with these names, in the order of the paper; all of them if there are no names."""
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown:
        raise InvalidInputError(f"there is no experiment {unknown[0]!r}; choose from {', '.join(EXPERIMENTS)}")
    return [experiment for name, experiment in EXPERIMENTS.items() if not names or name in names]


@dataclass
class Run:
    """Experiments on one benchmark, with all output in one folder.

    progress: called with the number of known points and their total, and during a build. new_points: how many points
    were measured so far.
    """

    benchmark: Benchmark
    plan: Plan
    out: Path
    version: str
    progress: Progress | None = None
    new_points: int = 0
    _results: dict[str, Result] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.benchmark.metric != "cosine":
            raise InvalidInputError(
                f"{self.benchmark.name} uses metric {self.benchmark.metric}; the paper's experiments need cosine"
            )
        self._points = Points(self.out / "points.jsonl", self.benchmark.fingerprint, self.version)
        self._evaluator = Evaluator(self.benchmark, self.plan.list_length)

    def __call__(self, names: Sequence[str] = ()) -> Path:
        """Measure missing points, write every experiment that is complete, and return the path of the report."""
        experiments = select_experiments(names)
        trials = [trial for experiment in experiments for trial in experiment.trials(self.plan)]
        wanted = {trial.key: trial for trial in sorted(trials, key=lambda trial: trial.timed)}  # the timed one stays
        for experiment in sorted(experiments, key=lambda experiment: experiment.slow):
            self._measure_missing(experiment.trials(self.plan), wanted)
            self.write()
        return self.out / "report.md"

    def result(self, name: str) -> Result | None:
        return EXPERIMENTS[name].result(self.plan, self._points, self.benchmark.main)

    def write(self) -> None:
        """Write the CSV file and the figure of each complete experiment, and the report."""
        self.out.mkdir(parents=True, exist_ok=True)
        for name, experiment in EXPERIMENTS.items():
            if name not in self._results and (result := self.result(name)) is not None:
                self._results[name] = result
                replace_file(self.out / f"{name}.csv", _to_csv(result.rows).encode())
                with plots.saved_figure(
                    self.out / name, experiment.figure_size, smoke_test(self.benchmark)
                ) as figure:
                    experiment.draw(figure, result)
        complete = {name: self._results[name] for name in EXPERIMENTS if name in self._results}
        exhaustive = self._points[EXHAUSTIVE] if self._points.has(EXHAUSTIVE) else None
        report = markdown_report(self.benchmark, self.plan, exhaustive, complete)
        replace_file(self.out / "report.md", report.encode())

    def _measure_missing(self, trials: Sequence[Trial], wanted: dict[str, Trial]) -> None:
        """Measure the missing trials, each together with all wanted trials of its family: they share the build."""
        for trial in trials:
            if self._points.has(wanted[trial.key]):
                continue
            missing = [other for other in wanted.values() if not self._points.has(other)]
            if self.progress is not None:
                self.progress("points", len(wanted) - len(missing), len(wanted))
            same_family = [other for other in missing if other.family == trial.family]
            self._evaluator.measure(same_family, self.progress, self._keep)

    def _keep(self, trial: Trial, point: Point) -> None:
        self._points.add(trial, point)
        self.new_points += 1


def _to_csv(rows: Sequence[Row]) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)), restval="")
    writer.writeheader()
    writer.writerows({name: _csv_cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _csv_cell(value: Any) -> Any:
    if isinstance(value, tuple):
        return " ".join(f"{part:.4f}" for part in value)
    if isinstance(value, float):
        return "" if math.isnan(value) else round(value, 4)
    return value

"""The interface of all experiments: trials to measure, rows of a table, a figure, and claims to judge."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from logt.baselines import Exhaustive
from logt.reproduce.claims import Claim, Pair
from logt.reproduce.plan import Plan
from logt.reproduce.trials import Measurements, Point, SeedMean, Trial

Row = dict[str, Any]
TRUNCATED = "mAP of truncated lists"
"""The column that compares systems with long and with short lists in the same way."""

EXHAUSTIVE = Trial.from_settings(Exhaustive(), timed=True)
"""Exhaustive search: part of every experiment."""


@dataclass(frozen=True)
class ExperimentResult:
    """The rows of an experiment, the plan they belong to, and the mAP of exhaustive search."""

    plan: Plan
    rows: Sequence[Row]
    exhaustive: SeedMean
    protocol: str

    def select(self, **values: Any) -> list[Row]:
        """Return the rows with these values, without those that could not be measured."""
        return [
            row
            for row in self.rows
            if not row.get("note") and all(row.get(name) == value for name, value in values.items())
        ]

    def pairs(self, first: str, second: str, parameter: str) -> list[Pair]:
        """Return the mAP of two systems at each value of a parameter for which both were measured."""
        others = {row[parameter]: mean_ap(row) for row in self.select(system=second)}
        return [
            Pair(format_setting(parameter, row[parameter]), mean_ap(row), others[row[parameter]])
            for row in self.select(system=first)
            if row[parameter] in others
        ]


class Experiment(ABC):
    """One figure or table of section 4.

    source: the figure or table. columns: those shown in the report. slow: whether it runs last.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    description: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]
    figure_size: ClassVar[tuple[float, float]] = (6.4, 3.6)
    slow: ClassVar[bool] = False

    @abstractmethod
    def trials(self, plan: Plan) -> list[Trial]:
        """Return everything that has to be measured."""

    @abstractmethod
    def rows(self, plan: Plan, measurements: Measurements) -> list[Row]:
        """Return the rows of the table, once all trials are measured."""

    @abstractmethod
    def claims(self, result: ExperimentResult) -> list[Claim]:
        """Return the judged claims."""

    @abstractmethod
    def draw(self, figure: Any, result: ExperimentResult) -> None:
        """Draw the result into a matplotlib figure."""


# ----------------------------------------------------------------------------------------------------- rows


def make_row(measurements: Measurements, trial: Trial, seeds: int = 1, **labels: Any) -> Row:
    """Return a row with the given labels and the values of a trial over seeds, or the note why there are none."""
    note = next((n for t in trial.repeat(seeds) if (n := measurements.note(t))), "")
    if note:
        return {**labels, "note": note}
    mean_ap, point = measurements.mean_ap(trial, seeds), measurements.point(trial)
    row: Row = {
        **labels,
        "mAP": mean_ap.mean,
        "deviation": mean_ap.deviation if seeds > 1 else None,
        "seeds": seeds,
        "mAP by seed": mean_ap.values,
        "complexity": SeedMean(tuple(measurements.point(t)["rho"] for t in trial.repeat(seeds))).mean,
        "memory": point["memory"],
        "bytes": point["bytes"],
        "index seconds": point["seconds"],
        "list depth": point["depth"],
        TRUNCATED: measurements.mean_ap(trial, seeds, kind="map@cut").mean,
        "recall@10": point["recall@10"],
    }
    row |= {f"mP@{k}": value for k, value in point["precision"][measurements.protocol].items()}
    others = [protocol for protocol in point["map"] if protocol != measurements.protocol]
    row |= {f"mAP {protocol}": measurements.mean_ap(trial, seeds, protocol=protocol).mean for protocol in others}
    return {**row, **_time_columns(point), "note": ""}


def _time_columns(point: Point) -> Row:
    if "ms" not in point:
        return {}
    return {
        "recall@1": point["recall@1"],
        "ms": point["ms"],
        "ms exhaustive": point["ms exhaustive"],
        "ms, batch": point["ms batch"],
        "time ratio": point["ms"] / point["ms exhaustive"],
        "time ratio, batch": point["ms batch"] / point["ms batch exhaustive"],
    }


def mean_ap(row: Row) -> SeedMean:
    """Return the mAP of a row over seeds."""
    return SeedMean(row["mAP by seed"])


def format_setting(parameter: str, value: Any) -> str:
    """Return a value of a parameter as text: "n=20", "p=50%"."""
    return f"{parameter}={value:.0%}" if parameter == "p" else f"{parameter}={value}"


def format_index_time(row: Row) -> str:
    """Return the index time of a row as text: "0.4 s", "2.2 minutes"."""
    seconds = row["index seconds"]
    if seconds is None:
        return "a time that was not measured separately"
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds / 60:.1f} minutes"

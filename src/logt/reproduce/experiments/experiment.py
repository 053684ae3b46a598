"""An experiment: the rows of its table and how they are measured, the claims to judge, and a figure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from logt.reproduce.claims import Claim, Pair, SeedMean
from logt.reproduce.plan import Plan
from logt.reproduce.trials import EXHAUSTIVE, Points, Trial

Row = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """A row of a table: its labels by column, the trial that is measured, and with how many seeds."""

    labels: Row
    trial: Trial
    seeds: int = 1


@dataclass(frozen=True)
class Result:
    """The rows of an experiment, the plan they belong to, and the mAP of exhaustive search."""

    plan: Plan
    rows: Sequence[Row]
    exhaustive: SeedMean
    protocol: str

    def select(self, *systems: str, **values: Any) -> list[Row]:
        """Return the rows of some systems, or all, with these values; without those that could not be measured."""
        return [
            row
            for row in self.rows
            if not row["note"]
            and (not systems or row["system"] in systems)
            and all(row.get(name) == value for name, value in values.items())
        ]

    def pairs(self, first: str, second: str, parameter: str) -> list[Pair]:
        """Return the mAP of two systems at each value of a parameter for which both were measured."""
        others = {row[parameter]: mean_ap(row) for row in self.select(second)}
        return [
            Pair(format_setting(parameter, row[parameter]), mean_ap(row), others[row[parameter]])
            for row in self.select(first)
            if row[parameter] in others
        ]


@dataclass(frozen=True)
class Experiment:
    """One figure or table of section 4.

    source: the figure or table. columns: those shown in the report. entries: the rows to measure. claims: the judged
    claims. draw: draws the result into a matplotlib figure. slow: whether it runs last.
    """

    name: str
    title: str
    source: str
    description: str
    columns: tuple[str, ...]
    entries: Callable[[Plan], list[Entry]]
    claims: Callable[[Result], list[Claim]]
    draw: Callable[[Any, Result], None]
    figure_size: tuple[float, float] = (6.4, 3.6)
    slow: bool = False

    def trials(self, plan: Plan) -> list[Trial]:
        return [EXHAUSTIVE, *(trial for entry in self.entries(plan) for trial in entry.trial.repeat(entry.seeds))]

    def result(self, plan: Plan, points: Points, protocol: str) -> Result | None:
        """Return the result; None unless all trials are measured."""
        if not all(map(points.has, self.trials(plan))):
            return None
        rows = [make_row(entry, points) for entry in self.entries(plan)]
        exhaustive = SeedMean((points[EXHAUSTIVE]["mAP"],) * plan.seeds)  # equal for all seeds
        return Result(plan, rows, exhaustive, protocol)


def make_row(entry: Entry, points: Points) -> Row:
    """Return the labels and the values of an entry, mAP and complexity as means over its seeds; or a note."""
    by_seed = [points[trial] for trial in entry.trial.repeat(entry.seeds)]
    note = next((point["note"] for point in by_seed if "note" in point), "")
    if note:
        return {**entry.labels, "note": note}
    first = by_seed[0]
    if "mAP" not in first:
        return {**entry.labels, **first, "note": "only its build was measured"}
    averaged = [name for name in first if name == "complexity" or name.startswith("mAP")]
    values = {name: SeedMean(tuple(point[name] for point in by_seed)) for name in averaged}
    return {
        **entry.labels,
        **first,
        **{name: value.mean for name, value in values.items()},
        "deviation": values["mAP"].deviation if entry.seeds > 1 else None,
        "seeds": entry.seeds,
        "mAP by seed": values["mAP"].values,
        "note": "",
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
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds / 60:.1f} minutes"

"""What an experiment is: trials to make, rows for its table, a figure, and claims to judge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from logt.baselines import Exhaustive
from logt.reproduce.claims import Claim
from logt.reproduce.plan import Plan
from logt.reproduce.trials import Mean, Results, Trial

Row = dict[str, Any]
CUT = "mAP of cut lists"
"""The column that compares long and short lists alike."""

BASELINE = Trial.of(Exhaustive(), timed=True)
"""Exhaustive search: part of every experiment."""


@dataclass(frozen=True)
class Found:
    """An experiment's rows, with the plan they were made by and the mAP of exhaustive search."""

    plan: Plan
    rows: Sequence[Row]
    base: Mean
    protocol: str

    def of(self, **wanted: Any) -> list[Row]:
        """The rows with these values that have a figure."""
        return [
            row
            for row in self.rows
            if not row.get("note") and all(row.get(name) == value for name, value in wanted.items())
        ]

    def pairs(self, first: str, second: str, by: str) -> list[tuple[str, Mean, Mean]]:
        """(place, mAP of the first system, mAP of the second) wherever both were measured."""
        theirs = {row[by]: mean_of(row) for row in self.of(system=second)}
        mine = [(row[by], mean_of(row)) for row in self.of(system=first)]
        return [(place(by, value), mean, theirs[value]) for value, mean in mine if value in theirs]


@dataclass(frozen=True)
class Experiment:
    """One figure or table of section 4. `columns` are those that the report shows; slow ones are run last."""

    name: str
    title: str
    where: str
    asks: str
    columns: tuple[str, ...]
    trials: Callable[[Plan], list[Trial]]
    rows: Callable[[Plan, Results], list[Row]]
    claims: Callable[[Found], list[Claim]]
    draw: Callable[[Any, Found], None]
    size: tuple[float, float] = (6.4, 3.6)
    slow: bool = False


def row_of(results: Results, trial: Trial, seeds: int = 1, **first: Any) -> Row:
    """The figures of a trial over seeds, behind what names it; without figures, the note that says why."""
    note = next((n for s in range(seeds) if (n := results.note(trial.seeded(s)))), "")
    if note:
        return {**first, "note": note}
    mean_ap, point = results.mean_ap(trial, seeds), results.of(trial)
    row: Row = {
        **first,
        "mAP": mean_ap.value,
        "deviation": mean_ap.deviation if seeds > 1 else None,
        "seeds": seeds,
        "mAP by seed": mean_ap.values,
        "complexity": Mean(tuple(results.of(trial.seeded(s))["rho"] for s in range(seeds))).value,
        "memory": point["memory"],
        "bytes": point["bytes"],
        "index seconds": point["seconds"],
        "list depth": point["depth"],
        CUT: results.mean_ap(trial, seeds, kind="map@cut").value,
        "recall@10": point["recall@10"],
    }
    row |= {f"mP@{k}": value for k, value in point["precision"][results.main].items()}
    others = [protocol for protocol in point["map"] if protocol != results.main]
    row |= {f"mAP {protocol}": results.mean_ap(trial, seeds, protocol=protocol).value for protocol in others}
    if "ms" in point:
        row |= {
            "recall@1": point["recall@1"],
            "ms": point["ms"],
            "ms exhaustive": point["ms exhaustive"],
            "ms, batch": point["ms batch"],
            "time ratio": point["ms"] / point["ms exhaustive"],
            "time ratio, batch": point["ms batch"] / point["ms batch exhaustive"],
        }
    return {**row, "note": ""}


def index_time(row: Row) -> str:
    """How long an index took, in words: "0.4 s", "2.2 minutes"."""
    seconds = row["index seconds"]
    if seconds is None:
        return "a time that was not taken alone"
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds / 60:.1f} minutes"


def mean_of(row: Row) -> Mean:
    return Mean(row["mAP by seed"])


def place(by: str, value: Any) -> str:
    """A value of what is varied, in words: "n=20", "p=50 %"."""
    return f"{by}={value:.0%}" if by == "p" else f"{by}={value}"


def over_seeds(trial: Trial, seeds: int) -> list[Trial]:
    return [trial.seeded(seed) for seed in range(seeds)]

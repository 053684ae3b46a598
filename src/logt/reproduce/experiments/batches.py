"""Figure 5, left: vectors that are added in batches, each indexed separately, and searched together."""

from __future__ import annotations

from typing import Any

from logt.reproduce import paper, plots
from logt.reproduce.claims import Claim, above, equal, judge
from logt.reproduce.experiments.experiment import (
    EXHAUSTIVE,
    TRUNCATED,
    Experiment,
    ExperimentResult,
    Row,
    format_index_time,
    make_row,
    mean_ap,
)
from logt.reproduce.experiments.systems import default_index, dictionary_system, local_system, variant_trial
from logt.reproduce.plan import Plan
from logt.reproduce.trials import Measurements, Trial

DICTIONARY = "dictionary"
_STYLES = {**plots.STYLES, DICTIONARY: {"color": plots.RED, "marker": "s", "linestyle": "--"}}


class BatchesExperiment(Experiment):
    name = "batches"
    title = "Batch processing"
    source = "Figure 5 (left)"
    description = (
        "The vectors are split at random into b batches. Each batch has its own memory vectors and decoder; the "
        "default index reuses its memory vectors for later batches if they still fit, and its lists are truncated. "
        "Error bars are standard deviations over seeds."
    )
    columns = ("system", "b", "mAP", "deviation", "seeds", TRUNCATED, "list depth", "complexity", "index seconds")

    def trials(self, plan: Plan) -> list[Trial]:
        return [EXHAUSTIVE, *(t for trial, seeds in _trials(plan).values() for t in trial.repeat(seeds))]

    def rows(self, plan: Plan, measurements: Measurements) -> list[Row]:
        return [
            make_row(measurements, trial, seeds, system=name, b=b)
            for (name, b), (trial, seeds) in _trials(plan).items()
        ]

    def claims(self, result: ExperimentResult) -> list[Claim]:
        return [_stable(result), *_dictionary(result)]

    def draw(self, figure: Any, result: ExperimentResult) -> None:
        axes = figure.subplots()
        for name in ("LO-GT*", "logt", DICTIONARY):
            plots.curve(axes, result.select(system=name), "b", name, _STYLES[name])
        axes.set(xlabel="number of batches, b", ylabel=f"mAP ({result.protocol})")
        axes.set_xticks(result.plan.batches)
        plots.exhaustive_line(axes, result.exhaustive.mean)
        plots.legend(figure)


def _trials(plan: Plan) -> dict[tuple[str, int], tuple[Trial, int]]:
    """Return (trial, number of seeds) by system and number of batches."""
    trials = {}
    for b in plan.batches:
        trials["LO-GT*", b] = variant_trial("LO-GT*", local_system("LO-GT*", plan, batches=b)), plan.seeds
        trials["logt", b] = Trial.from_settings(default_index(batches=b), depth=plan.list_length), plan.seeds
    for b in plan.dictionary_batches:
        trials[DICTIONARY, b] = Trial.from_settings(dictionary_system(plan, batches=b)), 1
    return trials


def _large_batches(result: ExperimentResult, rows: list[Row]) -> list[Row]:
    """Return the rows whose batches are about as large as the paper's smallest, or larger."""
    return [row for row in rows if result.plan.count / row["b"] >= 0.9 * paper.SMALLEST_BATCH]


def _stable(result: ExperimentResult) -> Claim:
    rows, plan = result.select(system="LO-GT*"), result.plan
    one, *others = _large_batches(result, rows) or rows[:1]
    return Claim(
        "The accuracy is stable for any number of batches.",
        judge([equal(mean_ap(one), mean_ap(row)) for row in others]),
        f"LO-GT*: {_by_batches(rows)}. Only batches of about {paper.SMALLEST_BATCH:,} vectors or more are judged, "
        f"the size of the paper's smallest; with fewer than about {plan.L * plan.n // plan.m:,} vectors, a batch has "
        f"fewer units than L. The default index: {_by_batches(result.select(system='logt'))}.",
    )


def _by_batches(rows: list[Row]) -> str:
    return ", ".join(f"{mean_ap(row)} at b = {row['b']}" for row in rows)


def _dictionary(result: ExperimentResult) -> list[Claim]:
    rows = result.select(system=DICTIONARY)
    if len(rows) < 2:
        return []
    first, *others = _large_batches(result, rows) or rows[:1]
    (lo_gt,) = result.select(system="LO-GT*", b=1)
    return [
        Claim(
            "Dictionary learning becomes significantly worse with more batches.",
            judge([above(mean_ap(first), mean_ap(row)) for row in others]),
            ", ".join(f"{mean_ap(row)} at b = {row['b']} ({format_index_time(row)})" for row in rows) + ".",
        ),
        Claim(
            f"The index time of dictionary learning is very high ({paper.DICTIONARY_HOURS} hours for a million "
            "vectors at b = 10).",
            judge([first["index seconds"] > 10 * lo_gt["index seconds"]]),
            f"{format_index_time(first)}; LO-GT* {format_index_time(lo_gt)}.",
        ),
    ]

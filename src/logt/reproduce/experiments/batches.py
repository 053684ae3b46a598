"""Vectors that come in batches: each is indexed by itself, and all are searched together."""

from __future__ import annotations

from typing import Any

from logt.reproduce import paper, plots
from logt.reproduce.claims import Claim, above, judged, level
from logt.reproduce.experiments.experiment import (
    BASELINE,
    CUT,
    Experiment,
    Found,
    Row,
    index_time,
    mean_of,
    over_seeds,
    row_of,
)
from logt.reproduce.experiments.systems import default_index, dictionary, local, variant
from logt.reproduce.plan import Plan
from logt.reproduce.trials import Results, Trial

LEARNED = "dictionary"


def _of(plan: Plan) -> dict[tuple[str, int], tuple[Trial, int]]:
    """By system and number of batches: the trial, and over how many seeds it goes."""
    trials = {}
    for b in plan.batches:
        trials["LO-GT*", b] = variant("LO-GT*", local("LO-GT*", plan, batches=b)), plan.seeds
        trials["logt", b] = Trial.of(default_index(batches=b), depth=plan.cut), plan.seeds
    for b in plan.learned_batches:
        trials[LEARNED, b] = Trial.of(dictionary(plan, batches=b)), 1
    return trials


def _trials(plan: Plan) -> list[Trial]:
    return [BASELINE, *(t for trial, seeds in _of(plan).values() for t in over_seeds(trial, seeds))]


def _rows(plan: Plan, results: Results) -> list[Row]:
    return [row_of(results, trial, seeds, system=name, b=b) for (name, b), (trial, seeds) in _of(plan).items()]


def _claims(found: Found) -> list[Claim]:
    return [_stable(found, "LO-GT*"), *_learned(found)]


def _large(found: Found, rows: list[Row]) -> list[Row]:
    """Those whose batches are as large as the paper's smallest, about."""
    return [row for row in rows if found.plan.count / row["b"] >= 0.9 * paper.SMALLEST_BATCH]


def _stable(found: Found, name: str) -> Claim:
    rows = found.of(system=name)
    one, *others = _large(found, rows) or rows[:1]
    default = found.of(system="logt")
    return Claim(
        "The performance is stable whatever the number of batches.",
        judged([level(mean_of(one), mean_of(row)) for row in others]),
        ", ".join(f"{mean_of(row)} at b = {row['b']}" for row in rows)
        + f". Judged where a batch has {paper.SMALLEST_BATCH:,} vectors, as the paper's smallest: below about "
        f"{found.plan.L * found.plan.n // found.plan.m:,}, it has fewer units than L. The default index: "
        + ", ".join(f"{mean_of(row)} at b = {row['b']}" for row in default)
        + ".",
    )


def _learned(found: Found) -> list[Claim]:
    rows = found.of(system=LEARNED)
    if len(rows) < 2:
        return []
    first, *others = _large(found, rows) or rows[:1]
    (ours,) = found.of(system="LO-GT*", b=1)
    return [
        Claim(
            "Dictionary learning degrades significantly as data come in more batches.",
            judged([above(mean_of(first), mean_of(row)) for row in others]),
            ", ".join(f"{mean_of(row)} at b = {row['b']} ({index_time(row)})" for row in rows) + ".",
        ),
        Claim(
            f"Its index time is extremely high ({paper.DICTIONARY_HOURS} hours for a million vectors at b = 10).",
            judged([first["index seconds"] > 10 * ours["index seconds"]]),
            f"{index_time(first)}, against {index_time(ours)} of LO-GT*.",
        ),
    ]


_STYLES = {**plots.STYLES, LEARNED: {"color": plots.RED, "marker": "s", "linestyle": "--"}}


def _draw(figure: Any, found: Found) -> None:
    axes = figure.subplots()
    for name in ("LO-GT*", "logt", LEARNED):
        plots.curve(axes, found.of(system=name), "b", name, _STYLES[name])
    axes.set(xlabel="number of batches, b", ylabel=f"mAP ({found.protocol})")
    axes.set_xticks(found.plan.batches)
    plots.baseline(axes, found.base.value)
    plots.legend(figure)


BATCHES = Experiment(
    name="batches",
    title="Batch processing",
    where="Figure 5, left",
    asks="The vectors are cut at random into b batches. Each has memory vectors and a decoder of its own; the "
    "default index shares its memory vectors where they fit, and its lists are cut. Bars are deviations over seeds.",
    columns=("system", "b", "mAP", "deviation", "seeds", CUT, "list depth", "complexity", "index seconds"),
    trials=_trials,
    rows=_rows,
    claims=_claims,
    draw=_draw,
)

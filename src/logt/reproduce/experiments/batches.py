"""Figure 5, left: vectors that are added in batches, each indexed separately, and searched together."""

from typing import Any

from logt.reproduce import paper, plots
from logt.reproduce.claims import Claim, above, equal, judge
from logt.reproduce.experiments.experiment import Entry, Experiment, Result, Row, format_index_time, mean_ap
from logt.reproduce.experiments.systems import default_index, dictionary_system, local_system, variant_trial
from logt.reproduce.plan import Plan
from logt.reproduce.trials import TRUNCATED, Trial

DICTIONARY = "dictionary"
_STYLES = {**plots.STYLES, DICTIONARY: {"color": plots.RED, "marker": "s", "linestyle": "--"}}


def _entries(plan: Plan) -> list[Entry]:
    entries = []
    for b in plan.batches:
        lo_gt = variant_trial("LO-GT*", local_system("LO-GT*", plan, batches=b))
        default = Trial(default_index(batches=b), depth=plan.list_length)
        entries += [
            Entry({"system": "LO-GT*", "b": b}, lo_gt, plan.seeds),
            Entry({"system": "logt", "b": b}, default, plan.seeds),
        ]
    for b in plan.dictionary_batches:
        learned = Trial(dictionary_system(plan, batches=b))
        entries.append(Entry({"system": DICTIONARY, "b": b}, learned))
    return entries


def _large_batches(result: Result, rows: list[Row]) -> list[Row]:
    """Return the rows whose batches are about as large as the paper's smallest, or larger."""
    return [row for row in rows if result.plan.count / row["b"] >= 0.9 * paper.SMALLEST_BATCH]


def _stable(result: Result) -> Claim:
    rows, plan = result.select("LO-GT*"), result.plan
    one, *others = _large_batches(result, rows) or rows[:1]
    return Claim(
        "The accuracy is stable for any number of batches.",
        judge([equal(mean_ap(one), mean_ap(row)) for row in others]),
        f"LO-GT*: {_by_batches(rows)}. Only batches of about {paper.SMALLEST_BATCH:,} vectors or more are judged, "
        f"the size of the paper's smallest; with fewer than about {plan.L * plan.n // plan.m:,} vectors, a batch has "
        f"fewer units than L. The default index: {_by_batches(result.select('logt'))}.",
    )


def _by_batches(rows: list[Row]) -> str:
    return ", ".join(f"{mean_ap(row)} at b = {row['b']}" for row in rows)


def _dictionary(result: Result) -> list[Claim]:
    rows = result.select(DICTIONARY)
    if len(rows) < 2:
        return []
    first, *others = _large_batches(result, rows) or rows[:1]
    (lo_gt,) = result.select("LO-GT*", b=1)
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


def _draw(figure: Any, result: Result) -> None:
    axes = figure.subplots()
    for name in ("LO-GT*", "logt", DICTIONARY):
        plots.curve(axes, result.select(name), "b", name, _STYLES[name])
    axes.set(xlabel="number of batches, b", ylabel=f"mAP ({result.protocol})")
    axes.set_xticks(result.plan.batches)
    plots.exhaustive_line(axes, result.exhaustive.mean)
    plots.legend(figure)


BATCHES = Experiment(
    name="batches",
    title="Batch processing",
    source="Figure 5 (left)",
    description="The vectors are split at random into b batches. Each batch has its own memory vectors and "
    "decoder; the default index reuses its memory vectors for later batches if they still fit, and its lists are "
    "truncated. Error bars are standard deviations over seeds.",
    columns=("system", "b", "mAP", "deviation", "seeds", TRUNCATED, "list depth", "complexity", "index seconds"),
    entries=_entries,
    claims=lambda result: [_stable(result), *_dictionary(result)],
    draw=_draw,
)

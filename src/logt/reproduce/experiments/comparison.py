"""Table 1: every system by complexity, memory, bytes, index time and mAP."""

from __future__ import annotations

from typing import Any

from logt.reproduce import paper, plots
from logt.reproduce.claims import Claim
from logt.reproduce.experiments.comparison_claims import comparison_claims
from logt.reproduce.experiments.comparison_systems import (
    DIFFUSED,
    LO_GT_CASCADE,
    Entry,
    table_entries,
)
from logt.reproduce.experiments.experiment import (
    EXHAUSTIVE,
    TRUNCATED,
    Experiment,
    ExperimentResult,
    Row,
    make_row,
)
from logt.reproduce.plan import Plan
from logt.reproduce.trials import Measurements, Trial

_STYLES: dict[str, plots.Style] = {
    "exhaustive": {"color": plots.BLACK, "marker": "*"},
    "group testing": {"color": plots.YELLOW, "marker": "P", "markeredgecolor": "0.3"},
    "memory vectors": {"color": plots.ORANGE, "marker": "X"},
    "learned": {"color": plots.PURPLE, "marker": "s"},
    "RND": {"color": plots.RED, "marker": "^"},
    "LO-GT": {"color": plots.BLUE, "marker": "o"},
    "logt": {"color": plots.GREEN, "marker": "D"},
    "PCA": {"color": "0.45", "marker": "v"},
    "quantizers": {"color": plots.SKY, "marker": "p"},
    "partitions and graphs": {"color": "0.7", "marker": "h"},
}
_LOWEST = 0.6  # of the mAP of exhaustive search: lower values are counted, not drawn
_LABEL_OFFSETS = {
    "dictionary": (5, -9),
    LO_GT_CASCADE: (3, 6),
    "logt (default)": (3, 6),
    DIFFUSED: (5, -10),
}
"""Systems with a label in the figure, and its offset from the marker; the label is on the left if x is negative."""


class ComparisonExperiment(Experiment):
    name = "comparison"
    title = "Comparison with other methods"
    source = "Table 1"
    description = (
        "Complexity and memory as the paper counts them, and the true number of bytes. For GT pinv, the counts are "
        "those of the dense G⁺; the implementation stores G and solves the same equations for each query. "
        "The diffused decoder re-ranks by diffusion; its complexity is that of the search before."
    )
    columns = (
        "system",
        "complexity",
        "memory",
        "bytes per vector",
        "index seconds",
        "mAP",
        "deviation",
        TRUNCATED,
        "list depth",
        "ms",
        "time ratio",
        "paper: complexity",
        "paper: memory",
        "paper: mAP minus exhaustive",
        "paper: minutes (32 cores)",
    )
    figure_size = (9.0, 4.0)

    def trials(self, plan: Plan) -> list[Trial]:
        return [trial for entry in table_entries(plan) for trial in entry.trial.repeat(entry.seeds)]

    def rows(self, plan: Plan, measurements: Measurements) -> list[Row]:
        return [_table_row(entry, plan, measurements) for entry in table_entries(plan)]

    def claims(self, result: ExperimentResult) -> list[Claim]:
        return comparison_claims(result)

    def draw(self, figure: Any, result: ExperimentResult) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        _draw_systems(left, result, "complexity")
        _draw_systems(right, result, "bytes per vector")
        stated = [row for name, row in paper.TABLE.items() if name != "exhaustive"]
        points = [(row.complexity, paper.shift_to(result.exhaustive.mean, row.oxford)) for row in stated]
        plots.paper_points(left, points, {"marker": "o", "color": "0.2"}, "stated in the paper")
        left.set(xlabel="complexity ratio ρ", ylabel=f"mAP ({result.protocol}), lists of {result.plan.list_length:,}")
        right.set_xlabel("bytes per vector")
        plots.legend(figure)


def _table_row(entry: Entry, plan: Plan, measurements: Measurements) -> Row:
    row = make_row(measurements, entry.trial, entry.seeds, system=entry.name, kind=entry.kind)
    if not row["note"]:
        row["bytes per vector"] = row["bytes"] / plan.count
        row["bytes ratio"] = row["bytes"] / (4 * plan.dim * plan.count)
        row["minus exhaustive"] = row["mAP"] - measurements.mean_ap(EXHAUSTIVE).mean
    if entry.paper_row:
        stated = paper.TABLE[entry.paper_row]
        row["paper: complexity"], row["paper: memory"] = stated.complexity, stated.memory
        row["paper: mAP minus exhaustive"] = stated.oxford - paper.OXFORD
        row["paper: minutes (32 cores)"] = stated.minutes
    return row


def _draw_systems(axes: Any, result: ExperimentResult, x: str) -> None:
    """Plot the mAP of all systems over a column."""
    for kind, style in _STYLES.items():
        rows = result.select(kind=kind)
        axes.plot([row[x] for row in rows], [row[TRUNCATED] for row in rows], linestyle="none", label=kind, **style)
    for row in result.select():
        if row["system"] in _LABEL_OFFSETS:
            plots.annotate(axes, (row[x], row[TRUNCATED]), row["system"], _LABEL_OFFSETS[row["system"]])
    axes.set_xscale("log")
    plots.plain_log_ticks(axes.xaxis)
    (exhaustive,) = result.select(system="exhaustive")
    axes.axhline(exhaustive[TRUNCATED], color=plots.BLACK, linestyle=(0, (5, 3)), linewidth=1)
    lowest = _LOWEST * exhaustive[TRUNCATED]
    below = sum(row[TRUNCATED] < lowest for row in result.select())
    axes.set_ylim(bottom=lowest)
    if below:
        axes.text(
            0.02, 0.02, f"{below} more systems below", transform=axes.transAxes, fontsize="x-small", color="0.4"
        )

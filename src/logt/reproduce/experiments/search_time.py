"""Section 4.2: the search time of LO-GT*, next to its complexity ratio."""

from __future__ import annotations

from typing import Any

from logt.reproduce import paper, plots
from logt.reproduce.claims import Claim, judge, reaches
from logt.reproduce.experiments.experiment import ExperimentResult, mean_ap
from logt.reproduce.experiments.timed import (
    BY_L,
    BY_P,
    DEFAULT,
    STYLES,
    TimedExperiment,
    TimedTrials,
    lo_gt_rows,
    own_settings,
)
from logt.reproduce.plan import Plan


class SearchTimeExperiment(TimedExperiment):
    name = "time"
    title = "Search time"
    source = "Section 4.2"
    description = (
        "Searches on one thread, in turn with exhaustive search by BLAS: the sparse decoder by L, the cascade by p, "
        "and the default index by effort."
    )

    def settings(self, plan: Plan) -> TimedTrials:
        return own_settings(plan)

    def claims(self, result: ExperimentResult) -> list[Claim]:
        near = min(result.select(system=BY_P), key=lambda row: abs(row["complexity"] - paper.TIME.rho))
        default = min(
            result.select(system=DEFAULT),
            key=lambda row: (not reaches(mean_ap(row), result.exhaustive), row["time ratio"]),
        )
        return [
            Claim(
                f"At ρ = {paper.TIME.rho}, the time ratio to exhaustive search is {paper.TIME.ratio:.2f} "
                f"({paper.TIME.lo_gt} s and {paper.TIME.exhaustive} s).",
                judge([near["time ratio"] <= 1.1 * paper.TIME.ratio]),
                f"{near['setting']}, at ρ = {near['complexity']:.2f}: {near['ms']:.2f} ms, exhaustive search "
                f"{near['ms exhaustive']:.2f} ms, a ratio of {near['time ratio']:.3f} "
                f"({near['time ratio, batch']:.3f} in a batch). {_fastest(result)} The default index at "
                f"{default['setting']}: mAP {mean_ap(default)} at a time ratio of {default['time ratio']:.4f}.",
            )
        ]

    def draw(self, figure: Any, result: ExperimentResult) -> None:
        axes = figure.subplots()
        for name in (BY_L, BY_P):
            rows = sorted(result.select(system=name), key=lambda row: row["complexity"])
            for y, line, queries in (("time ratio", "-", "one query"), ("time ratio, batch", ":", "batch")):
                style = {**STYLES[name], "linestyle": line}
                plots.curve(axes, rows, "complexity", f"{name}, {queries}", style, y=y)
        stated = [(paper.TIME.rho, paper.TIME.ratio)]
        plots.paper_points(axes, stated, {"marker": "o", "color": plots.BLUE}, "LO-GT*, paper")
        low, high = axes.get_xlim()
        axes.plot([low, high], [low, high], color="0.5", linestyle="--", linewidth=1, label="time ratio = ρ")
        axes.axhline(1.0, color=plots.BLACK, linestyle=(0, (5, 3)), linewidth=1.1, label="exhaustive search")
        axes.set(
            xlabel="complexity ratio ρ", ylabel="time ratio to exhaustive search", xlim=(low, high), ylim=(0, None)
        )
        plots.legend(figure)


def _fastest(result: ExperimentResult) -> str:
    accurate = [row for row in lo_gt_rows(result) if reaches(mean_ap(row), result.exhaustive)]
    if not accurate:
        return "No setting of LO-GT* reaches the mAP of exhaustive search here."
    ratio = min(row["time ratio"] for row in accurate)
    return f"The fastest setting of LO-GT* with the mAP of exhaustive search has a time ratio of {ratio:.3f}."

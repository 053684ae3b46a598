"""Figure 4, right: the cascade decoder by p."""

from __future__ import annotations

from typing import Any

from logt.reproduce import paper
from logt.reproduce.claims import Claim, judge, judge_above, reaches
from logt.reproduce.experiments.experiment import ExperimentResult, mean_ap
from logt.reproduce.experiments.variants import (
    Sweep,
    VariantSweep,
    cascade_trials,
    draw_by_complexity,
    random_differences,
    random_pairs,
    table_columns,
)
from logt.reproduce.plan import Plan


class CascadeExperiment(VariantSweep):
    name = "cascade"
    title = "Cascade decoder, by p"
    source = "Figure 4 (right)"
    description = (
        "U⁰, with the fraction p of the energy of each vector's code, ranks all vectors; all of U re-ranks the first "
        "R of them."
    )
    parameter = "p"
    columns = table_columns("p")

    def sweep(self, plan: Plan) -> Sweep:
        return cascade_trials(plan)

    def claims(self, result: ExperimentResult) -> list[Claim]:
        return [
            _lower_complexity(result),
            Claim(
                "With the cascade, LO-GT* stays above the random variants.",
                judge_above(random_pairs(result, "LO-GT*", "p")),
                random_differences(result, "LO-GT*", "p"),
            ),
        ]

    def draw(self, figure: Any, result: ExperimentResult) -> None:
        draw_by_complexity(figure, result, "p", (paper.CASCADE,), ("LO-GT*", "RND*", "RND"))


def _lower_complexity(result: ExperimentResult) -> Claim:
    """Compare all of U with the largest p that lowers the complexity as much as in the paper."""
    curve = sorted(result.select(system="LO-GT*"), key=lambda row: row["p"])
    full = curve[-1]
    smallest = next(row for row in curve if reaches(mean_ap(row), mean_ap(full)))
    stated_reduction = paper.CASCADE.rho / paper.SPARSE[-1].rho
    cheap = [row for row in curve if row["complexity"] <= stated_reduction * full["complexity"]]
    chosen = cheap[-1] if cheap else curve[0]
    return Claim(
        f"The cascade lowers the complexity without loss of accuracy (in the paper from ρ = "
        f"{paper.SPARSE[-1].rho} to {paper.CASCADE.rho}).",
        judge([reaches(mean_ap(row), mean_ap(full)) for row in cheap[-1:]]),
        f"All of U: mAP {mean_ap(full)} at ρ = {full['complexity']:.3f}. The smallest p without loss is "
        f"{smallest['p']:.0%}, at ρ = {smallest['complexity']:.3f}. At p = {chosen['p']:.0%} "
        f"(ρ = {chosen['complexity']:.3f}), "
        + ("where ρ is reduced at least as much as in the paper" if cheap else "the smallest p measured")
        + f", mAP changes by {(mean_ap(chosen) - mean_ap(full)).mean:+.1f}.",
    )

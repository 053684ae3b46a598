"""Figure 3, right: the dense 1-order decoder by m."""

from __future__ import annotations

import math
from typing import Any

from logt.reproduce import paper
from logt.reproduce.claims import Claim, judge, judge_above, reaches
from logt.reproduce.experiments.experiment import ExperimentResult, mean_ap
from logt.reproduce.experiments.systems import VARIANTS, local_system, variant_trial
from logt.reproduce.experiments.variants import (
    Sweep,
    VariantSweep,
    draw_by_complexity,
    random_differences,
    random_pairs,
    table_columns,
)
from logt.reproduce.plan import Plan


class DenseExperiment(VariantSweep):
    name = "dense"
    title = "1-order decoder without sparsity, by m"
    source = "Figure 3 (right)"
    description = (
        "Each vector is decoded by least squares from S₁: its own units and the units of all vectors that share a "
        "unit with it."
    )
    parameter = "m"
    columns = table_columns("m")
    slow = True

    def seeds(self, plan: Plan) -> int:
        return plan.dense_seeds

    def sweep(self, plan: Plan) -> Sweep:
        return {
            (name, m): variant_trial(name, local_system(name, plan, m=m, L=None))
            for name in VARIANTS
            for m in plan.ms
        }

    def claims(self, result: ExperimentResult) -> list[Claim]:
        return [
            *_reaches_exhaustive_search(result),
            Claim(
                "LO-GT* outperforms the random variants.",
                judge_above(random_pairs(result, "LO-GT*", "m")),
                random_differences(result, "LO-GT*", "m"),
            ),
            _support_size(result),
        ]

    def draw(self, figure: Any, result: ExperimentResult) -> None:
        draw_by_complexity(figure, result, "m", (paper.DENSE_REACHES,))


def _reaches_exhaustive_search(result: ExperimentResult) -> list[Claim]:
    rows = result.select(system="LO-GT*")
    best = max(rows, key=lambda row: row["mAP"])
    return [
        Claim(
            f"With m = {row['m']}, LO-GT* reaches the mAP of exhaustive search (in the paper at "
            f"ρ = {paper.DENSE_REACHES.rho}).",
            judge([reaches(mean_ap(row), result.exhaustive)]),
            f"mAP {mean_ap(row)}, exhaustive search {result.exhaustive}, at ρ = {row['complexity']:.2f}. The highest "
            f"mAP is {mean_ap(best)}, at m = {best['m']} and ρ = {best['complexity']:.2f}.",
        )
        for row in rows
        if row["m"] == result.plan.m
    ]


def _support_size(result: ExperimentResult) -> Claim:
    """Compare the size of S₁ with its expectation for random units.

    In each round, S₁ holds the vector's own unit and those of the round's W units that (m − 1)(n − 1) other vectors
    are in.
    """
    n, W = result.plan.n, result.plan.count / result.plan.n
    rows = result.select(system="RND") + result.select(system="LO-GT*")
    measured = {(row["system"], row["m"]): (row["complexity"] - row["m"] / n) * result.plan.dim for row in rows}
    expected = {m: m * (1 + W * -math.expm1(-(m - 1) * (n - 1) / W)) for m in result.plan.ms}
    stated = {m: (rho - m / 50) * 2048 for m, rho in paper.DENSE.items()}
    sizes = ", ".join(
        f"{size:.0f} ({expected[m]:.0f}) at m={m}" for (system, m), size in measured.items() if system == "LO-GT*"
    )
    return Claim(
        "The size of S₁ is as expected for units chosen at random: within 2 % for random units, within 5 % for "
        "orthogonal units.",
        judge(
            [
                abs(size / expected[m] - 1) <= (0.02 if system == "RND" else 0.05)
                for (system, m), size in measured.items()
                if expected[m] < result.plan.dim  # a decoder has no more entries than dimensions
            ]
        ),
        f"Units in S₁ of LO-GT* (expected): {sizes}. The paper's complexity ratios imply "
        + ", ".join(f"{stated[m]:.0f} at m={m}" for m in result.plan.ms if m in stated)
        + " for its N and d.",
        from_paper=False,
    )

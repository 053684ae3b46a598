"""Figure 3, left: group size n at a constant number of memory vectors."""

from __future__ import annotations

from typing import Any

from logt.reproduce import plots
from logt.reproduce.claims import Claim, above, format_differences, judge, judge_above
from logt.reproduce.experiments.experiment import ExperimentResult
from logt.reproduce.experiments.systems import VARIANTS, local_system, variant_trial
from logt.reproduce.experiments.variants import (
    Sweep,
    VariantSweep,
    draw_variants,
    random_differences,
    random_pairs,
    table_columns,
)
from logt.reproduce.plan import Plan


class GroupSizeExperiment(VariantSweep):
    name = "group-size"
    title = "Group size n at m = n/10, 0-order decoder"
    source = "Figure 3 (left)"
    description = (
        "The unit size n and the number of units per vector m grow together, so that the sizes of Y and U do not "
        "change. Each vector is decoded from its own units only."
    )
    parameter = "n"
    columns = table_columns("n")

    def sweep(self, plan: Plan) -> Sweep:
        return {
            (name, n): variant_trial(name, local_system(name, plan, n=n, m=n // 10, L=None, order=0))
            for name in VARIANTS
            for n in plan.unit_sizes
        }

    def claims(self, result: ExperimentResult) -> list[Claim]:
        uncorrected = result.pairs("LO-GT", "RND", "n")
        correction = result.pairs("RND*", "RND", "n")
        return [
            Claim(
                "Without the correction, orthogonal units are not significantly better than random units.",
                judge([not above(pair.first, pair.second) for pair in uncorrected]),
                f"LO-GT minus RND: {format_differences(uncorrected)}.",
            ),
            Claim(
                "With the correction, orthogonal units are significantly better than random units.",
                judge_above(random_pairs(result, "LO-GT*", "n")),
                random_differences(result, "LO-GT*", "n"),
            ),
            Claim(
                "For large units, the correction reduces the mAP of random units.",
                judge([above(pair.second, pair.first) for pair in correction[-1:]]),
                f"RND* minus RND: {format_differences(correction)}.",
            ),
        ]

    def draw(self, figure: Any, result: ExperimentResult) -> None:
        axes = figure.subplots()
        draw_variants(axes, result, "n")
        axes.set(xscale="log", xlabel="vectors per unit, n (m = n/10, 0-order decoder)")
        axes.set_xticks(result.plan.unit_sizes, labels=map(str, result.plan.unit_sizes))
        axes.minorticks_off()
        plots.exhaustive_line(axes, result.exhaustive.mean)
        plots.legend(figure)

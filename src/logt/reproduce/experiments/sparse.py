"""Figure 4, left: the sparse 1-order decoder by L."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from logt.reproduce import paper
from logt.reproduce.claims import Claim, Pair, Verdict, above, format_differences, judge, judge_above, reaches
from logt.reproduce.experiments.experiment import ExperimentResult, mean_ap
from logt.reproduce.experiments.variants import (
    Sweep,
    VariantSweep,
    draw_by_complexity,
    random_differences,
    random_pairs,
    sparse_trials,
    table_columns,
)
from logt.reproduce.plan import Plan


class SparseExperiment(VariantSweep):
    name = "sparse"
    title = "Sparse 1-order decoder, by L"
    source = "Figure 4 (left)"
    description = "Orthogonal matching pursuit keeps L entries of each vector's 1-order decoder."
    parameter = "L"
    columns = table_columns("L")

    def sweep(self, plan: Plan) -> Sweep:
        return sparse_trials(plan)

    def claims(self, result: ExperimentResult) -> list[Claim]:
        (largest,) = result.select(system="LO-GT*", L=result.plan.L)
        gain = result.pairs("LO-GT*", "LO-GT", "L")
        stated = paper.SPARSE[-1]
        return [
            Claim(
                f"LO-GT* with {stated.label} reaches the accuracy of exhaustive search (in the paper at "
                f"ρ = {stated.rho}).",
                judge([reaches(mean_ap(largest), result.exhaustive)]),
                f"L = {result.plan.L}: mAP {mean_ap(largest)}, exhaustive search {result.exhaustive}, at "
                f"ρ = {largest['complexity']:.2f}.",
            ),
            Claim(
                "LO-GT* is more accurate than the random variants for all L.",
                judge_above(random_pairs(result, "LO-GT*", "L")),
                random_differences(result, "LO-GT*", "L"),
            ),
            Claim(
                "LO-GT without the correction is also significantly better than both random variants.",
                judge_above(random_pairs(result, "LO-GT", "L")),
                random_differences(result, "LO-GT", "L"),
            ),
            Claim(
                "The larger L is, the smaller is the gain of the correction.",
                _judge_decrease(gain),
                f"LO-GT* minus LO-GT: {format_differences(gain)}.",
            ),
        ]

    def draw(self, figure: Any, result: ExperimentResult) -> None:
        draw_by_complexity(figure, result, "L", paper.SPARSE)


def _judge_decrease(pairs: Sequence[Pair]) -> Verdict:
    """Return the verdict on the claim that the first difference is larger than the last."""
    if len(pairs) < 2:
        return "not tested"
    first, last = (pair.first - pair.second for pair in (pairs[0], pairs[-1]))
    return judge([above(first, last)])

"""What the experiments on LO-GT and RND share: a sweep of one parameter, with and without the correction."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from logt.reproduce import paper, plots
from logt.reproduce.claims import Pair, format_differences
from logt.reproduce.experiments.experiment import (
    EXHAUSTIVE,
    Experiment,
    ExperimentResult,
    Row,
    format_setting,
    make_row,
)
from logt.reproduce.experiments.systems import VARIANTS, local_system, variant_trial
from logt.reproduce.plan import Plan
from logt.reproduce.trials import Measurements, Trial

Sweep = dict[tuple[str, Any], Trial]
"""Trials by variant and value of the parameter."""


class VariantSweep(Experiment):
    """LO-GT and RND, with and without the correction, at several values of one parameter."""

    parameter: ClassVar[str]

    @abstractmethod
    def sweep(self, plan: Plan) -> Sweep:
        """Return the trials by variant and value."""

    def seeds(self, plan: Plan) -> int:
        return plan.seeds

    def trials(self, plan: Plan) -> list[Trial]:
        sweep = self.sweep(plan).values()
        return [EXHAUSTIVE, *(repeated for trial in sweep for repeated in trial.repeat(self.seeds(plan)))]

    def rows(self, plan: Plan, measurements: Measurements) -> list[Row]:
        return [
            make_row(measurements, trial, self.seeds(plan), system=name, **{self.parameter: value})
            for (name, value), trial in self.sweep(plan).items()
        ]


def table_columns(parameter: str) -> tuple[str, ...]:
    """Return the columns of a sweep that the report shows."""
    return ("system", parameter, "mAP", "deviation", "complexity")


def sparse_trials(plan: Plan, *, timed: bool = False) -> Sweep:
    """Return the trials of the sparse decoder by variant and L; `timed` times LO-GT* only."""
    return {
        (name, L): variant_trial(name, local_system(name, plan, L=L), timed=timed and name == "LO-GT*")
        for name in VARIANTS
        for L in plan.Ls
    }


def cascade_trials(plan: Plan, *, timed: bool = False) -> Sweep:
    """Return the trials of the cascade by variant and p, at the largest L; `timed` times LO-GT* only."""
    return {
        (name, p): variant_trial(name, local_system(name, plan), timed=timed and name == "LO-GT*", p=p, R=plan.R)
        for name in VARIANTS
        for p in plan.ps
    }


# --------------------------------------------------------------------------------------------------- claims


def random_pairs(result: ExperimentResult, system: str, parameter: str) -> list[Pair]:
    """Return the mAP of a system and of each random variant, at each value of a parameter."""
    return [pair for other in ("RND", "RND*") for pair in result.pairs(system, other, parameter)]


def random_differences(result: ExperimentResult, system: str, parameter: str) -> str:
    """Return the differences in mAP between a system and each random variant, as a sentence."""
    differences = (format_differences(result.pairs(system, other, parameter)) for other in ("RND", "RND*"))
    return "{0} minus RND: {1}; {0} minus RND*: {2}.".format(system, *differences)


# -------------------------------------------------------------------------------------------------- figures


def draw_variants(axes: Any, result: ExperimentResult, x: str, names: tuple[str, ...] = VARIANTS) -> None:
    """Plot the mAP of each variant over a column."""
    for name in names:
        rows = sorted(result.select(system=name), key=lambda row: row[x])
        plots.curve(axes, rows, x, name, plots.STYLES[name])
    axes.set_ylabel(f"mAP ({result.protocol})")


def draw_by_complexity(
    figure: Any,
    result: ExperimentResult,
    parameter: str,
    stated: tuple[paper.StatedPoint, ...],
    names: tuple[str, ...] = VARIANTS,
) -> None:
    """Draw the mAP of each variant over the complexity ratio, with the points that the paper states."""
    axes = figure.subplots()
    draw_variants(axes, result, "complexity", names)
    rows = result.select(system="LO-GT*")
    labels = [format_setting(parameter, row[parameter]).removeprefix("p=") for row in rows]  # short of space
    plots.top_labels(axes, [row["complexity"] for row in rows], labels)
    points = [(point.rho, paper.shift_to(result.exhaustive.mean, point.mean_ap)) for point in stated]
    plots.paper_points(axes, points, plots.STYLES["LO-GT*"], "LO-GT*, paper")
    plots.exhaustive_line(axes, result.exhaustive.mean)
    axes.set_xlabel("complexity ratio ρ")
    plots.legend(figure)

"""What the experiments on search time share: LO-GT* and the default index, timed next to exhaustive search."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from logt.reproduce import plots
from logt.reproduce.experiments.experiment import (
    EXHAUSTIVE,
    TRUNCATED,
    Experiment,
    ExperimentResult,
    Row,
    make_row,
)
from logt.reproduce.experiments.systems import default_index
from logt.reproduce.experiments.variants import cascade_trials, sparse_trials
from logt.reproduce.plan import Plan
from logt.reproduce.trials import Measurements, Trial

BY_L, BY_P, DEFAULT = "LO-GT*, by L", "LO-GT*, by p", "logt"
STYLES: dict[str, plots.Style] = {
    BY_L: {"color": plots.BLUE, "marker": "o"},
    BY_P: {"color": plots.SKY, "marker": "s"},
    DEFAULT: {"color": plots.GREEN, "marker": "D"},
}

TimedTrials = dict[tuple[str, str], Trial]
"""Trials by system and setting."""


class TimedExperiment(Experiment):
    """Systems at several settings, each timed on one thread."""

    columns = (
        "system",
        "setting",
        "mAP",
        TRUNCATED,
        "list depth",
        "complexity",
        "time ratio",
        "time ratio, batch",
        "ms",
    )

    @abstractmethod
    def settings(self, plan: Plan) -> TimedTrials:
        """Return the trials by system and setting."""

    def trials(self, plan: Plan) -> list[Trial]:
        return [EXHAUSTIVE, *self.settings(plan).values()]

    def rows(self, plan: Plan, measurements: Measurements) -> list[Row]:
        return [
            make_row(measurements, EXHAUSTIVE, system="exhaustive", setting=""),
            *(
                make_row(measurements, trial, system=name, setting=setting)
                for (name, setting), trial in self.settings(plan).items()
            ),
        ]


def own_settings(plan: Plan) -> TimedTrials:
    """Return LO-GT* by L and by p, and the default index by effort.

    The default index lists fewer than all vectors, because a full ranking would scan everything at any effort.
    """
    by_L = {(BY_L, f"L={L}"): t for (name, L), t in sparse_trials(plan, timed=True).items() if name == "LO-GT*"}
    by_p = {(BY_P, f"p={p:.0%}"): t for (name, p), t in cascade_trials(plan, timed=True).items() if name == "LO-GT*"}
    default = {
        (DEFAULT, f"effort={effort}"): Trial.from_settings(
            default_index(), depth=plan.list_length, timed=True, effort=effort
        )
        for effort in plan.efforts
    }
    return {**by_L, **by_p, **default}


def lo_gt_rows(result: ExperimentResult) -> list[Row]:
    """Return the rows of LO-GT*, by L and by p."""
    return [row for row in result.select() if row["system"] in (BY_L, BY_P)]


def finish_time_axes(figure: Any, axes: Any, result: ExperimentResult, xlabel: str) -> None:
    """Add the axis labels, exhaustive search and the legend to a figure of truncated mAP over time."""
    (exhaustive,) = result.select(system="exhaustive")
    axes.set(xscale="log", xlabel=xlabel)
    axes.set_ylabel(f"mAP ({result.protocol}), lists of {result.plan.list_length:,}")
    plots.plain_log_ticks(axes.xaxis)
    plots.exhaustive_line(axes, exhaustive[TRUNCATED])
    plots.legend(figure)

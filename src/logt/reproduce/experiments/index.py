"""The default index of this library, which is not in the paper: alone, linked, and re-ranked by diffusion."""

from typing import Any

from logt.reproduce import plots
from logt.reproduce.experiments.experiment import Entry, Experiment, Result
from logt.reproduce.experiments.systems import DEFAULT, DIFFUSED, LINKED, default_trials
from logt.reproduce.plan import Plan
from logt.reproduce.trials import EXHAUSTIVE, TRUNCATED

_STYLES: dict[str, plots.Style] = {
    DEFAULT: {"color": plots.GREEN, "marker": "D"},
    LINKED: {"color": plots.BLUE, "marker": "s"},
    DIFFUSED: {"color": plots.PURPLE, "marker": "^"},
}


def _entries(plan: Plan) -> list[Entry]:
    trials = {"exhaustive": EXHAUSTIVE, **default_trials(plan)}
    return [Entry({"system": name}, trial) for name, trial in trials.items()]


def _draw(figure: Any, result: Result) -> None:
    axes = figure.subplots()
    for name, style in _STYLES.items():
        for row in result.select(name):
            axes.plot(row["time ratio"], row[TRUNCATED], linestyle="none", label=name, **style)
    axes.set(xlabel="time ratio to exhaustive search", ylabel=f"mAP ({result.protocol})", xscale="log")
    plots.plain_log_ticks(axes.xaxis)
    (exhaustive,) = result.select("exhaustive")
    plots.exhaustive_line(axes, exhaustive[TRUNCATED])
    plots.legend(figure)


INDEX = Experiment(
    name="index",
    title="The default index of logt",
    source="",
    description="Not in the paper. The default index, the same with a neighbor graph, and re-ranked by diffusion on "
    "this graph. All searches request the default recall. Diffusion aims at other results than those of exhaustive "
    "search, so its recall is lower.",
    columns=(
        *("system", "bytes per vector", "index seconds", "mAP", TRUNCATED, "mAP easy", "mAP hard"),
        *("recall@10", "ms", "time ratio", "time ratio, batch"),
    ),
    entries=_entries,
    claims=lambda result: [],
    draw=_draw,
)

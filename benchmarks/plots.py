"""Figures of bench.py: accuracy over time and over bytes, one line per system."""

import importlib.util
from pathlib import Path
from typing import Any

from benchmarks.frontier import HELD_OUT, QUERIES, RAM, by_system, pareto
from logt.reproduce.plots import legend, plain_log_ticks, saved_figure

_LABELS = {
    "ms, one query": "ms per query, single queries, one thread",
    "ms, batch": "ms per query in a batch of 64, one thread",
    RAM: "bytes per vector in RAM",
}


def draw_figures(title: str, rows: list[dict], folder: Path) -> None:
    """Draw recall, held out and of queries, over time and over bytes; also mAP, if the data has relevant images.

    The figure "time" has recall over the time of one query only, in a size for documents.
    """
    if importlib.util.find_spec("matplotlib") is None:
        print("no figures: pip install matplotlib")
        return
    accuracies = {"held-out": HELD_OUT, "queries": QUERIES}
    if any(row.get("mAP@1000", "") != "" for row in rows):
        accuracies["map"] = "mAP@1000"
    for name, accuracy in accuracies.items():
        shown = [row for row in rows if row.get(accuracy, "") != ""]
        with saved_figure(folder / name, (21, 7)) as figure:
            panels = figure.subplots(1, 3, sharey=True)
            for axes, (column, label) in zip(panels, _LABELS.items(), strict=True):
                _draw_systems(axes, shown, column, accuracy)
                axes.set(xscale="log", xlabel=label)
                plain_log_ticks(axes.xaxis)
            panels[0].set_ylabel(accuracy)
            legend(figure)
            figure.suptitle(title)
    with saved_figure(folder / "time", (6, 4)) as figure:
        axes = figure.subplots()
        _draw_systems(axes, [row for row in rows if row.get(HELD_OUT, "") != ""], "ms, one query", HELD_OUT)
        axes.set(xscale="log", xlabel=_LABELS["ms, one query"], ylabel=HELD_OUT, ylim=(0.7, 1.005))
        plain_log_ticks(axes.xaxis)
        axes.legend(loc="lower right")


def _draw_systems(axes: Any, rows: list[dict], column: str, accuracy: str) -> None:
    """Draw all settings as points; over time, those on the frontier of a system are joined by its line."""
    for number, (system, group) in enumerate(by_system(rows).items()):
        style = {"color": f"C{number % 10}", "marker": "osD^v<>pP*Xh"[number % 12]}
        own = system.startswith("logt")
        points = [(row[accuracy], row[column]) for row in group]
        line = [(max(points)[0], points[0][1])] if column == RAM else pareto(points)
        axes.plot(
            [time for _, time in line],
            [value for value, _ in line],
            linewidth=2.5 if own else 1,
            linestyle="-" if own else "--",
            markersize=6 if own else 4,
            label=system,
            **style,
        )
    if column == RAM:
        best = pareto((max(row[accuracy] for row in group), group[0][RAM]) for group in by_system(rows).values())
        axes.step([size for _, size in best], [value for value, _ in best], where="post", color="0.6", zorder=0)

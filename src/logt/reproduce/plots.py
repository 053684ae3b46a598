"""Figures: one style for all, with color-blind-safe colors and a marker per system."""

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from logt._internal.extras import install_hint
from logt.errors import MissingExtraError

Style = dict[str, Any]

# Okabe and Ito's palette
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, RED, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"

EXHAUSTIVE_LINE: Style = {"color": BLACK, "linestyle": (0, (5, 3)), "linewidth": 1.1}
STYLES: dict[str, Style] = {
    "LO-GT*": {"color": BLUE, "marker": "o", "linestyle": "-"},
    "LO-GT": {"color": BLUE, "marker": "s", "linestyle": "--"},
    "RND*": {"color": RED, "marker": "^", "linestyle": "-"},
    "RND": {"color": RED, "marker": "v", "linestyle": "--"},
    "logt": {"color": GREEN, "marker": "D", "linestyle": "-"},
}

_RC_PARAMS: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.5,
    "lines.markersize": 5,
    "legend.fontsize": 8,
    "legend.frameon": True,
    "legend.framealpha": 0.9,
    "legend.edgecolor": "0.85",
    "svg.hashsalt": "logt",
    "svg.fonttype": "none",
}


def check_matplotlib() -> None:
    """Raise if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError(f"figures need matplotlib: {install_hint('reproduce')}")


@contextmanager
def saved_figure(path: Path, size: tuple[float, float], title: str = "") -> Iterator[Any]:
    """Return a figure to draw into; write it at the end of the block, as PNG and SVG. path: without a suffix."""
    check_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_RC_PARAMS):
        figure = Figure(figsize=size, layout="constrained")
        if title:
            figure.suptitle(title, fontsize="medium", color="0.4")
        yield figure
        figure.savefig(f"{path}.png", dpi=200)
        figure.set_layout_engine("none")  # keeps the layout, which takes half of the time
        figure.savefig(f"{path}.svg", metadata={"Date": None})


def curve(axes: Any, rows: Sequence[dict[str, Any]], x: str, label: str, style: Style, y: str = "mAP") -> None:
    """Plot rows as a line by x, with error bars of one standard deviation if there are several seeds."""
    if not rows:
        return
    rows = sorted(rows, key=lambda row: row[x])
    xs, ys = [row[x] for row in rows], [row[y] for row in rows]
    bars = [row["deviation"] or 0.0 for row in rows] if y == "mAP" else None
    if bars and any(bars):
        axes.errorbar(xs, ys, yerr=bars, label=label, capsize=2, elinewidth=0.8, **style)
    else:
        axes.plot(xs, ys, label=label, **style)


def exhaustive_line(axes: Any, value: float) -> None:
    """Plot exhaustive search as a dashed line; only in the legend if it is far above everything else."""
    low, high = axes.get_ylim()
    label = f"exhaustive search ({value:.1f})"
    if low - 1.5 * (high - low) <= value <= high + 0.6 * (high - low):
        axes.axhline(value, **EXHAUSTIVE_LINE, label=label, zorder=1)
        padding = 0.04 * (max(high, value) - min(low, value))
        axes.set_ylim(min(low, value - padding), max(high, value + padding))
    else:
        axes.plot([], [], **EXHAUSTIVE_LINE, label=f"{label}, above ↑")


def paper_points(axes: Any, points: Sequence[tuple[float, float]], style: Style, label: str) -> None:
    """Plot values that the paper states as hollow markers."""
    xs, ys = zip(*points, strict=True) if points else ((), ())
    hollow = {"markerfacecolor": "white", "markersize": 8, "markeredgewidth": 1.3, "zorder": 4}
    axes.plot(xs, ys, linestyle="none", label=label, color=style["color"], marker=style["marker"], **hollow)


def legend(figure: Any) -> None:
    """Add a legend next to the axes: measured values first, then the paper's, then exhaustive search."""
    entries = zip(*figure.axes[0].get_legend_handles_labels(), strict=True)
    ordered = sorted(entries, key=lambda entry: (entry[1].startswith("exhaustive"), entry[1].endswith("paper")))
    figure.legend(*zip(*ordered, strict=True), loc="outside right center")


def log_axis(axes: Any, label: str, ticks: Sequence[int]) -> None:
    """Make the x axis logarithmic, with a label and the given ticks only."""
    axes.set(xscale="log", xlabel=label)
    axes.set_xticks(ticks, labels=map(str, ticks))
    axes.minorticks_off()


def plain_log_ticks(axis: Any) -> None:
    """Write the ticks of a logarithmic axis as plain numbers: 0.05, 0.1, 0.2."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def annotate(axes: Any, point: tuple[float, float], text: str, offset: tuple[float, float]) -> None:
    """Write a label next to a point, with a white outline."""
    from matplotlib.patheffects import withStroke

    axes.annotate(
        text,
        point,
        xytext=offset,
        textcoords="offset points",
        ha="right" if offset[0] < 0 else "left",
        fontsize=6.5,
        color="0.2",
        zorder=6,
        path_effects=[withStroke(linewidth=2, foreground="white")],
    )


def top_labels(axes: Any, xs: Sequence[float], labels: Sequence[str]) -> None:
    """Write labels on a second axis at the top."""
    top = axes.secondary_xaxis("top")
    top.set_xticks(xs, labels=labels, fontsize=7, color="0.35")
    top.tick_params(length=2, color="0.6")
    top.spines["top"].set_visible(False)

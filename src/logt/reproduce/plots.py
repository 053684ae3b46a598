"""The look of all figures: colours that colour-blind readers can tell apart, and a marker for each system."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from logt.errors import MissingExtraError

Style = dict[str, Any]

# Okabe and Ito's palette
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PURPLE = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#F0E442",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)

STYLES: dict[str, Style] = {
    "LO-GT*": {"color": BLUE, "marker": "o", "linestyle": "-"},
    "LO-GT": {"color": BLUE, "marker": "s", "linestyle": "--"},
    "RND*": {"color": RED, "marker": "^", "linestyle": "-"},
    "RND": {"color": RED, "marker": "v", "linestyle": "--"},
    "logt": {"color": GREEN, "marker": "D", "linestyle": "-"},
}

_LOOK: dict[Any, Any] = {
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


def require() -> None:
    """Refuse to go on where figures could not be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError("figures need matplotlib: pip install 'logt-search[reproduce]'")


def draw(drawing: Callable[[Any], None], folder: Path, name: str, size: tuple[float, float] = (6.4, 3.6)) -> None:
    """Make a figure and keep it as PNG and SVG."""
    require()
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_LOOK):
        figure = Figure(figsize=size, layout="constrained")
        drawing(figure)
        figure.savefig(folder / f"{name}.png", dpi=200)
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


def curve(axes: Any, rows: Sequence[dict[str, Any]], x: str, label: str, style: Style, y: str = "mAP") -> None:
    """Rows as a line, with bars of one deviation where there are several seeds."""
    if not rows:
        return
    xs, ys = [row[x] for row in rows], [row[y] for row in rows]
    bars = [row["deviation"] or 0.0 for row in rows] if y == "mAP" else None
    if bars and any(bars):
        axes.errorbar(xs, ys, yerr=bars, label=label, capsize=2, elinewidth=0.8, **style)
    else:
        axes.plot(xs, ys, label=label, **style)


def baseline(axes: Any, value: float) -> None:
    """Exhaustive search as a dashed line; where it would squeeze all else, as an arrow at the edge."""
    low, high = axes.get_ylim()
    label = f"exhaustive search ({value:.1f})"
    if low - 1.5 * (high - low) <= value <= high + 0.6 * (high - low):
        axes.axhline(value, color=BLACK, linestyle=(0, (5, 3)), linewidth=1.1, label=label, zorder=1)
        room = 0.04 * (max(high, value) - min(low, value))
        axes.set_ylim(min(low, value - room), max(high, value + room))
    else:
        axes.plot([], [], color=BLACK, linestyle=(0, (5, 3)), linewidth=1.1, label=f"{label}, above ↑")


def stated(axes: Any, points: Sequence[tuple[float, float]], style: Style, label: str) -> None:
    """What the paper states, as hollow markers."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    given = {"color": style.get("color", BLACK), "marker": style.get("marker", "o")}
    axes.plot(
        xs,
        ys,
        linestyle="none",
        markerfacecolor="white",
        markersize=8,
        markeredgewidth=1.3,
        label=label,
        zorder=4,
        **given,
    )


def legend(figure: Any) -> None:
    """All that is drawn, ours before the paper's and exhaustive search, beside the axes: it hides no point."""
    drawn = zip(*figure.axes[0].get_legend_handles_labels(), strict=True)
    ordered = sorted(drawn, key=lambda pair: (pair[1].startswith("exhaustive"), pair[1].endswith("paper")))
    figure.legend(*zip(*ordered, strict=True), loc="outside right center")


def plain_log(axis: Any) -> None:
    """A logarithmic axis whose ticks are written out: 0.05, 0.1, 0.2."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def name(axes: Any, at: tuple[float, float], text: str, offset: tuple[float, float]) -> None:
    """A word beside a point, readable over what it covers."""
    from matplotlib.patheffects import withStroke

    axes.annotate(
        text,
        at,
        xytext=offset,
        textcoords="offset points",
        ha="right" if offset[0] < 0 else "left",
        fontsize=6.5,
        color="0.2",
        zorder=6,
        path_effects=[withStroke(linewidth=2, foreground="white")],
    )


def tagged(axes: Any, rows: Sequence[dict[str, Any]], x: str, tag: Callable[[dict[str, Any]], str]) -> None:
    """A word above each point, on an axis of its own."""
    top = axes.secondary_xaxis("top")
    top.set_xticks([row[x] for row in rows], labels=[tag(row) for row in rows], fontsize=7, color="0.35")
    top.tick_params(length=2, color="0.6")
    top.spines["top"].set_visible(False)

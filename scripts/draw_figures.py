"""Draw the figures of docs/concepts: `python scripts/draw_figures.py [FOLDER]`, or `make figures`.

The same version of matplotlib draws the same bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Polygon, Rectangle

from logt.lists.residual import Bands

FOLDER = Path(__file__).parent.parent / "docs" / "images"
COLOURS = ["#3b6fb6", "#d1793b", "#4c9a5a", "#9a5aa8"]
INK, GREY, FAINT = "#222222", "#777777", "#e6e6e6"

mpl.use("svg")
mpl.rcParams.update(
    {
        "font.family": "sans-serif",
        "font.size": 10,
        "svg.fonttype": "none",  # text stays text
        "svg.hashsalt": "logt",
    }
)


def new_figure(width: float, height: float, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """Return a figure and its axes, without frames."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = list(np.atleast_1d(figure.subplots(1, columns)))
    for ax in axes:
        ax.set_axis_off()
    return figure, axes


def arrow(
    ax: Axes, start: tuple[float, float], end: tuple[float, float], colour: str = INK, width: float = 1.6
) -> None:
    style = {"arrowstyle": "-|>", "color": colour, "lw": width, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", end, start, arrowprops=style)


def disc(ax: Axes, x: float, y: float, label: object, colour: str, radius: float = 0.32) -> None:
    ax.scatter(x, y, s=(radius * 60) ** 2 / 1.6, color=colour, zorder=3)
    ax.text(x, y, str(label), ha="center", va="center", color="white", fontsize=9, zorder=4)


# ------------------------------------------------------------------------------------------------------- units


def units() -> Figure:
    """Two rounds that put each of 12 vectors into one unit: at random, and with similar vectors kept apart."""
    kind = np.repeat(np.arange(4), 3)  # vectors of one colour are similar
    rng = np.random.default_rng(3)
    random = [rng.permutation(12) for _ in range(2)]
    apart = [[0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11], [0, 4, 8, 9, 1, 5, 6, 10, 2, 3, 7, 11]]
    figure, axes = new_figure(9, 2.5, 2)
    for ax, title, rounds in zip(
        axes, ("random units (RND)", "orthogonal units (LO-GT)"), (random, apart), strict=True
    ):
        for r, order in enumerate(rounds):
            ax.text(-0.75, -1.3 * r, f"round {r + 1}", ha="right", va="center", color=GREY)
            for u in range(3):
                box = FancyBboxPatch(
                    (4.6 * u - 0.5, -1.3 * r - 0.5), 4, 1, boxstyle="round,pad=0.02", fc=FAINT, ec=GREY
                )
                ax.add_patch(box)
                for position, row in enumerate(order[4 * u : 4 * u + 4]):
                    disc(ax, 4.6 * u + position, -1.3 * r, row, COLOURS[kind[row]])
        ax.set_title(title, fontsize=11)
        ax.set_xlim(-3.2, 13.4)
        ax.set_ylim(-2.0, 0.8)
    return figure


# ---------------------------------------------------------------------------------------------- memory vectors


def memory_vectors() -> Figure:
    """A unit of two vectors in the plane, its sum and its pseudo-inverse memory vector, and the scores of queries."""
    members = np.array([[np.cos(a), np.sin(a)] for a in np.radians([15, 95])])
    y = np.linalg.pinv(members) @ np.ones(2)
    figure, (plane, curve) = new_figure(9, 3.4, 2)
    plane.set_aspect("equal")
    plane.add_patch(mpl.patches.Circle((0, 0), 1, fill=False, color=FAINT, lw=2))
    direction = np.array([-y[1], y[0]]) / np.linalg.norm(y)
    foot = y / (y @ y)
    line = np.array([foot - 0.95 * direction, foot + 0.95 * direction])
    plane.plot(*line.T, "--", color=COLOURS[2], lw=1.2)
    plane.text(*np.add(line[0], (0.04, -0.12)), "x · y = 1", color=COLOURS[2])
    for i, x in enumerate(members):
        arrow(plane, (0, 0), tuple(x), COLOURS[0])
        plane.text(*(1.1 * x), f"$x_{i + 1}$", ha="center", va="center", color=COLOURS[0])
    arrow(plane, (0, 0), tuple(y), COLOURS[1], 2.2)
    plane.text(*(1.1 * y), "y", ha="center", va="center", color=COLOURS[1])
    plane.set_xlim(-0.5, 1.75)
    plane.set_ylim(-0.4, 1.3)
    plane.set_title("one vector represents the unit", fontsize=11)

    curve.set_axis_on()
    angles = np.linspace(-60, 170, 231)
    queries = np.stack([np.cos(np.radians(angles)), np.sin(np.radians(angles))], axis=1)
    curve.plot(angles, queries @ y, color=COLOURS[1], label="measurement q · y")
    curve.plot(
        angles, (queries @ members.T).max(axis=1), color=COLOURS[0], lw=1.2, label="best similarity in the unit"
    )
    for angle in (15, 95):
        curve.axvline(angle, color=FAINT, zorder=0)
    curve.set_xlabel("direction of the query q (degrees)")
    curve.spines[["top", "right"]].set_visible(False)
    curve.legend(frameon=False, fontsize=9, loc="lower left")
    curve.set_title("one product shows whether a member may match", fontsize=11)
    return figure


# ----------------------------------------------------------------------------------------------------- decoder


def small_problem() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return measurements c (12), a decoder U (24, 12) with 3 entries per row, and its estimates."""
    rng = np.random.default_rng(8)
    X = rng.standard_normal((24, 16))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    group = np.concatenate([rng.permutation(24).reshape(6, 4) for _ in range(2)])
    Y = np.stack([np.linalg.pinv(X[unit]) @ np.ones(4) for unit in group])
    q = X[9] + 0.25 * rng.standard_normal(16) / 4
    c = Y @ (q / np.linalg.norm(q))
    U = np.zeros((24, 12))
    for i, x in enumerate(X):
        chosen: list[int] = []
        residual = x
        for _ in range(3):
            scores = np.abs(Y @ residual) / np.linalg.norm(Y, axis=1)
            scores[chosen] = -1
            chosen.append(int(scores.argmax()))
            weights, *_ = np.linalg.lstsq(Y[chosen].T, x, rcond=None)
            residual = x - weights @ Y[chosen]
        U[i, chosen] = weights
    return c, U, U @ c


def decoder() -> Figure:
    """The estimates of all vectors from a few measurements, as a sparse matrix product."""
    c, U, estimates = small_problem()
    figure, (ax,) = new_figure(9, 2.9)
    ax.set_aspect("equal")

    def cells(matrix: np.ndarray, left: float, bottom: float, limit: float, title: str) -> None:
        cmap, (rows, columns) = mpl.colormaps["RdBu_r"], matrix.shape
        for row, column in np.argwhere(matrix):
            colour = cmap(0.5 + 0.5 * np.clip(matrix[row, column] / limit, -1, 1))
            ax.add_patch(Rectangle((left + column, bottom + row), 1, 1, fc=colour, ec="none"))
        ax.vlines(left + np.arange(columns + 1), bottom, bottom + rows, color="#cccccc", lw=0.5)
        ax.hlines(bottom + np.arange(rows + 1), left, left + columns, color="#cccccc", lw=0.5)
        ax.text(left + matrix.shape[1] / 2, bottom + len(matrix) + 0.8, title, ha="center", va="bottom")

    cells(U.T, 0, 0, 1.0, "decoder U: a few weights per vector")
    cells(c[:, None], -5, 0, float(np.abs(c).max()), "c")
    cells(estimates[None], 0, -4.2, float(np.abs(estimates).max()), "")
    ax.text(-6, 6, "one measurement\nper unit: c = Y q", ha="right", va="center")
    ax.text(-1.2, -3.7, "estimated similarities ŝ = U c", ha="right", va="center")
    best = int(estimates.argmax())
    ax.add_patch(Rectangle((best, -4.2), 1, 1, fill=False, ec=INK, lw=2))
    ax.text(best + 0.5, -5.4, "the match", ha="center", va="center")
    arrow(ax, (12, -0.4), (12, -2.8), GREY)
    ax.text(24.6, 6, "24 vectors,\n12 measurements", va="center", color=GREY)
    ax.set_xlim(-17, 34)
    ax.set_ylim(-6.2, 15)
    return figure


# -------------------------------------------------------------------------------------------------- correction


def correction() -> Figure:
    """A ranking before and after suppression within units."""
    ranking = [("a", "1, 7"), ("b", "1, 4"), ("c", "3, 9"), ("d", "5, 7"), ("e", "2, 8"), ("f", "3, 6")]
    kept, suppressed = ["a", "c", "e"], {"b": "a", "d": "a", "f": "c"}
    after = [row for row in ranking if row[0] in kept] + [row for row in ranking if row[0] not in kept]
    figure, axes = new_figure(9, 3.0, 2)
    for ax, title, rows in zip(axes, ("estimated ranking", "after the correction"), (ranking, after), strict=True):
        for rank, (name, own) in enumerate(rows):
            gone = name in suppressed
            colour = "#949494" if gone else COLOURS[0]
            ax.add_patch(FancyBboxPatch((0, -rank), 5.2, 0.62, boxstyle="round,pad=0.04", fc=colour, ec="none"))
            ax.text(0.2, 0.31 - rank, f"{rank + 1}.  vector {name}", va="center", color="white")
            ax.text(5.0, 0.31 - rank, f"units {own}", va="center", ha="right", color="white")
            if gone and rows is ranking:
                ax.text(5.5, 0.31 - rank, f"shares a unit with {suppressed[name]}", va="center", color=GREY)
        ax.set_title(title, fontsize=11)
        ax.set_xlim(-0.2, 9)
        ax.set_ylim(-5.3, 0.9)
    return figure


# ----------------------------------------------------------------------------------------------- default index


def default_index() -> Figure:
    """Inverted lists that a query probes, bits by variance, and the steps in which a search reads codes."""
    figure = Figure(figsize=(9, 6.4), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=[1.15, 1])
    _probed_lists(figure.add_subplot(grid[0, 0]))
    _bits_by_variance(figure.add_subplot(grid[0, 1]))
    _search_steps(figure.add_subplot(grid[1, :]))
    return figure


def _probed_lists(ax: Axes) -> None:
    rng = np.random.default_rng(5)
    centres = np.array([[0.2, 0.8], [0.8, 0.85], [0.5, 0.48], [0.15, 0.2], [0.85, 0.25]])
    points = np.concatenate([c + 0.085 * rng.standard_normal((22, 2)) for c in centres])
    nearest = np.linalg.norm(points[:, None] - centres, axis=2).argmin(axis=1)
    query = np.array([0.6, 0.62])
    probed = np.linalg.norm(centres - query, axis=1).argsort()[:2]
    ax.set_axis_off()
    ax.set_aspect("equal")
    for j, centre in enumerate(centres):
        mine, on = points[nearest == j], j in probed
        ax.scatter(*mine.T, s=14, color=COLOURS[0] if on else "#bbbbbb")
        ax.scatter(*centre, marker="D", s=42, color=COLOURS[1], zorder=3, edgecolor="white")
        if on:
            hull = 0.2 * np.array([[np.cos(a), np.sin(a)] for a in np.linspace(0, 2 * np.pi, 60)])
            ax.add_patch(Polygon(centre + hull, fc=COLOURS[0], alpha=0.12, ec="none"))
    ax.scatter(*query, marker="*", s=170, color=COLOURS[2], zorder=4)
    ax.text(query[0] + 0.04, query[1] - 0.005, "query", color=COLOURS[2])
    ax.set_title("inverted lists of memory vectors (diamonds)", fontsize=11)
    ax.set_xlim(-0.05, 1.1)
    ax.set_ylim(-0.05, 1.1)


def _bits_by_variance(ax: Axes) -> None:
    """The bands that the library makes of a spectrum that decays as that of descriptors does."""
    variance = (np.arange(512) + 4.0) ** -0.9
    bands = Bands.allocate(variance, 2, 100_000)
    ax.bar(bands.starts, bands.bits, bands.size, align="edge", color=COLOURS[0], alpha=0.35, ec="white", lw=0.6)
    ax.set_ylabel("bits per dimension", color=COLOURS[0])
    ax.set_xlabel("dimensions of the residual, by variance")
    ax.set_yticks(range(int(bands.bits.max()) + 1))
    ax.set_xticks([])
    ax.spines[["top", "right"]].set_visible(False)
    curve = ax.twinx()
    curve.plot(variance, color=COLOURS[1])
    curve.set_yscale("log")
    curve.set_yticks([], minor=False)
    curve.set_yticks([], minor=True)
    curve.spines[["top", "right", "left"]].set_visible(False)
    curve.text(230, variance[150], "variance", color=COLOURS[1])
    ax.set_title("more bits where residuals vary more", fontsize=11)


def _search_steps(ax: Axes) -> None:
    ax.set_axis_off()
    steps = [
        ("measure", "q · y for every memory vector, 4 bits per dimension", 1.0),
        ("decode", "L weights per vector of the best lists", 0.8),
        ("first bits", "1 bit per dimension of vectors that can still be among the best", 0.6),
        ("all bits", "2 bits per dimension, on average, of those that still can", 0.42),
        ("supplement", "8 more bits per dimension of a few dozen candidates, from disk", 0.3),
    ]
    for n, (name, text, width) in enumerate(steps):
        box = FancyBboxPatch(
            (2.6 - 2.4 * width, -n), 4.8 * width, 0.62, boxstyle="round,pad=0.04", fc=COLOURS[0], ec="none"
        )
        ax.add_patch(box)
        ax.text(2.6, 0.31 - n, name, ha="center", va="center", color="white")
        ax.text(5.4, 0.31 - n, text, va="center", color=INK)
    ax.set_title("the steps of a search: more bits for fewer vectors", fontsize=11)
    ax.set_xlim(0, 13)
    ax.set_ylim(-4.3, 0.9)


FIGURES: dict[str, Callable[[], Figure]] = {
    "units.svg": units,
    "memory-vectors.svg": memory_vectors,
    "decoder.svg": decoder,
    "correction.svg": correction,
    "default-index.svg": default_index,
}


def main(folder: Path = FOLDER) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        draw().savefig(folder / name, metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))

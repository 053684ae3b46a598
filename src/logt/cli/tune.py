"""`logt tune`: recall and time by effort."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from logt._internal.extras import needs_extra
from logt._internal.validation import check_fraction
from logt.cli.console import AsJson, IndexPath, Threads, out, print_json, say
from logt.datasets import read_vectors
from logt.errors import InvalidInputError
from logt.index import Index
from logt.lists.calibration import EffortPoint


def tune(
    index: IndexPath,
    queries: Annotated[
        Path | None, typer.Argument(metavar="QUERIES", help="Typical queries. Default: vectors of the index.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="A name for this kind of queries. Only searches with --like NAME then use the curve."),
    ] = None,
    recall: Annotated[float, typer.Option(help="Recommend an effort for this recall.")] = 0.95,
    plot: Annotated[Path | None, typer.Option(help="Also write the curve to this .png or .svg file.")] = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Measure recall and time by effort. Later searches for a recall use the stored curve."""
    check_fraction("--recall", recall)
    figure = None if plot is None else _new_figure(plot)
    with Index.open(index, "a") as opened:
        points = opened.tune(None if queries is None else read_vectors(queries), name=name, threads=threads)
        opened.save()
    best = next((point for point in points if point.recall >= recall), None)
    if as_json:
        rows = [asdict(point) for point in points]
        print_json({"points": rows, "recommended": None if best is None else best.effort})
    else:
        table = Table("effort", "recall@10", "@100", "@1000", "ms per query", "vectors scanned")
        for point in points:
            columns = (point.recall, point.recall_100, point.recall_1000, point.milliseconds)
            table.add_row(f"{point.effort:g}", *(f"{value:.3f}" for value in columns), f"{point.scanned:,.0f}")
        out.print(table)
        if best is not None:
            say(f"recall {recall:g} of a full scan: effort={best.effort:g}, {best.milliseconds:.3f} ms per query")
    if figure is not None:
        _plot_efforts(points, recall, figure)
        figure.savefig(plot)


def _new_figure(path: Path) -> Any:
    """Return an empty figure; raise if it could not be written to this file."""
    with needs_extra("reproduce", "--plot needs matplotlib"):
        from matplotlib.figure import Figure
    if path.suffix not in (".png", ".svg"):
        raise InvalidInputError(f"--plot writes .png or .svg files, got {path}")
    return Figure(figsize=(5, 3.5), layout="constrained")


def _plot_efforts(points: Sequence[EffortPoint], recall: float, figure: Any) -> None:
    from logt.reproduce.plots import annotate, plain_log_ticks

    axes = figure.subplots()
    for name, label, marker in (("recall", "@10", "o"), ("recall_100", "@100", "s"), ("recall_1000", "@1000", "^")):
        values = [getattr(point, name) for point in points]
        axes.plot([point.milliseconds for point in points], values, marker=marker, label=f"recall{label}")
    axes.axhline(recall, color="0.5", linestyle=":", label=f"recall {recall:g}")
    for point in points:
        if point.effort in (0.2, 0.4, 0.6, 0.8, 1):
            annotate(axes, (point.milliseconds, point.recall), f"effort {point.effort:g}", (-5, 4))
    axes.set_xscale("log")
    plain_log_ticks(axes.xaxis)
    axes.set_xlabel("milliseconds per query for 10 results, one thread")
    axes.set_ylabel("fraction of the results of a full scan")
    axes.grid(alpha=0.3)
    axes.margins(y=0.08)
    axes.legend(loc="lower right")

"""`logt reproduce`: words over the run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import logt
from logt._threads import Progress as Report
from logt.cli.console import err, say
from logt.datasets import Benchmark, load_benchmark, synthetic_benchmark
from logt.reproduce import plots
from logt.reproduce.experiments import ALL
from logt.reproduce.plan import Plan
from logt.reproduce.run import Run, chosen


def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="More names for --only.", hidden=True)] = None,
    data: Annotated[
        Path | None, typer.Option(help="A benchmark: a folder or .hdf5 file; a made collection without.")
    ] = None,
    to: Annotated[Path, typer.Option("--out", help="The folder for points, CSVs, figures and report.")] = Path(
        "reproduced"
    ),
    only: Annotated[list[str] | None, typer.Option(metavar="NAME...", help=f"Only these: {', '.join(ALL)}.")] = None,
    quick: Annotated[
        bool, typer.Option(help="Fewer settings and seeds; a small collection where none is given.")
    ] = False,
) -> None:
    """Make every figure and table of the paper's section 4, on your data or on a made collection.

    What is finished is kept: after an interruption, the same command goes on.
    """
    os.environ.setdefault("RAYON_NUM_THREADS", "1")  # turbovec takes its threads from here: all are timed on one
    asked = [*(only or []), *(names or [])]
    chosen(asked)  # a wrong name is told before the work, and so is what is missing
    plots.require()
    benchmark = _benchmark(data, quick)
    say(f"{benchmark.name}: {len(benchmark.Q)} queries, protocol {benchmark.main}")
    plan = Plan.of(*benchmark.X.shape, quick=quick)
    start = time.perf_counter()
    with _shown() as (tell, progress):
        run = Run(benchmark, plan, to, logt.__version__, tell, progress)
        try:
            report = run(asked)
        except KeyboardInterrupt:
            err.print(
                f"interrupted; {run.measured} new points are kept in {to / 'points'}. "
                "Give the same command again to go on.",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
            raise typer.Exit(130) from None
    say(f"{run.measured} points measured in {(time.perf_counter() - start) / 60:.1f} minutes; the report: {report}")


def _benchmark(data: Path | None, quick: bool) -> Benchmark:
    if data is not None:
        return load_benchmark(data)
    return synthetic_benchmark(4_000, 512, landmarks=40) if quick else synthetic_benchmark(20_000, 1024, landmarks=60)


@contextmanager
def _shown() -> Iterator[tuple[Report, Report]]:
    """(what to tell of points, what to tell of the work on one): bars on a terminal, else a line for each index."""
    bars = Progress(
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    )
    points, work = bars.add_task("points", total=None), bars.add_task("", total=None, visible=False)
    last = [""]

    def tell(what: str, done: int, total: int) -> None:
        bars.update(points, description=what, completed=done, total=total)
        bars.update(work, visible=False)
        if not err.is_terminal and what != last[0]:
            err.print(f"{done}/{total} {what}", highlight=False, markup=False, soft_wrap=True)
        last[0] = what

    def progress(what: str, done: int, total: int) -> None:
        bars.update(work, description=f"  {what}", completed=done, total=total, visible=True)

    with bars:
        yield tell, progress

"""`logt reproduce`: run the paper's experiments."""

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
from logt.cli.console import err, say
from logt.datasets import Benchmark, load_benchmark, synthetic_benchmark
from logt.reproduce import plots
from logt.reproduce.experiments import EXPERIMENTS
from logt.reproduce.plan import Plan
from logt.reproduce.run import Run, select_experiments


def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="More names for --only.", hidden=True)] = None,
    data: Annotated[
        Path | None, typer.Option(help="Benchmark: a folder or an .hdf5 file. Default: a synthetic collection.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for points, CSV files, figures and the report.")] = Path(
        "reproduced"
    ),
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME...", help=f"Experiments to run: {', '.join(EXPERIMENTS)}.")
    ] = None,
    quick: Annotated[
        bool, typer.Option(help="Run fewer settings and seeds; without --data, on a small collection.")
    ] = False,
) -> None:
    """Reproduce every figure and table of the paper's section 4, on your data or on a synthetic collection.

    Finished points are kept: after an interruption, the same command resumes.
    """
    os.environ.setdefault("RAYON_NUM_THREADS", "1")  # for turbovec: all systems are timed on one thread
    selected = [*(only or []), *(names or [])]
    select_experiments(selected)  # report a wrong name or a missing package before the work starts
    plots.check_matplotlib()
    benchmark = _load_benchmark(data, quick)
    say(f"{benchmark.name}: {len(benchmark.Q)} queries, protocol {benchmark.main}")
    plan = Plan.from_shape(*benchmark.X.shape, quick=quick)
    start = time.perf_counter()
    with _progress_bars() as bars:
        run = Run(benchmark, plan, out, logt.__version__, bars.report_points, bars.report_build)
        try:
            report = run(selected)
        except KeyboardInterrupt:
            err.print(
                f"interrupted; {run.new_points} new points are kept in {out / 'points'}. "
                "Run the same command again to resume.",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
            raise typer.Exit(130) from None
    say(f"{run.new_points} points measured in {(time.perf_counter() - start) / 60:.1f} minutes; report: {report}")


def _load_benchmark(data: Path | None, quick: bool) -> Benchmark:
    if data is not None:
        return load_benchmark(data)
    return synthetic_benchmark(4_000, 512, landmarks=40) if quick else synthetic_benchmark(20_000, 1024, landmarks=60)


class _Bars:
    """Progress of the points and of the current build: bars on a terminal, otherwise one line per index."""

    def __init__(self, bars: Progress):
        self._bars = bars
        self._points = bars.add_task("points", total=None)
        self._build = bars.add_task("", total=None, visible=False)
        self._last = ""

    def report_points(self, what: str, done: int, total: int) -> None:
        self._bars.update(self._points, description=what, completed=done, total=total)
        self._bars.update(self._build, visible=False)
        if not err.is_terminal and what != self._last:
            err.print(f"{done}/{total} {what}", highlight=False, markup=False, soft_wrap=True)
        self._last = what

    def report_build(self, what: str, done: int, total: int) -> None:
        self._bars.update(self._build, description=f"  {what}", completed=done, total=total, visible=True)


@contextmanager
def _progress_bars() -> Iterator[_Bars]:
    bars = Progress(
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    )
    with bars:
        yield _Bars(bars)

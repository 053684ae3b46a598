"""`logt reproduce`: run the paper's experiments."""

import os
import time
from pathlib import Path
from typing import Annotated

import typer

import logt
from logt.cli.console import err, progress, say
from logt.datasets import load_benchmark, synthetic_benchmark
from logt.reproduce import plots
from logt.reproduce.experiments import EXPERIMENTS
from logt.reproduce.plan import Plan
from logt.reproduce.report import collection_notes
from logt.reproduce.run import Run, select_experiments


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAMES", help="More names for --only.", hidden=True)
    ] = None,
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
        bool,
        typer.Option(
            "--quick", help="Check that everything runs: fewer settings and seeds and, without --data, 4,000 vectors."
        ),
    ] = False,
) -> None:
    """Repeat the experiments of the paper. The data are yours or a synthetic collection.

    Finished points are kept: after an interruption, the same command resumes.
    """
    os.environ.setdefault("RAYON_NUM_THREADS", "1")  # for turbovec: all systems are timed on one thread
    selected = [*(only or []), *(names or [])]
    select_experiments(selected)  # report a wrong name or a missing package before the work starts
    plots.check_matplotlib()
    if data is not None:
        benchmark = load_benchmark(data)
    elif quick:
        benchmark = synthetic_benchmark(4_000, 512, landmarks=40)
    else:
        benchmark = synthetic_benchmark(20_000, 1024, landmarks=60)
    for note in collection_notes(benchmark):
        say(note)
    say(f"{benchmark.name}: {len(benchmark.Q)} queries, protocol {benchmark.main}")
    plan = Plan.from_shape(*benchmark.X.shape, quick=quick)
    start = time.perf_counter()
    with progress(quiet=False) as report:
        run = Run(benchmark, plan, out, logt.__version__, report)
        try:
            path = run(selected)
        except KeyboardInterrupt:
            say(f"interrupted; {run.new_points} new points are kept. The same command resumes", err)
            raise typer.Exit(130) from None
    say(f"{run.new_points} points measured in {(time.perf_counter() - start) / 60:.1f} minutes; report: {path}")

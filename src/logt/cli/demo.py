"""`logt demo`: the default index and exhaustive search, compared on a synthetic collection."""

import time
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from logt._internal.threads import Progress, single_threaded_blas
from logt._internal.types import Floats
from logt.baselines import BuiltSystem, Composed, Exhaustive, System
from logt.cli.console import AsJson, Threads, out, print_json, progress
from logt.datasets import synthetic_collection
from logt.evaluation import mean_average_precision, recall_at
from logt.methods import sketched

_NOTES = """\
Columns: mean average precision of 100 results in percent, recall of the 10
nearest neighbors, bytes per vector in memory (a saved index of logt also reads
one byte per dimension from disk), milliseconds per query for 10 results on one
thread, for one query and in a batch of 60, seconds to build.
Next: logt build VECTORS.npy my.index; logt search my.index QUERIES.npy"""
_RESULTS, _TIMED = 100, 10
_DIGITS = {"mAP": 1, "recall@10": 3, "ms, one": 2, "ms, batch": 2, "build s": 1}


def demo(
    vectors: Annotated[int, typer.Option(min=2000, help="Number of vectors.")] = 20_000,
    dim: Annotated[int, typer.Option(min=8, help="Dimension of the vectors.")] = 512,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Compare logt with exhaustive search on a synthetic collection."""
    with progress(quiet=as_json) as report:
        rows = _compare_systems(vectors, dim, threads, report)
    if as_json:
        print_json(rows)
        return
    table = Table(title=f"{vectors:,} synthetic photo descriptors of dimension {dim}, 60 landmarks as queries")
    for name in rows[0]:
        table.add_column(name, justify="left" if name == "system" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(_format(name, value) for name, value in row.items()))
    out.print(table)
    out.print(_NOTES, highlight=False, soft_wrap=True)


def _compare_systems(N: int, dim: int, threads: int | None, report: Progress) -> list[dict[str, Any]]:
    """Return one row per system: accuracy, bytes per vector, milliseconds per query on one thread, build seconds."""
    collection = synthetic_collection(N, dim)
    systems: dict[str, System] = {"exhaustive": Exhaustive(), "logt": Composed(sketched())}
    rows, exact = [], None
    for name, system in systems.items():
        start = time.perf_counter()
        built = system.build(collection.X, threads=threads, progress=report)
        seconds = time.perf_counter() - start
        rankings = built.search(collection.Q, _RESULTS)
        exact = rankings if exact is None else exact  # those of exhaustive search
        row = {
            "system": name,
            "mAP": mean_average_precision(rankings, collection.positives),
            "recall@10": recall_at(10, rankings, exact),
            "bytes": built.nbytes / N,
        }
        rows.append({**row, **_times(built, collection.Q), "build s": seconds})
    return rows


def _times(built: BuiltSystem, Q: Floats) -> dict[str, float]:
    """Return milliseconds per query on one thread, of single queries and of a batch."""
    with single_threaded_blas():
        single = _milliseconds(lambda: [built.search(q[None], _TIMED) for q in Q]) / len(Q)
        batch = _milliseconds(lambda: built.search(Q, _TIMED)) / len(Q)
    return {"ms, one": single, "ms, batch": batch}


def _milliseconds(call: Callable[[], object], repeats: int = 5) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1000 * float(np.median(times))


def _format(column: str, value: Any) -> str:
    return value if isinstance(value, str) else f"{value:,.{_DIGITS.get(column, 0)}f}"

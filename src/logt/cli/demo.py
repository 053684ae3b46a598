"""The demonstration: a made photo collection, searched by us, by LO-GT and exhaustively, on one screen."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from logt._threads import Progress, single_threaded_blas
from logt._types import Array, Floats
from logt.cli.console import AsJson, Threads, out, progress
from logt.datasets import synthetic_collection
from logt.evaluation import mean_average_precision, recall_at
from logt.index import Index
from logt.methods import cascaded, compact, lo_gt, sketched, starred

_NOTES = """\
logt: the default index. The others are the paper's methods.
LO-GT: orthogonal units of n = 50, m = 4, L = 100 entries. *: with correction.
LO-GT bytes: Y and U in one byte each. cascade: the same, decoded in two steps.
mAP: how high views of the queried landmark rank. bytes: per vector.
ms: per query on one thread, alone and in a batch of 60.
Next: logt build VECTORS.npy my.index; logt search my.index QUERIES.npy"""


def demo(
    vectors: Annotated[int, typer.Option(min=2000, help="Size of the made collection.")] = 20_000,
    dim: Annotated[int, typer.Option(min=8, help="Its dimension.")] = 512,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Make a photo collection whose answer is known, index it, search it, and compare with exhaustive search."""
    with progress(quiet=as_json) as report:
        rows = run(vectors, dim, threads, report)
    if as_json:
        out.print_json(json.dumps(rows))
        return
    table = Table(title=f"{vectors:,} made photo descriptors of dimension {dim}, 60 landmarks to find")
    for name in rows[0]:
        table.add_column(name, justify="left" if name == "system" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(value if isinstance(value, str) else f"{value:,.{_digits(n)}f}" for n, value in row.items()))
    out.print(table)
    out.print(_NOTES, highlight=False)


def run(N: int, dim: int, threads: int | None, report: Progress | None) -> list[dict[str, Any]]:
    """One row per system: quality, bytes, milliseconds per query (one thread), seconds to build."""
    made = synthetic_collection(N, dim)
    exact = np.argsort(-(made.Q @ made.X.T), axis=1, kind="stable")

    def row(name: str, ids: Array, size: float, search: Callable[[Floats], object], build: float) -> dict[str, Any]:
        with single_threaded_blas():
            alone = _milliseconds(lambda: search(made.Q[0]))
            batch = _milliseconds(lambda: search(made.Q)) / len(made.Q)
        return {
            "system": name,
            "mAP": mean_average_precision(ids, made.positives),
            "recall@10": recall_at(10, ids, exact),
            "bytes": size,
            "ms, one": alone,
            "ms, batch": batch,
            "build s": build,
        }

    rows = [row("exhaustive", exact, 4.0 * dim, lambda Q: _exhaustive(made.X, Q), 0.0)]
    paper, short = lo_gt(L=100), compact(lo_gt(L=100))
    for name, method in {
        "logt": sketched(),
        "LO-GT": paper,
        "LO-GT*": starred(paper),
        "LO-GT bytes": short,
        "LO-GT cascade": cascaded(short),
    }.items():
        index = Index(dim, method=method, threads=threads)
        start = time.perf_counter()
        index.add(made.X, progress=report)
        seconds = time.perf_counter() - start
        ids = index.search(made.Q, N).ids
        size = index.report()["bytes per vector"]
        rows.append(row(name, ids, size, partial(index.search, k=100, threads=1), seconds))
    return rows


def _exhaustive(X: Floats, Q: Floats, k: int = 100) -> Array:
    S = np.atleast_2d(Q) @ X.T
    best = np.argpartition(-S, k, axis=1)[:, :k]
    order = np.argsort(-np.take_along_axis(S, best, axis=1), axis=1)
    return np.take_along_axis(best, order, axis=1)


def _milliseconds(call: Callable[[], object], repeats: int = 5) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1000 * float(np.median(times))


def _digits(column: str) -> int:
    return {"mAP": 1, "recall@10": 3, "build s": 1}.get(column, 2 if column.startswith("ms") else 0)

"""The demonstration: a made photo collection, searched by us, by LO-GT and exhaustively, on one screen."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from logt._threads import Progress, single_threaded_blas
from logt._types import Array, Floats
from logt.datasets import synthetic_collection
from logt.evaluation import mean_average_precision, recall_at
from logt.index import Index
from logt.methods import cascaded, compact, lo_gt, sketched, starred


def run(N: int, dim: int, threads: int | None, progress: Progress | None) -> list[dict[str, Any]]:
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
        index.add(made.X, progress=progress)
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

"""Measure diffusion on the neighbor graph: mAP, time, bytes, recall. `make diffusion`, or DATA=folder."""

from __future__ import annotations

import time

import numpy as np

import logt
from benchmarks.data import argument_parser, load, write_rows
from logt.datasets import Benchmark

K, SAMPLE = 50, 300
SEARCHES = {
    "plain": {},
    "αQE": {"expand": 10},
    "diffusion": {"rerank": "diffusion"},
    "αQE and diffusion": {"expand": 10, "rerank": "diffusion"},
}


def main() -> None:
    args = argument_parser(__doc__, "diffusion.csv").parse_args()
    data = load(args.data or None)
    exact = np.argsort(-(data.Q @ data.X.T), axis=1, kind="stable")
    rows = [row("exhaustive", data, exact), *searches(data, data.X, "")]
    rows += searches(data, logt.smoothed(data.X), "smoothed, ")
    write_rows(rows, args.out, "diffusion.csv")


def searches(data: Benchmark, X: np.ndarray, prefix: str) -> list[dict]:
    """Build and link an index, and return a row for each way to search it. prefix: of the rows' names."""
    index = logt.Index(X.shape[1])
    index.add(X)
    start, cpu = time.perf_counter(), time.process_time()
    index.link(K)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    print(f"graph: {seconds:.0f} s ({cpu:.0f} s of processor time), recall@{K} {graph_recall(index.links, X):.3f}")
    rows = []
    for name, settings in SEARCHES.items():
        ids = index.search(data.Q, len(X), **settings).ids
        rows.append(row(prefix + name, data, ids, milliseconds(index, data.Q, settings)))
    report = index.report()
    print(f"{report['bytes per vector']:.0f} bytes a vector:", end=" ")
    print(*(f"{name} {size / len(X):.0f}" for name, size in report["bytes by part"].items()), sep=", ", flush=True)
    return rows


def row(name: str, data: Benchmark, ids: np.ndarray, ms: float = float("nan")) -> dict:
    """Return the mAP by protocol, and the processor time of one query with k = 10 on one thread."""
    result = {"what": name, **{p: round(data.mean_ap(ids, p), 2) for p in data.truths}, "ms": round(ms, 2)}
    print(*(f"{key} {value}" for key, value in result.items()), sep="  ", flush=True)
    return result


def milliseconds(index: logt.Index, Q: np.ndarray, settings: dict) -> float:
    """Return the median processor time of one query."""
    times = []
    for q in Q:
        start = time.process_time()
        index.search(q, 10, threads=1, **settings)
        times.append(time.process_time() - start)
    return 1e3 * float(np.median(times))


def graph_recall(graph: logt.NeighborGraph, X: np.ndarray) -> float:
    """Return the fraction of the exact neighbors that the graph holds, for a sample of vectors."""
    rows = np.random.default_rng(0).choice(len(X), min(SAMPLE, len(X)), replace=False)
    S = X[rows] @ X.T
    S[np.arange(len(rows)), rows] = -np.inf
    exact = np.argpartition(-S, K, axis=1)[:, :K]
    return float(np.mean([np.isin(e, graph.neighbors(r)[0]).mean() for r, e in zip(rows, exact, strict=True)]))


if __name__ == "__main__":
    main()

"""Measure how batches, relearning, query expansion and smoothing change accuracy. `make streams`, or DATA=folder."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

import logt
from benchmarks.data import argument_parser, easy_ap, load, write_rows
from logt.datasets import Benchmark
from logt.evaluation import recall_at

ALPHA, NEIGHBORS, BATCHES = 3.0, 10, 10
QUERY_EXPANSION = {"expand": NEIGHBORS, "alpha": ALPHA}


def main() -> None:
    args = argument_parser(__doc__, "streams.csv").parse_args()
    data = load(args.data or None)
    table = Table(data, rank_all(data.Q, data.X))
    table.add("exhaustive", table.exact)
    index = logt.Index(data.X.shape[1])
    index.add(data.X)
    table.add_search("one batch", index)
    add_batches(table)
    add_query_expansion(table, index)
    add_smoothing(table)
    write_rows(table.rows, args.out, "streams.csv")


@dataclass
class Table:
    """Rows of results on a benchmark, compared with the exact ranking."""

    data: Benchmark
    exact: np.ndarray
    rows: list[dict] = field(default_factory=list)

    def add(self, name: str, ids: np.ndarray, seconds: float = 0.0) -> None:
        row = {"what": name, "mAP": round(self.data.mean_ap(ids), 2), "mAP, easy": round(easy_ap(self.data, ids), 2)}
        row |= {"recall@10": round(recall_at(10, ids, self.exact), 3), "seconds": round(seconds, 1)}
        self.rows.append(row)
        print(*row.values(), sep="  ", flush=True)

    def add_search(self, name: str, index: logt.Index, **settings) -> None:
        start = time.perf_counter()
        ids = index.search(self.data.Q, len(self.data.X), **settings).ids
        self.add(name, ids, time.perf_counter() - start)


def add_batches(table: Table) -> None:
    """Add indexes built in batches, then compacted and relearned."""
    X = table.data.X
    shuffled = np.random.default_rng(0).permutation(len(X))
    for title, order in {"in random order": shuffled, "in the given order": np.arange(len(X))}.items():
        index = logt.Index(X.shape[1])
        for batch in np.array_split(order, BATCHES):
            index.add(X[batch], ids=batch)
        table.add_search(f"{BATCHES} batches {title}", index)
        index.compact()
        table.add_search("  and compacted", index)
        index.compact(relearn=True)
        table.add_search("  and relearned from reconstructions", index)
        index.compact(X[index.ids])
        table.add_search("  and relearned from the originals", index)


def add_query_expansion(table: Table, index: logt.Index) -> None:
    """Add query expansion (αQE) by exhaustive search and by the index."""
    start = time.perf_counter()
    expanded = expand_queries(table.data.Q, table.data.X, table.exact[:, :NEIGHBORS])
    table.add("exhaustive, αQE", rank_all(expanded, table.data.X), time.perf_counter() - start)
    table.add_search("one batch, αQE", index, **QUERY_EXPANSION)


def add_smoothing(table: Table) -> None:
    """Add smoothed vectors (DBA) by exhaustive search and by an index, and with query expansion."""
    start = time.perf_counter()
    smooth = logt.smoothed(table.data.X, n=NEIGHBORS, alpha=ALPHA)
    seconds = time.perf_counter() - start
    table.add("exhaustive, DBA", rank_all(table.data.Q, smooth), seconds)
    index = logt.Index(smooth.shape[1])
    index.add(smooth)
    table.add_search("one batch, DBA", index)
    table.add_search("one batch, DBA and αQE", index, **QUERY_EXPANSION)


def rank_all(Q: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return the exact ranking of all vectors."""
    return np.argsort(-(Q @ X.T), axis=1, kind="stable")


def expand_queries(Q: np.ndarray, X: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Return each query plus its best results, weighted by their similarity to the power ALPHA, normalized."""
    weights = np.maximum(np.einsum("qd,qkd->qk", Q, X[best]), 0) ** ALPHA
    sums = Q + np.einsum("qk,qkd->qd", weights, X[best])
    return sums / np.linalg.norm(sums, axis=1, keepdims=True)


if __name__ == "__main__":
    main()

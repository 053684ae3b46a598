"""What batches, relearning, query expansion and smoothing do to accuracy. `make streams`, or with DATA=folder."""

from __future__ import annotations

import argparse
import time

import numpy as np

import logt
from benchmarks.data import easy_ap, load, write_rows
from logt.evaluation import recall_at

ALPHA, NEIGHBOURS, BATCHES = 3.0, 10, 10


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--data", help="folder with vectors.npy, queries.npy, ground_truth.json")
    words.add_argument("--out", default="build/bench", help="where streams.csv goes")
    given = words.parse_args()
    data = load(given.data or None)
    X, Q, d = data.X, data.Q, data.X.shape[1]
    order = np.random.default_rng(0).permutation(len(X))
    exact = ranking(Q, X)
    rows = []

    def tell(name, ids, seconds=0.0):
        row = {"what": name, "mAP": round(data.mean_ap(ids), 2), "mAP, easy": round(easy_ap(data, ids), 2)}
        row |= {"recall@10": round(recall_at(10, ids, exact), 3), "seconds": round(seconds, 1)}
        rows.append(row)
        print(*row.values(), sep="  ", flush=True)

    def searched(name, index, **how):
        start = time.perf_counter()
        ids = index.search(Q, len(X), **how).ids
        tell(name, ids, time.perf_counter() - start)

    tell("exhaustive", exact)
    whole = logt.Index(d)
    whole.add(X)
    searched("one batch", whole)
    for title, turns in {"in random order": order, "as they come": np.arange(len(X))}.items():
        index = logt.Index(d)
        for batch in np.array_split(turns, BATCHES):
            index.add(X[batch], ids=batch)
        searched(f"{BATCHES} batches {title}", index)
        index.compact()
        searched("  and compacted", index)
        index.compact(relearn=True)
        searched("  and relearned from reconstructions", index)
        index.compact(X[index.ids])
        searched("  and relearned from the originals", index)
    start = time.perf_counter()
    expanded = expansion(Q, X, exact[:, :NEIGHBOURS])
    tell("exhaustive, αQE", ranking(expanded, X), time.perf_counter() - start)
    searched("one batch, αQE", whole, expand=NEIGHBOURS, alpha=ALPHA)
    start = time.perf_counter()
    smooth = logt.smoothed(X, n=NEIGHBOURS, alpha=ALPHA)
    seconds = time.perf_counter() - start
    tell("exhaustive, DBA", ranking(Q, smooth), seconds)
    index = logt.Index(d)
    index.add(smooth)
    searched("one batch, DBA", index)
    searched("one batch, DBA and αQE", index, expand=NEIGHBOURS, alpha=ALPHA)
    write_rows(rows, given.out, "streams.csv")


def ranking(Q, X) -> np.ndarray:
    return np.argsort(-(Q @ X.T), axis=1, kind="stable")


def expansion(Q, X, best) -> np.ndarray:
    weights = np.maximum(np.einsum("qd,qkd->qk", Q, X[best]), 0) ** ALPHA
    sums = Q + np.einsum("qk,qkd->qd", weights, X[best])
    return sums / np.linalg.norm(sums, axis=1, keepdims=True)


if __name__ == "__main__":
    main()

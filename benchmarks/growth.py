"""Measure how time and accuracy change with the number of vectors. `make growth`, or `make growth DATA=folder`.

The collection starts with the real vectors and continues with synthetic ones of the same mean and covariance. Each
size is built at once, and again in batches (--batch) that are compacted at the end. The queries are 200 real vectors
that are not in the index. Most vectors of a large collection are synthetic and have no clusters, so that they are
much harder to find than the queries: each index is tuned with 128 other real vectors (`Index.tune`). The queries are
searched with the default settings; recall@10 is that of exhaustive search over the same vectors, and is compared with
that of a full read of the index (effort=1). With --link, the index that was built at once is searched again with a
neighbor graph of so many neighbors.
"""

from __future__ import annotations

import os
import time

import numpy as np

import logt
from benchmarks.data import argument_parser, load, write_rows
from benchmarks.memory import PeakMemory, own_memory
from logt._threads import single_threaded_blas, split_range
from logt.evaluation import recall_at

SIZES = (10_000, 31_600, 100_000, 316_000, 1_000_000)
BATCH = 20_000
REFERENCE = 100_000  # the size that times are compared with
K = 10
AT_ONCE, LINKED, IN_BATCHES = "at once", "at once, linked", "in batches"


def main() -> None:
    parser = argument_parser(__doc__, "growth.csv")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="a million take 6 GB at 1536 dimensions")
    parser.add_argument("--recall", type=float, nargs="+", default=[0.95], help="of a full read, that is requested")
    parser.add_argument("--link", type=int, default=0, help="neighbors per vector of the graph; 0: no graph")
    parser.add_argument("--batch", type=int, default=BATCH, help="vectors of a batch; 0: all are added at once only")
    args = parser.parse_args()
    sizes = sorted(args.sizes)
    Q, tuning, X = make_collection(load(args.data or None).X, sizes[-1])
    rows: list[dict] = []

    def add(how: str, index: logt.Index, start: float) -> None:
        row = {"vectors": len(index), "added": how, "build s": round(time.perf_counter() - start, 1)}
        index.tune(tuning)
        for wanted in args.recall:
            rows.append(row | measure(index, Q, nearest, wanted))
            print(*(f"{name} {value}" for name, value in rows[-1].items()), sep="; ", flush=True)

    for size in sizes:
        nearest = exact_neighbours(Q, X[:size])
        start = time.perf_counter()
        index = build_index(X, [slice(0, size)])
        add(AT_ONCE, index, start)
        if args.link:
            start, before = time.perf_counter(), own_memory()
            with PeakMemory(lambda: [os.getpid()]) as during:
                index.link(args.link)
            print(f"link {size:,} vectors: about {(during.own - before) / 2**30:.2f} GiB beyond the index")
            add(LINKED, index, start)
        if args.batch:
            start = time.perf_counter()
            add(IN_BATCHES, build_index(X, split_range(size, args.batch)), start)
    for line in summary(rows):
        print(line)
    write_rows(rows, args.out, "growth.csv")


def make_collection(real: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (200 real vectors as queries, 128 to tune with, the other real vectors and as many synthetic ones)."""
    rng = np.random.default_rng(0)
    order = rng.permutation(len(real))
    Q, tuning, real = np.split(real[order], [200, 328])
    d = real.shape[1]
    X = np.empty((count, d), np.float32)
    X[: len(real)] = real[:count]
    mean = real.mean(axis=0)
    factor = np.linalg.cholesky(np.cov(real[:30_000].T) + 1e-9 * np.eye(d)).astype(np.float32)
    for part in split_range(max(0, count - len(real)), BATCH):
        synthetic = rng.standard_normal((part.stop - part.start, d), np.float32) @ factor.T + mean
        synthetic /= np.linalg.norm(synthetic, axis=1, keepdims=True)
        X[len(real) + part.start : len(real) + part.stop] = synthetic
    return Q, tuning, X


def build_index(X: np.ndarray, parts: list[slice]) -> logt.Index:
    index = logt.Index(X.shape[1], segment_size=None)
    for part in parts:
        index.add(X[part])
    index.compact()
    return index


def exact_neighbours(Q: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return the K nearest vectors of each query."""
    scores, ids = [], []
    for part in split_range(len(X), BATCH):
        S = Q @ X[part].T
        best = np.argpartition(-S, K, axis=1)[:, :K]
        scores.append(np.take_along_axis(S, best, axis=1))
        ids.append(best + part.start)
    order = np.argsort(-np.concatenate(scores, axis=1), axis=1)[:, :K]
    return np.take_along_axis(np.concatenate(ids, axis=1), order, axis=1)


def measure(index: logt.Index, Q: np.ndarray, nearest: np.ndarray, wanted: float) -> dict[str, float]:
    """Return segments, bytes, recall as wanted and of a full read, and the time of one query."""
    settings = {"recall": wanted}, {"effort": 1.0}
    recall, full = (recall_at(K, index.search(Q, K, **how).ids, nearest) for how in settings)
    report = index.report()  # with what searches have cached
    return {
        "segments": report["segments"],
        "bytes per vector": round(report["bytes per vector"]),
        "requested": wanted,
        "recall@10": round(recall, 3),
        "recall@10 of a full read": round(full, 3),
        "of a full read": round(recall / full, 3),
        "ms": round(milliseconds(index, Q, wanted), 3),
    }


def milliseconds(index: logt.Index, Q: np.ndarray, recall: float) -> float:
    """Return the median time of one query on one thread."""
    times = []
    with single_threaded_blas():
        for q in Q:
            start = time.perf_counter()
            index.search(q, K, threads=1, recall=recall)
            times.append(time.perf_counter() - start)
    return 1000 * float(np.median(times))


def summary(rows: list[dict]) -> list[str]:
    """Return the growth from 100,000 vectors, or the smallest size, to the largest, and the cost of batches."""
    lines = []
    for how, requested in dict.fromkeys((row["added"], row["requested"]) for row in rows):
        of = {row["vectors"]: row for row in rows if (row["added"], row["requested"]) == (how, requested)}
        first, last = of.get(REFERENCE, next(iter(of.values()))), of[max(of)]
        times = last["ms"] / first["ms"]
        lines.append(
            f"{how}, recall {requested}: {last['vectors']:,} vectors take {times:.2f} times the time of "
            f"{first['vectors']:,}, and find {last['of a full read']:.3f} of what a full read finds"
        )
    ms = {(row["added"], row["requested"], row["vectors"]): row["ms"] for row in rows}
    for (how, requested, size), grown in ms.items():
        if how == IN_BATCHES:
            times = grown / ms[AT_ONCE, requested, size]
            lines.append(
                f"{size:,} vectors, recall {requested}: an index that grew takes {times:.2f} times the time of one "
                "built at once"
            )
    return lines


if __name__ == "__main__":
    main()

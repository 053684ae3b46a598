"""Measure how time and accuracy change with the number of vectors. `make growth`, or `make growth DATA=folder`.

The collection starts with the real vectors and continues with synthetic ones of the same mean and covariance. Each
size is built at once, and again in batches (--batch) that are compacted at the end. The queries are 200 real vectors
that are not in the index. Most vectors of a large collection are synthetic and have no clusters, so that they are
much harder to find than the queries: each index is tuned with 128 other real vectors (`Index.tune`). The queries are
searched with the default settings; recall@10 is that of exhaustive search over the same vectors, and is compared with
that of a full read of the index (effort=1). With --link, the index that was built at once is searched again with a
neighbor graph of so many neighbors. Times are medians over rounds in which the indexes of all sizes take turns.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import logt
from benchmarks.data import argument_parser, load, write_rows
from benchmarks.memory import PeakMemory, own_memory
from logt._internal.threads import single_threaded_blas, split_range
from logt.evaluation import recall_at

SIZES = (10_000, 31_600, 100_000, 316_000, 1_000_000)
BATCH = 20_000
REFERENCE = 100_000  # the size that times are compared with
K = 10
ROUNDS = 3  # of timed queries
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
    built = [entry for size in sizes for entry in build(X[:size], Q, tuning, args.link, args.batch)]
    rows = [row for entry in built for row in measure(entry, Q, args.recall)]
    for ms, row in zip(time_in_turn(built, Q, args.recall), rows, strict=True):
        row["ms"] = round(ms, 3)
        print(*(f"{name} {value}" for name, value in row.items()), sep="; ", flush=True)
    for line in summary(rows):
        print(line)
    write_rows(rows, args.out, "growth.csv")


@dataclass(frozen=True)
class Built:
    """An index, how its vectors were added, the seconds that took, and the exact neighbors of the queries."""

    index: logt.Index
    added: str
    seconds: float
    nearest: np.ndarray


def build(X: np.ndarray, Q: np.ndarray, tuning: np.ndarray, link: int, batch: int) -> Iterator[Built]:
    """Yield the indexes of some vectors: built at once, with a graph of `link` neighbors, and grown in batches."""
    nearest = exact_neighbors(Q, X)
    start = time.perf_counter()
    index = build_index(X, [slice(0, len(X))])
    seconds = time.perf_counter() - start
    index.tune(tuning)
    yield Built(copy.copy(index), AT_ONCE, seconds, nearest)
    if link:
        start, before = time.perf_counter(), own_memory()
        with PeakMemory(lambda: [os.getpid()]) as during:
            index.link(link)
        seconds = time.perf_counter() - start
        print(f"link {len(X):,} vectors: about {(during.own - before) / 2**30:.2f} GiB beyond the index", flush=True)
        index.tune(tuning)
        yield Built(index, LINKED, seconds, nearest)
    if batch:
        start = time.perf_counter()
        index = build_index(X, split_range(len(X), batch))
        seconds = time.perf_counter() - start
        index.tune(tuning)
        yield Built(index, IN_BATCHES, seconds, nearest)


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


def exact_neighbors(Q: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return the K nearest vectors of each query."""
    scores, ids = [], []
    for part in split_range(len(X), BATCH):
        S = Q @ X[part].T
        best = np.argpartition(-S, K, axis=1)[:, :K]
        scores.append(np.take_along_axis(S, best, axis=1))
        ids.append(best + part.start)
    order = np.argsort(-np.concatenate(scores, axis=1), axis=1)[:, :K]
    return np.take_along_axis(np.concatenate(ids, axis=1), order, axis=1)


def measure(built: Built, Q: np.ndarray, recalls: list[float]) -> Iterator[dict]:
    """Yield, for each recall that is requested, segments, bytes, and the recall of the search and of a full read."""
    index = built.index
    full = recall_at(K, index.search(Q, K, effort=1.0).ids, built.nearest)
    for wanted in recalls:
        recall = recall_at(K, index.search(Q, K, recall=wanted).ids, built.nearest)
        report = index.report()  # with what searches have cached
        yield {
            "vectors": len(index),
            "added": built.added,
            "build s": round(built.seconds, 1),
            "segments": report["segments"],
            "bytes per vector": round(report["bytes per vector"]),
            "requested": wanted,
            "recall@10": round(recall, 3),
            "recall@10 of a full read": round(full, 3),
            "of a full read": round(recall / full, 3),
        }


def time_in_turn(built: list[Built], Q: np.ndarray, recalls: list[float]) -> list[float]:
    """Return the milliseconds of one query on one thread, for each index and each recall: medians over the rounds."""
    turns = [(entry.index, recall) for entry in built for recall in recalls]
    with single_threaded_blas():
        rounds = [[_milliseconds(index, Q, recall) for index, recall in turns] for _ in range(ROUNDS)]
    return [float(ms) for ms in np.median(rounds, axis=0)]


def _milliseconds(index: logt.Index, Q: np.ndarray, recall: float) -> float:
    """Return the median time of one query."""
    times = []
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

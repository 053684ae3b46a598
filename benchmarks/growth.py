"""Measure how time and accuracy change with the number of vectors. `make growth`, or `make growth DATA=folder`.

The collection starts with the real vectors and continues with synthetic ones of the same mean and covariance. Each
size is built at once, and again in batches of 20,000 that are compacted at the end. The queries are vectors that are
not in the index; the ground truth is exhaustive search over the same vectors.
"""

from __future__ import annotations

import time

import numpy as np

import logt
from benchmarks.data import argument_parser, load, write_rows
from logt._threads import single_threaded_blas, split_range

SIZES = (10_000, 31_600, 100_000, 316_000, 1_000_000)
BATCH = 20_000
EFFORTS = (0.375, 0.6)
AT_ONCE, IN_BATCHES = "at once", f"batches of {BATCH:,}"


def main() -> None:
    parser = argument_parser(__doc__, "growth.csv")
    parser.add_argument("--most", type=int, default=SIZES[-1], help="largest size; a million take 6 GB at 1536 dims")
    args = parser.parse_args()
    sizes = [size for size in SIZES if size <= args.most]
    Q, X = make_collection(load(args.data or None).X, sizes[-1])
    rows = []
    for size in sizes:
        nearest = exact_neighbours(Q, X[:size])
        for how, parts in ((AT_ONCE, [slice(0, size)]), (IN_BATCHES, split_range(size, BATCH))):
            start = time.perf_counter()
            index = build_index(X, parts)
            row = {"vectors": size, "added": how, "build s": round(time.perf_counter() - start, 1)}
            rows.append(row | measure(index, Q, nearest))
            print(*(f"{name} {value}" for name, value in rows[-1].items()), sep="; ", flush=True)
    for how in (AT_ONCE, IN_BATCHES):
        print_growth([row for row in rows if row["added"] == how])
    write_rows(rows, args.out, "growth.csv")


def make_collection(real: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (200 real vectors as queries, a collection of the other real vectors and as many synthetic ones)."""
    rng = np.random.default_rng(0)
    order = rng.permutation(len(real))
    Q, real = real[order[:200]], real[order[200:]]
    d = real.shape[1]
    X = np.empty((count, d), np.float32)
    X[: len(real)] = real[:count]
    mean = real.mean(axis=0)
    factor = np.linalg.cholesky(np.cov(real[:30_000].T) + 1e-9 * np.eye(d)).astype(np.float32)
    for part in split_range(max(0, count - len(real)), BATCH):
        synthetic = rng.standard_normal((part.stop - part.start, d), np.float32) @ factor.T + mean
        synthetic /= np.linalg.norm(synthetic, axis=1, keepdims=True)
        X[len(real) + part.start : len(real) + part.stop] = synthetic
    return Q, X


def build_index(X: np.ndarray, parts: list[slice]) -> logt.Index:
    index = logt.Index(X.shape[1], segment_size=None)
    for part in parts:
        index.add(X[part])
    index.compact()
    return index


def exact_neighbours(Q: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return the ten nearest vectors of each query."""
    scores, ids = [], []
    for part in split_range(len(X), BATCH):
        S = Q @ X[part].T
        best = np.argpartition(-S, 10, axis=1)[:, :10]
        scores.append(np.take_along_axis(S, best, axis=1))
        ids.append(best + part.start)
    order = np.argsort(-np.concatenate(scores, axis=1), axis=1)[:, :10]
    return np.take_along_axis(np.concatenate(ids, axis=1), order, axis=1)


def measure(index: logt.Index, Q: np.ndarray, nearest: np.ndarray) -> dict[str, float]:
    """Return segments, bytes, and recall and time at each effort."""
    report = index.report()
    row = {"segments": report["segments"], "bytes per vector": round(report["bytes per vector"])}
    for effort in EFFORTS:
        ids = index.search(Q, 10, effort=effort).ids
        recalls = [len(set(a) & set(b)) / 10 for a, b in zip(ids, nearest, strict=True)]
        row[f"recall@10, effort {effort}"] = round(float(np.mean(recalls)), 3)
        row[f"ms, effort {effort}"] = round(milliseconds(index, Q, effort), 3)
    return row


def milliseconds(index: logt.Index, Q: np.ndarray, effort: float) -> float:
    """Return the median time of one query on one thread."""
    times = []
    with single_threaded_blas():
        for q in Q:
            start = time.perf_counter()
            index.search(q, 100, effort=effort, threads=1)
            times.append(time.perf_counter() - start)
    return 1000 * float(np.median(times))


def print_growth(rows: list[dict]) -> None:
    """Print the growth from the smallest to the largest collection."""
    column = f"ms, effort {EFFORTS[0]}"
    first, last = rows[0], rows[-1]
    size, slower = last["vectors"] / first["vectors"], last[column] / first[column]
    print(f"{first['added']}: {size:.0f} times the vectors, {slower:.1f} times the time")


if __name__ == "__main__":
    main()

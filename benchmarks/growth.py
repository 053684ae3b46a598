"""How time and accuracy change with the number of vectors. `make growth`, or `make growth DATA=folder`.

Real vectors first, as far as they reach; above, made ones of the same mean and covariance. Each size is built in one
go, and once more in batches of 20,000 that are compacted at the end. Queries are vectors that are not in the index,
exhaustive search over the same vectors is the truth.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import logt
from benchmarks.data import load, write_rows
from logt._threads import single_threaded_blas, split_range

SIZES = (10_000, 31_600, 100_000, 316_000, 1_000_000)
BATCH = 20_000
EFFORTS = (0.375, 0.6)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--data", help="folder with vectors.npy, queries.npy, ground_truth.json")
    words.add_argument("--out", default="build/bench", help="where growth.csv goes")
    words.add_argument("--most", type=int, default=SIZES[-1], help="vectors; a million take 6 GB at 1536 dimensions")
    given = words.parse_args()
    sizes = [size for size in SIZES if size <= given.most]
    Q, X = collection(load(given.data or None).X, sizes[-1])
    rows = []
    for size in sizes:
        nearest = exact(Q, X[:size])
        for how, parts in (("at once", [slice(0, size)]), (f"batches of {BATCH:,}", split_range(size, BATCH))):
            begun = time.perf_counter()
            index = logt.Index(X.shape[1], segment_size=None)
            for part in parts:
                index.add(X[part])
            index.compact()
            row = {"vectors": size, "added": how, "build s": round(time.perf_counter() - begun, 1)}
            rows.append(row | figures(index, Q, nearest))
            print(*(f"{name} {value}" for name, value in rows[-1].items()), sep="; ", flush=True)
    for how in ("at once", f"batches of {BATCH:,}"):
        first, *_, last = [row for row in rows if row["added"] == how]
        times = last["ms, effort 0.375"] / first["ms, effort 0.375"]
        print(f"{how}: {last['vectors'] / first['vectors']:.0f} times the vectors, {times:.1f} times the time")
    write_rows(rows, given.out, "growth.csv")


def collection(real: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """(200 of the real vectors as queries, the others and as many made ones as are missing)."""
    rng = np.random.default_rng(0)
    order = rng.permutation(len(real))
    Q, real = real[order[:200]], real[order[200:]]
    d = real.shape[1]
    X = np.empty((count, d), np.float32)
    X[: len(real)] = real[:count]
    mean = real.mean(axis=0)
    factor = np.linalg.cholesky(np.cov(real[:30_000].T) + 1e-9 * np.eye(d)).astype(np.float32)
    for part in split_range(max(0, count - len(real)), BATCH):
        made = rng.standard_normal((part.stop - part.start, d), np.float32) @ factor.T + mean
        X[len(real) + part.start : len(real) + part.stop] = made / np.linalg.norm(made, axis=1, keepdims=True)
    return Q, X


def exact(Q: np.ndarray, X: np.ndarray) -> np.ndarray:
    """The ten nearest of each query."""
    scores, ids = [], []
    for part in split_range(len(X), BATCH):
        S = Q @ X[part].T
        best = np.argpartition(-S, 10, axis=1)[:, :10]
        scores.append(np.take_along_axis(S, best, axis=1))
        ids.append(best + part.start)
    order = np.argsort(-np.concatenate(scores, axis=1), axis=1)[:, :10]
    return np.take_along_axis(np.concatenate(ids, axis=1), order, axis=1)


def figures(index: logt.Index, Q: np.ndarray, nearest: np.ndarray) -> dict[str, float]:
    report = index.report()
    found = {"segments": report["segments"], "bytes per vector": round(report["bytes per vector"])}
    for effort in EFFORTS:
        ids = index.search(Q, 10, effort=effort).ids
        shared = [len(set(a) & set(b)) / 10 for a, b in zip(ids, nearest, strict=True)]
        found[f"recall@10, effort {effort}"] = round(float(np.mean(shared)), 3)
        found[f"ms, effort {effort}"] = round(milliseconds(index, Q, effort), 3)
    return found


def milliseconds(index: logt.Index, Q: np.ndarray, effort: float) -> float:
    times = []
    with single_threaded_blas():
        for q in Q:
            start = time.perf_counter()
            index.search(q, 100, effort=effort, threads=1)
            times.append(time.perf_counter() - start)
    return 1000 * float(np.median(times))


if __name__ == "__main__":
    main()

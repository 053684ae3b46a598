"""How time and accuracy change with the number of vectors. `make growth`, or `make growth DATA=folder`.

Real vectors first, as far as they reach; above, made ones of the same mean and covariance are added. Queries are
vectors that are not in the index, exhaustive search over the same vectors is the truth.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import logt
from benchmarks.data import load, write_rows
from logt.threads import one_blas_thread

SIZES = (10_000, 31_600, 100_000, 316_000, 1_000_000)
BLOCK = 20_000


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--data", help="folder with vectors.npy, queries.npy, ground_truth.json")
    words.add_argument("--out", default="build/bench", help="where growth.csv goes")
    words.add_argument("--most", type=int, default=SIZES[-1])
    given = words.parse_args()
    data = load(given.data or None)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(data.X))
    Q, real = data.X[order[:200]], data.X[order[200:]]
    d = real.shape[1]
    mean = real.mean(axis=0)
    factor = np.linalg.cholesky(np.cov(real[:30_000].T) + 1e-9 * np.eye(d)).astype(np.float32)
    index = logt.Index(d)
    best = np.full((len(Q), 10), -np.inf, np.float32)
    which = np.zeros((len(Q), 10), np.int64)
    rows, built = [], 0.0
    for size in [size for size in SIZES if size <= given.most]:
        have = len(index)
        while have < size:
            count = min(BLOCK, size - have)
            batch = real[have : have + count]
            if len(batch) < count:
                made = rng.standard_normal((count - len(batch), d), np.float32) @ factor.T + mean
                batch = np.concatenate([batch, made / np.linalg.norm(made, axis=1, keepdims=True)])
            begun = time.perf_counter()
            index.add(batch)
            built += time.perf_counter() - begun
            S = np.concatenate([best, Q @ batch.T], axis=1)
            names = np.concatenate([which, np.tile(np.arange(have, have + count), (len(Q), 1))], axis=1)
            top = np.argsort(-S, axis=1)[:, :10]
            best, which = np.take_along_axis(S, top, axis=1), np.take_along_axis(names, top, axis=1)
            have += count
        begun = time.perf_counter()
        index.compact()
        built += time.perf_counter() - begun
        row = {"vectors": size, "build s": round(built, 1), "segments": index.report()["segments"]}
        row["bytes per vector"] = round(index.report()["bytes per vector"])
        for effort in (0.4, 0.6):
            found = index.search(Q, 10, effort=effort).ids
            row[f"recall@10, effort {effort}"] = round(
                float(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, which, strict=True)])), 3
            )
            row[f"ms, effort {effort}"] = round(milliseconds(index, Q, effort), 3)
        rows.append(row)
        print(*(f"{name} {value}" for name, value in row.items()), sep="; ", flush=True)
    first, last = rows[0], rows[-1]
    times = last["vectors"] / first["vectors"]
    print(f"{times:.0f} times the vectors: {last['ms, effort 0.4'] / first['ms, effort 0.4']:.1f} times the time")
    write_rows(rows, given.out, "growth.csv")


def milliseconds(index, Q, effort) -> float:
    times = []
    with one_blas_thread():
        for q in Q:
            start = time.perf_counter()
            index.search(q, 100, effort=effort, threads=1)
            times.append(time.perf_counter() - start)
    return 1000 * float(np.median(times))


if __name__ == "__main__":
    main()

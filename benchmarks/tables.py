"""LO-GT against RND, plain and corrected, mean and deviation over seeds. `make tables`, or `make tables DATA=folder`.

The settings of the paper's figures 3 and 4: 0-order decoder for n = 20, 50, 100 at m = n/10; sparse 1-order decoder
for L = 50, 100, 200, 300 at n = 50, m = 4. Full rankings, float32, one segment over everything.
"""

from __future__ import annotations

import argparse

import numpy as np

import logt
from benchmarks.data import load, write_rows
from logt.methods import lo_gt, rnd, starred


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--data", help="folder with vectors.npy, queries.npy, ground_truth.json")
    words.add_argument("--out", default="build/bench", help="where tables.csv goes")
    words.add_argument("--seeds", type=int, default=3)
    words.add_argument("--only", help="settings and systems whose name contains this")
    given = words.parse_args()
    data = load(given.data or None)
    exact = np.argsort(-(data.Q @ data.X.T), axis=1, kind="stable")
    print(f"{data.name}: exhaustive {data.mean_ap(exact):.2f}", flush=True)
    settings = {f"0-order, n={n}": {"n": n, "m": n // 10, "L": None, "order": 0} for n in (20, 50, 100)}
    settings |= {f"sparse, L={L}": {"n": 50, "m": 4, "L": L} for L in (50, 100, 200, 300)}
    rows = []
    for setting, parameters in settings.items():
        for name, make in {"LO-GT": lo_gt, "RND": rnd}.items():
            if given.only and given.only not in f"{setting} {name}":
                continue
            runs = np.array([run(data, starred(make(**parameters)), seed) for seed in range(given.seeds)])
            plain, corrected = runs.mean(axis=0)
            spread = runs.std(axis=0, ddof=1) if given.seeds > 1 else np.zeros(2)
            rows.append(
                {
                    "setting": setting,
                    "system": name,
                    "mAP": round(plain, 1),
                    "±": round(spread[0], 1),
                    "corrected": round(corrected, 1),
                    "± ": round(spread[1], 1),
                }
            )
            print(*rows[-1].values(), sep="  ", flush=True)
    write_rows(rows, given.out, "tables.csv")


def run(data, method: logt.Method, seed: int) -> tuple[float, float]:
    """mAP without and with the correction."""
    index = logt.Index(data.X.shape[1], method=method, seed=seed, segment_size=None)
    index.add(data.X)
    return tuple(data.mean_ap(index.search(data.Q, len(data.X), correct=c).ids) for c in (False, True))


if __name__ == "__main__":
    main()

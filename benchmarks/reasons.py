"""Why the paper's claims hold or fail on some data. `make reasons`, or `make reasons DATA=folder`: writes reasons.md.

Four tables: what is built is checked against plain NumPy; the noise of its estimates is compared with that of exact
similarities to which as much is added; the paper's open points are read in several ways; the descriptors are changed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import logt
from benchmarks.data import load
from logt.datasets import Benchmark, photo_collection
from logt.evaluation import GroundTruth
from logt.methods import lo_gt, rnd, starred
from logt.reproduce.shared_builds import SharedMethod, StageCache
from logt.stages.grouping import Orthogonal, Units
from logt.stages.memory_vectors import Sum

N, M, L = 50, 4, 50
SYSTEMS = {"LO-GT": lo_gt, "RND": rnd}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--data", help="a benchmark, as for logt reproduce")
    words.add_argument("--out", default="build/bench", help="where reasons.md goes")
    words.add_argument("--seeds", type=int, default=3)
    given = words.parse_args()
    data = load(given.data or None, made=10_000)
    path = Path(given.out)
    path.mkdir(parents=True, exist_ok=True)
    with open(path / "reasons.md", "w") as file:
        for title, rows in {
            "What is built": lambda: checks(data),
            "The noise of estimates": lambda: noise(data),
            "Readings of the paper": lambda: readings(data, given.seeds),
            "Descriptors": lambda: descriptors(data),
        }.items():
            text = f"## {title}\n\n{table(rows())}\n"
            print(text, flush=True)
            file.write(text + "\n")
    print(f"{data.name}: {path / 'reasons.md'}")


def table(rows: Sequence[dict]) -> str:
    lines = [list(rows[0]), ["---"] * len(rows[0]), *([str(value) for value in row.values()] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def built(data: Benchmark, method: logt.Method, seed: int = 0) -> logt.Index:
    index = logt.Index(data.X.shape[1], method=method, seed=seed, segment_size=None)
    index.add(data.X)
    return index


def mean_ap(data: Benchmark, index: logt.Index, correct: bool = False) -> float:
    return data.mean_ap(index.search(data.Q, len(data.X), correct=correct).ids)


def ranked(data: Benchmark, scores: np.ndarray) -> float:
    """mAP of full rankings by these scores."""
    return data.mean_ap(np.argsort(-scores, axis=1, kind="stable"))


def over_seeds(made: Callable[[int], float], seeds: int) -> str:
    values = [made(seed) for seed in range(seeds)]
    spread = f" ± {np.std(values, ddof=1):.1f}" if seeds > 1 else ""
    return f"{np.mean(values):.1f}{spread}"


# ------------------------------------------------------------------------------------------------- checks


def checks(data: Benchmark, sample: int = 20) -> list[dict]:
    """The stages on these very vectors, against what they must give and against a naive pursuit."""
    rng = np.random.default_rng(0)
    columns = {}
    for name, make in SYSTEMS.items():
        index = built(data, starred(make(n=N, m=M, L=L)))
        segment = index._snapshot.segments[0]
        units, Y = segment.units, segment.codebook.decode()
        some = rng.choice(units.count, min(200, units.count), replace=False)
        inside = [data.X[units.rows(u)] @ data.X[units.rows(u)].T for u in some]
        products = np.concatenate([data.X[units.rows(u)] @ Y[u] for u in some])
        vectors = rng.choice(len(data.X), sample, replace=False)
        left = [_left(data.X[i], Y, units, i, index.reconstruct([i])[0]) for i in vectors]
        found = index.search(data.Q[:1], len(data.X), correct=False)
        columns[name] = {
            "units of a vector that are the same one": sum(
                len(set(row)) < M for row in units.assignment[::97].tolist()
            ),
            "vectors in a unit": f"{min(map(len, inside))} to {max(map(len, inside))}",
            "products of members with their memory vector, 1 at most off by": f"{np.abs(products - 1).max():.1e}",
            "largest cosine within a unit, mean": f"{np.mean([_largest(G) for G in inside]):.2f}",
            "pairs of matches of a query in one unit": f"{_together(data, units):.1%}",
            "estimates, at most off from U·(Ŷq) by": f"{_off(data, index, found):.1e}",
            "energy left by the pursuit": f"{np.mean([ours for ours, _ in left]):.4f}",
            "energy left by a naive pursuit": f"{np.mean([theirs for _, theirs in left]):.4f}",
        }
    return [{"check": check, **{name: columns[name][check] for name in columns}} for check in columns["RND"]]


def _left(x: np.ndarray, Y: np.ndarray, units: Units, i: int, ours: np.ndarray) -> tuple[float, float]:
    """‖x − Yᵀu‖² by the kernel, and by the naive pursuit in all of S₁."""
    sharing = np.isin(units.assignment, units.assignment[i]).any(axis=1)
    atoms = Y[np.unique(units.assignment[sharing])].astype(np.float64)
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    chosen: list[int] = []
    theirs = np.zeros(len(x))
    for _ in range(L):
        correlation = np.abs(atoms @ (x - theirs))
        correlation[chosen] = -1
        chosen.append(int(correlation.argmax()))
        theirs = np.linalg.lstsq(atoms[chosen].T, x.astype(np.float64), rcond=None)[0] @ atoms[chosen]
    return float(np.square(x - ours).sum()), float(np.square(x - theirs).sum())


def _largest(G: np.ndarray) -> float:
    return float(np.abs(G[~np.eye(len(G), dtype=bool)]).max())


def _together(data: Benchmark, units: Units) -> float:
    """Of the pairs of vectors that match the same query, those that share a unit."""
    shared = pairs = 0
    for rows in data.truths[data.main].positives:
        of = units.assignment[rows]
        same = (of[:, None, :] == of[None, :, :]).any(axis=2)
        shared += int(np.triu(same, 1).sum())
        pairs += len(rows) * (len(rows) - 1) // 2
    return shared / max(1, pairs)


def _off(data: Benchmark, index: logt.Index, found: logt.Results) -> float:
    """How far scores are from the products of queries and reconstructions."""
    ids = found.ids[0, ::500]
    exact = index.reconstruct(ids) @ data.Q[0]
    return float(np.abs(found.scores[0, ::500] - exact).max())


# -------------------------------------------------------------------------------------------------- noise


def noise(data: Benchmark) -> list[dict]:
    """Estimates ŝ = a·s + noise: its deviation over a, against the similarity of matches, and what it does to mAP."""
    exact = data.Q @ data.X.T
    matches = float(np.mean([exact[q, rows].mean() for q, rows in enumerate(data.truths[data.main].positives)]))
    rows = [{"decoder": "none", "noise": "0", "matches, in its units": "", "mAP": f"{ranked(data, exact):.1f}"}]
    rows[0]["mAP of exact + such noise"] = ""
    for name, make in SYSTEMS.items():
        for decoder, parameters in {
            "0-order, n=50, m=5": {"m": 5, "L": None, "order": 0},
            "L=50": {"m": M, "L": 50},
            "L=300": {"m": M, "L": min(300, data.X.shape[1] // 4)},
        }.items():
            index = built(data, make(n=N, **parameters))
            found = index.search(data.Q, len(data.X))
            estimates = np.empty_like(exact)
            np.put_along_axis(estimates, found.ids, found.scores, axis=1)
            slope = np.cov(exact.ravel(), estimates.ravel())
            a = slope[0, 1] / slope[0, 0]
            deviation = float(np.std(estimates - a * exact) / a)
            as_noisy = [
                ranked(data, exact + np.random.default_rng(s).normal(0, deviation, exact.shape)) for s in range(3)
            ]
            rows.append(
                {
                    "decoder": f"{name}, {decoder}",
                    "noise": f"{deviation:.3f}",
                    "matches, in its units": f"{(matches - exact.mean()) / deviation:.1f}",
                    "mAP": f"{data.mean_ap(found.ids):.1f}",
                    "mAP of exact + such noise": f"{np.mean(as_noisy):.1f}",
                }
            )
    return rows


# ----------------------------------------------------------------------------------------------- readings


def readings(data: Benchmark, seeds: int) -> list[dict]:
    """LO-GT at n = 50, m = 4, L = 50, plain and corrected, with one thing read in another way at a time."""
    base = starred(lo_gt(n=N, m=M, L=L))
    told = {
        "as it is: largest absolute cos, k = 20, pseudo-inverses, correction to 500": base,
        "sum of cos²": replace(base, group=Orthogonal(N, M, criterion="sum_squares")),
        "largest signed cos": replace(base, group=Orthogonal(N, M, criterion="max_signed")),
        "k = 5": replace(base, group=Orthogonal(N, M, 5)),
        "k = 80": replace(base, group=Orthogonal(N, M, 80)),
        "sums": replace(base, memory=Sum()),
        "RND": starred(rnd(n=N, m=M, L=L)),
    }
    rows = []
    for reading, method in told.items():
        caches = [StageCache({repr(replace(method.decode, L=1)): [L]}) for _ in range(seeds)]
        indexes = [built(data, SharedMethod.from_method(method, cache), seed) for seed, cache in enumerate(caches)]
        rows.append(_read(data, reading, indexes))
        if method is base:
            for depth in (50, 100, 5000):
                other = starred(base, depth=depth)
                deeper = [built(data, SharedMethod.from_method(other, cache), seed) for seed, cache in enumerate(caches)]
                rows.append(_read(data, f"correction to {depth:,}", deeper))
    return rows


def _read(data: Benchmark, reading: str, indexes: Sequence[logt.Index]) -> dict:
    plain, corrected = (
        over_seeds(lambda seed, c=c: mean_ap(data, indexes[seed], correct=c), len(indexes)) for c in (False, True)
    )
    return {"reading": reading, "mAP": plain, "corrected": corrected}


# -------------------------------------------------------------------------------------------- descriptors


def descriptors(data: Benchmark) -> list[dict]:
    """The same on changed descriptors, and on made ones whose matches are more or less alike."""
    dim = data.X.shape[1]
    sets = {data.name: data, "centred": _mapped(data, 0.0), "half whitened": _mapped(data, 0.5)}
    sets["whitened"] = _mapped(data, 1.0)
    for likeness in ((0.3, 0.5), (0.5, 0.7), (0.7, 0.9)):
        made = photo_collection(20_000, dim, likeness=likeness, clutter=(0.2, 0.4))
        truths = {"known answer": GroundTruth.from_lists(made.positives)}
        sets[f"made, likeness {likeness[0]} to {likeness[1]}"] = Benchmark("made", made.X, made.Q, truths)
    return [{"vectors": name, **_described(held)} for name, held in sets.items()]


def _mapped(data: Benchmark, power: float) -> Benchmark:
    """Centred, and each principal axis divided by that power of its deviation."""
    mean = data.X.mean(axis=0)
    values, axes = np.linalg.eigh(np.cov(data.X, rowvar=False))
    scale = np.maximum(values, 1e-3 * values.mean()) ** (-power / 2)

    def mapped(V: np.ndarray) -> np.ndarray:
        V = ((V - mean) @ axes * scale).astype(np.float32)
        return V / np.linalg.norm(V, axis=1, keepdims=True)

    return replace(data, X=mapped(data.X), Q=mapped(data.Q))


def _described(data: Benchmark) -> dict:
    exact = data.Q @ data.X.T
    matches = np.mean([exact[q, rows].mean() for q, rows in enumerate(data.truths[data.main].positives)])
    C = data.X.T @ data.X / len(data.X)
    return {
        "dimensions that count": f"{1 / np.square(C).sum():.0f}",
        "deviation of similarities": f"{exact.std():.3f}",
        "mean of matches": f"{matches:.2f}",
        "exhaustive": f"{ranked(data, exact):.1f}",
        **{
            f"{name}, {decoder}": f"{mean_ap(data, built(data, make(n=N, **p))):.1f}"
            for decoder, p in {"0-order": {"m": 5, "L": None, "order": 0}, f"L={L}": {"m": M, "L": L}}.items()
            for name, make in SYSTEMS.items()
        },
    }


if __name__ == "__main__":
    main()

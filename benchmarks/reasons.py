"""Find out why the paper's claims hold or fail on some data. `make reasons`, or `make reasons DATA=folder`.

It writes reasons.md with four tables. The stages are checked against plain NumPy. The noise of the estimates is
compared with independent noise of the same size on exact similarities. Details that the paper leaves open are varied.
The descriptors are changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import logt
from benchmarks.data import argument_parser, load
from logt.datasets import Benchmark, synthetic_collection
from logt.evaluation import GroundTruth
from logt.group_testing.grouping import Orthogonal, Units
from logt.group_testing.memory_vectors import Sum
from logt.methods import lo_gt, rnd, starred
from logt.reproduce.shared_builds import SharedMethod

N, M, L = 50, 4, 50
METHODS = {"LO-GT": lo_gt, "RND": rnd}


def main() -> None:
    parser = argument_parser(__doc__, "reasons.md")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    data = load(args.data or None, size=10_000)
    path = Path(args.out)
    path.mkdir(parents=True, exist_ok=True)
    with open(path / "reasons.md", "w") as file:
        for title, make_rows in {
            "Checks of the stages": lambda: check_stages(data),
            "The noise of the estimates": lambda: compare_noise(data),
            "Readings of the paper": lambda: compare_readings(data, args.seeds),
            "Descriptors": lambda: compare_descriptors(data),
        }.items():
            text = f"## {title}\n\n{markdown_table(make_rows())}\n"
            print(text, flush=True)
            file.write(text + "\n")
    print(f"{data.name}: {path / 'reasons.md'}")


def markdown_table(rows: Sequence[dict]) -> str:
    lines = [list(rows[0]), ["---"] * len(rows[0]), *([str(value) for value in row.values()] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def build_index(data: Benchmark, method: logt.Method, seed: int = 0) -> logt.Index:
    index = logt.Index(data.X.shape[1], method=method, seed=seed, segment_size=None)
    index.add(data.X)
    return index


def index_mean_ap(data: Benchmark, index: logt.Index, correct: bool = False) -> float:
    """Return the mAP of the full rankings of an index."""
    return data.mean_ap(index.search(data.Q, len(data.X), correct=correct).ids)


def score_mean_ap(data: Benchmark, scores: np.ndarray) -> float:
    """Return the mAP of full rankings by these scores."""
    return data.mean_ap(np.argsort(-scores, axis=1, kind="stable"))


def mean_similarity_of_matches(data: Benchmark, exact: np.ndarray) -> float:
    """Return the mean similarity of a query and its positives."""
    return float(np.mean([exact[q, rows].mean() for q, rows in enumerate(data.truths[data.main].positives)]))


# --------------------------------------------------------------------------------------------------- checks


def check_stages(data: Benchmark, sample: int = 20) -> list[dict]:
    """Check the stages on these vectors against their definitions and against a naive pursuit."""
    rng = np.random.default_rng(0)
    columns = {}
    for name, make in METHODS.items():
        index = build_index(data, starred(make(n=N, m=M, L=L)))
        segment = index._snapshot.segments[0]
        units, Y = segment.units, segment.codebook.decode()
        some = rng.choice(units.count, min(200, units.count), replace=False)
        grams = [data.X[units.rows(u)] @ data.X[units.rows(u)].T for u in some]
        products = np.concatenate([data.X[units.rows(u)] @ Y[u] for u in some])
        vectors = rng.choice(len(data.X), sample, replace=False)
        residuals = [residual_energies(data.X[i], Y, units, i, index.reconstruct([i])[0]) for i in vectors]
        repeated = sum(len(set(row)) < M for row in units.assignment[::97].tolist())
        columns[name] = {
            "vectors that are twice in the same unit": repeated,
            "vectors per unit": f"{min(map(len, grams))} to {max(map(len, grams))}",
            "inner products of members and memory vector, largest error": f"{np.abs(products - 1).max():.1e}",
            "largest cosine within a unit, mean": f"{np.mean([largest_cosine(gram) for gram in grams]):.2f}",
            "pairs of matches of a query in the same unit": f"{matches_in_one_unit(data, units):.1%}",
            "estimates compared with U·(Ŷq), largest error": f"{largest_estimate_error(data, index):.1e}",
            "residual energy after the pursuit": f"{np.mean([kernel for kernel, _ in residuals]):.4f}",
            "residual energy after a naive pursuit": f"{np.mean([naive for _, naive in residuals]):.4f}",
        }
    return [{"check": check, **{name: columns[name][check] for name in columns}} for check in columns["RND"]]


def residual_energies(
    x: np.ndarray, Y: np.ndarray, units: Units, i: int, reconstruction: np.ndarray
) -> tuple[float, float]:
    """Return ‖x − Yᵀu‖² of the kernel, and of a naive pursuit in all of S₁."""
    sharing = np.isin(units.assignment, units.assignment[i]).any(axis=1)
    atoms = Y[np.unique(units.assignment[sharing])].astype(np.float64)
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    chosen: list[int] = []
    naive = np.zeros(len(x))
    for _ in range(L):
        correlation = np.abs(atoms @ (x - naive))
        correlation[chosen] = -1
        chosen.append(int(correlation.argmax()))
        naive = np.linalg.lstsq(atoms[chosen].T, x.astype(np.float64), rcond=None)[0] @ atoms[chosen]
    return float(np.square(x - reconstruction).sum()), float(np.square(x - naive).sum())


def largest_cosine(gram: np.ndarray) -> float:
    return float(np.abs(gram[~np.eye(len(gram), dtype=bool)]).max())


def matches_in_one_unit(data: Benchmark, units: Units) -> float:
    """Return the fraction of pairs of positives of the same query that share a unit."""
    shared = pairs = 0
    for rows in data.truths[data.main].positives:
        assignment = units.assignment[rows]
        same = (assignment[:, None, :] == assignment[None, :, :]).any(axis=2)
        shared += int(np.triu(same, 1).sum())
        pairs += len(rows) * (len(rows) - 1) // 2
    return shared / max(1, pairs)


def largest_estimate_error(data: Benchmark, index: logt.Index) -> float:
    """Return the largest difference between scores and inner products of the query and reconstructions."""
    result = index.search(data.Q[:1], len(data.X), correct=False)
    ids, scores = result.ids[0, ::500], result.scores[0, ::500]
    return float(np.abs(scores - index.reconstruct(ids) @ data.Q[0]).max())


# ---------------------------------------------------------------------------------------------------- noise


def compare_noise(data: Benchmark) -> list[dict]:
    """Compare the noise of estimates ŝ = a·s + noise with the similarity of matches and with its effect on mAP."""
    exact = data.Q @ data.X.T
    rows = [
        {
            "decoder": "none",
            "noise": "0",
            "(matches − mean) / noise": "",
            "mAP": f"{score_mean_ap(data, exact):.1f}",
            "mAP of exact similarities + noise": "",
        }
    ]
    decoders = {
        "0-order, n=50, m=5": {"m": 5, "L": None, "order": 0},
        "L=50": {"m": M, "L": 50},
        "L=300": {"m": M, "L": min(300, data.X.shape[1] // 4)},
    }
    for name, make in METHODS.items():
        for decoder, parameters in decoders.items():
            rows.append(noise_row(data, exact, f"{name}, {decoder}", make(n=N, **parameters)))
    return rows


def noise_row(data: Benchmark, exact: np.ndarray, name: str, method: logt.Method) -> dict:
    result = build_index(data, method).search(data.Q, len(data.X))
    estimates = np.empty_like(exact)
    np.put_along_axis(estimates, result.ids, result.scores, axis=1)
    covariance = np.cov(exact.ravel(), estimates.ravel())
    a = covariance[0, 1] / covariance[0, 0]
    noise = float(np.std(estimates - a * exact) / a)
    noisy = [
        score_mean_ap(data, exact + np.random.default_rng(seed).normal(0, noise, exact.shape)) for seed in range(3)
    ]
    return {
        "decoder": name,
        "noise": f"{noise:.3f}",
        "(matches − mean) / noise": f"{(mean_similarity_of_matches(data, exact) - exact.mean()) / noise:.1f}",
        "mAP": f"{data.mean_ap(result.ids):.1f}",
        "mAP of exact similarities + noise": f"{np.mean(noisy):.1f}",
    }


# ------------------------------------------------------------------------------------------------- readings


def compare_readings(data: Benchmark, seeds: int) -> list[dict]:
    """Compare LO-GT at n = 50, m = 4, L = 50 with one detail at a time changed, with and without the correction."""
    base = starred(lo_gt(n=N, m=M, L=L))
    readings = {
        "default: largest absolute cos, k = 20, pseudo-inverses, correction to 500": base,
        **{f"correction to {depth:,}": starred(base, depth=depth) for depth in (50, 100, 5000)},
        "sum of cos²": replace(base, group=Orthogonal(N, M, criterion="sum_squares")),
        "largest signed cos": replace(base, group=Orthogonal(N, M, criterion="max_signed")),
        "k = 5": replace(base, group=Orthogonal(N, M, 5)),
        "k = 80": replace(base, group=Orthogonal(N, M, 80)),
        "sums": replace(base, memory=Sum()),
        "RND": starred(rnd(n=N, m=M, L=L)),
    }
    results: list[dict] = [{} for _ in range(seeds)]
    rows = []
    for reading, method in readings.items():
        # methods that differ from the default only in the correction share its stages
        shared = replace(method, correct=base.correct) == base
        methods = [SharedMethod.from_method(method, [method], kept) if shared else method for kept in results]
        indexes = [build_index(data, method, seed) for seed, method in enumerate(methods)]
        rows.append(
            {
                "reading": reading,
                "mAP": format_over_seeds([index_mean_ap(data, index, correct=False) for index in indexes]),
                "corrected": format_over_seeds([index_mean_ap(data, index, correct=True) for index in indexes]),
            }
        )
    return rows


def format_over_seeds(values: list[float]) -> str:
    deviation = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{np.mean(values):.1f}{deviation}"


# ---------------------------------------------------------------------------------------------- descriptors


def compare_descriptors(data: Benchmark) -> list[dict]:
    """Compare the methods on changed descriptors, and on synthetic ones whose matches are more or less similar."""
    dim = data.X.shape[1]
    benchmarks = {
        data.name: data,
        "centred": whiten(data, 0.0),
        "half whitened": whiten(data, 0.5),
        "whitened": whiten(data, 1.0),
    }
    for low, high in ((0.3, 0.5), (0.5, 0.7), (0.7, 0.9)):
        synthetic = synthetic_collection(20_000, dim, view_similarity=(low, high), cluster_similarity=(0.2, 0.4))
        truths = {"known answer": GroundTruth.from_lists(synthetic.positives)}
        name = f"synthetic, similarity {low} to {high}"
        benchmarks[name] = Benchmark(name, synthetic.X, synthetic.Q, truths)
    return [{"vectors": name, **descriptor_columns(benchmark)} for name, benchmark in benchmarks.items()]


def whiten(data: Benchmark, power: float) -> Benchmark:
    """Return the benchmark centred, with each principal axis divided by its standard deviation to a power."""
    mean = data.X.mean(axis=0)
    values, axes = np.linalg.eigh(np.cov(data.X, rowvar=False))
    scale = np.maximum(values, 1e-3 * values.mean()) ** (-power / 2)

    def transform(V: np.ndarray) -> np.ndarray:
        V = ((V - mean) @ axes * scale).astype(np.float32)
        return V / np.linalg.norm(V, axis=1, keepdims=True)

    return replace(data, X=transform(data.X), Q=transform(data.Q))


def descriptor_columns(data: Benchmark) -> dict:
    """Return statistics of the descriptors and the mAP of each method."""
    exact = data.Q @ data.X.T
    C = data.X.T @ data.X / len(data.X)
    decoders = {"0-order": {"m": 5, "L": None, "order": 0}, f"L={L}": {"m": M, "L": L}}
    return {
        "effective dimensions": f"{1 / np.square(C).sum():.0f}",
        "deviation of similarities": f"{exact.std():.3f}",
        "mean similarity of matches": f"{mean_similarity_of_matches(data, exact):.2f}",
        "exhaustive": f"{score_mean_ap(data, exact):.1f}",
        **{
            f"{name}, {decoder}": f"{index_mean_ap(data, build_index(data, make(n=N, **parameters))):.1f}"
            for decoder, parameters in decoders.items()
            for name, make in METHODS.items()
        },
    }


if __name__ == "__main__":
    main()

"""Choose the parameters of diffusion on synthetic collections with known objects. `make diffusion-parameters`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

import logt
from benchmarks.data import argument_parser, write_rows
from logt.evaluation import GroundTruth, evaluate

QUERIES = 150
BASE = logt.Diffusion(alpha=0.9, neighbors=30, candidates=200, hops=2, nodes=3000)
SWEEPS = {
    "alpha": (0.5, 0.7, 0.8, 0.9, 0.95, 0.99),
    "neighbors": (10, 20, 30, 40, 50),
    "candidates": (25, 50, 100, 200, 400),
    "hops": (1, 2, 3),
    "nodes": (250, 500, 1000, 2000, 3000),
}


@dataclass(frozen=True)
class Collection:
    """Views of objects among unrelated vectors.

    The views of an object lie on a surface of two parameters: views that are near on it resemble each other, distant
    ones hardly do. noise: of each view, relative to the object. offset: of all vectors, which raises similarities.
    decay: of the deviations of the dimensions. largest: views of the largest object; the sizes are log-uniform.
    """

    noise: float = 1.0
    offset: float = 0.0
    decay: float = 0.0
    largest: int = 150
    size: int = 8000
    dim: int = 256

    def make(self, seed: int) -> tuple[np.ndarray, np.ndarray, GroundTruth]:
        """Return (vectors, queries, the rows that are relevant for each query)."""
        rng = np.random.default_rng(seed)
        spectrum = (1 + np.arange(self.dim)) ** -self.decay
        parts, relevant, count = [], [], 0
        while count < self.size / 2:
            views = int(np.exp(rng.uniform(np.log(4), np.log(self.largest))))
            parts.append(self._views(views + 1, rng))
            relevant.append(np.arange(count, count + views))
            count += views
        queries = np.stack([part[0] for part in parts])
        others = rng.standard_normal((self.size - count, self.dim)) * np.sqrt(1 + self.noise**2)
        X = np.concatenate([*(part[1:] for part in parts), others])
        shift = self.offset * rng.standard_normal(self.dim) * np.sqrt(1 + self.noise**2)
        chosen = rng.permutation(len(queries))[:QUERIES]
        X, Q = _unit((X + shift) * spectrum), _unit((queries[chosen] + shift) * spectrum)
        return X, Q, GroundTruth.from_lists([relevant[o] for o in chosen])

    def _views(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Return views of one object: a smooth function of two parameters, and noise."""
        waves, phase = rng.normal(0, 1.5, (2, 16)), rng.uniform(0, 2 * np.pi, 16)
        surface = np.cos(rng.uniform(-1, 1, (count, 2)) @ waves + phase)
        smooth = surface @ rng.standard_normal((16, self.dim)) * np.sqrt(2 / 16)
        return smooth + self.noise * rng.standard_normal((count, self.dim))


COLLECTIONS = {
    "clear": Collection(noise=0.6),
    "noisy": Collection(noise=1.2),
    "offset": Collection(noise=0.8, offset=1.0),
    "uneven": Collection(noise=0.6, decay=0.4),
    "small objects": Collection(noise=1.0, largest=12),
    "large objects": Collection(noise=1.0, largest=800),
}


def _unit(X: np.ndarray) -> np.ndarray:
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)


def variants() -> Iterator[tuple[str, object, logt.Diffusion]]:
    """Yield (parameter, value, diffusion): one parameter at a time differs from BASE."""
    for name, values in SWEEPS.items():
        for value in values:
            yield name, value, replace(BASE, **{name: value})


def main() -> None:
    parser = argument_parser(__doc__, "diffusion-parameters.csv")
    args = parser.parse_args()
    rows = [{"parameter": name, "value": value} for name, value, _ in variants()]
    plain = {"parameter": "none", "value": "plain search"}
    for name, collection in COLLECTIONS.items():
        X, Q, relevant = collection.make(0)
        index = logt.Index(X.shape[1])
        index.add(X)
        index.link(50)
        exact = np.argsort(-(Q @ X.T), axis=1, kind="stable")
        plain[name] = round(evaluate(exact, relevant).mean_ap, 2)
        print(name, "plain", plain[name], flush=True)
        for row, (parameter, value, diffusion) in zip(rows, variants(), strict=True):
            ids = index.search(Q, len(X), rerank=diffusion).ids
            row[name] = round(evaluate(ids, relevant).mean_ap, 2)
            print(name, parameter, value, row[name], flush=True)
    for row in (plain, *rows):
        row["mean"] = round(float(np.mean([row[name] for name in COLLECTIONS])), 2)
        print(row["parameter"], row["value"], row["mean"])
    write_rows([plain, *rows], args.out, "diffusion-parameters.csv")


if __name__ == "__main__":
    main()

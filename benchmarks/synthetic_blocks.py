"""Synthetic vectors in files, one block per file, that need not fit in memory together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.task import nearest
from logt._internal.threads import Workers, available_cores
from logt._internal.types import Floats, Ids

CLUSTERS, RANK = 20_000, 64
CHUNK = 20_000  # vectors in memory at a time, by each thread


class Model:
    """Vectors around random centers, which are mixtures of a few directions; the spectrum falls."""

    def __init__(self, dim: int, clusters: int = CLUSTERS):
        rng = np.random.default_rng(0)
        self.dim, self.clusters = dim, clusters
        falling = (np.arange(RANK, dtype=np.float32) + 4)[:, None] ** -0.5
        basis = rng.standard_normal((RANK, dim), np.float32) * falling
        self.centers = rng.standard_normal((clusters, RANK), np.float32) @ basis
        self.deviation = np.float32(0.7 * np.abs(self.centers).mean())

    def draw(self, count: int, seed: Sequence[int]) -> Floats:
        """Return `count` vectors of norm 1."""
        rng = np.random.default_rng(list(seed))
        cluster = rng.integers(0, self.clusters, count)
        X = rng.standard_normal((count, self.dim), np.float32)
        X *= self.deviation
        X += self.centers[cluster]
        X /= np.sqrt(np.einsum("ij,ij->i", X, X))[:, None]
        return X


def write_blocks(model: Model, folder: Path, rows: int, block: int) -> list[Path]:
    """Write `rows` vectors to files of at most `block` each, those that are not there yet; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:05d}.npy" for number in range(-(-rows // block))]

    def write(number: int) -> None:
        unfinished = paths[number].with_suffix(f".{os.getpid()}.part")
        shape = (min(block, rows - number * block), model.dim)
        X = np.lib.format.open_memmap(unfinished, "w+", np.float32, shape)
        for start in range(0, len(X), CHUNK):
            part = X[start : start + CHUNK]
            part[:] = model.draw(len(part), [number, start])
        X.flush()
        unfinished.rename(paths[number])

    missing = [number for number, path in enumerate(paths) if not path.exists()]
    Workers(available_cores()).map(write, missing)
    return paths


def exact_neighbors(Q: Floats, k: int, paths: Sequence[Path]) -> Ids:
    """Return the ids of the k nearest vectors of each query by exact products; every file is read once."""
    first, scores, ids = 0, [], []
    for path in paths:
        X = np.load(path, mmap_mode="r")
        best, rows = nearest(Q, X, "ip", k)
        scores.append(best)
        ids.append(rows + first)
        first += len(X)
    order = np.argsort(-np.concatenate(scores, axis=1), axis=1, kind="stable")[:, :k]
    return np.take_along_axis(np.concatenate(ids, axis=1), order, axis=1)

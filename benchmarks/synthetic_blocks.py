"""Synthetic vectors in files, one block per file: written, and compared with queries, by several processes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.task import nearest
from logt._internal.threads import single_threaded_blas
from logt._internal.types import Floats, Ids

CLUSTERS, RANK = 20_000, 64
CHUNK = 20_000  # vectors in memory at a time


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


class BlockFile(NamedTuple):
    """A file of vectors, number `number`, whose first vector has the id `first`."""

    path: Path
    number: int
    first: int
    rows: int


def plan_blocks(folder: Path, rows: int, block: int) -> list[BlockFile]:
    """Return the files of `rows` vectors, at most `block` in each."""
    starts = range(0, rows, block)
    return [BlockFile(folder / f"{n:05d}.npy", n, s, min(block, rows - s)) for n, s in enumerate(starts)]


def write_blocks(blocks: Sequence[BlockFile], dim: int, workers: int, clusters: int = CLUSTERS) -> int:
    """Write the files that are not there yet, and return how many were missing."""
    missing = [block for block in blocks if not block.path.exists()]
    for folder in {block.path.parent for block in missing}:
        folder.mkdir(parents=True, exist_ok=True)
    with processes(workers) as pool:
        list(pool.map(write_block, missing, [dim] * len(missing), [clusters] * len(missing)))
    return len(missing)


def write_block(block: BlockFile, dim: int, clusters: int) -> None:
    """Write one file, under another name until it is complete."""
    unfinished = block.path.with_suffix(f".{os.getpid()}.part")
    X = np.lib.format.open_memmap(unfinished, "w+", np.float32, (block.rows, dim))
    with single_threaded_blas():
        for start in range(0, block.rows, CHUNK):
            part = X[start : start + CHUNK]
            part[:] = _model(dim, clusters).draw(len(part), [block.number, start])
    X.flush()
    unfinished.rename(block.path)


def exact_neighbors(Q: Floats, k: int, blocks: Sequence[BlockFile], workers: int) -> Ids:
    """Return the ids of the k nearest vectors of each query by exact products; every file is read once."""
    with processes(workers) as pool:
        found = list(pool.map(_nearest_in, [Q] * len(blocks), [k] * len(blocks), blocks))
    scores, ids = (np.concatenate(parts, axis=1) for parts in zip(*found, strict=True))
    return np.take_along_axis(ids, np.argsort(-scores, axis=1, kind="stable")[:, :k], axis=1)


def _nearest_in(Q: Floats, k: int, block: BlockFile) -> tuple[Floats, Ids]:
    with single_threaded_blas():
        scores, rows = nearest(Q, np.load(block.path, mmap_mode="r"), "ip", k)
    return scores, rows + block.first


@lru_cache(maxsize=1)
def _model(dim: int, clusters: int) -> Model:
    return Model(dim, clusters)


def processes(workers: int) -> ProcessPoolExecutor:
    """Return worker processes that share no state with this one."""
    return ProcessPoolExecutor(workers, get_context("spawn"))

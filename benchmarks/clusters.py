"""The synthetic vectors of `make scale` and `make growth`, generated chunk by chunk into files."""

import copy
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from logt._internal.threads import Workers, available_cores
from logt._internal.types import Floats
from logt.gpu.device import Device

CHUNK = 20_000  # vectors that are generated at a time, by each thread
RANK = 64  # directions that the centers of Clusters are mixtures of
PARENTS, DIRECTIONS, SUBSPACE = 2_000, 1_024, 24  # of StructuredClusters


class Clusters:
    """Vectors around random centers, which are mixtures of a few directions; the spectrum falls."""

    def __init__(self, dim: int, clusters: int):
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
        return _normalized(X)


class StructuredClusters:
    """Clusters of very different sizes, each with a subspace of its own, as descriptors of photos have.

    2,000 parents have a falling spectrum. The centers are near a parent each, at a cosine of about 0.8, and their
    sizes follow Zipf's law with the exponent 0.8. The vectors of a center differ along 24 of 1,024 directions that
    all centers share, by a deviation of 0.16 along each, and by noise of the norm 0.25.
    """

    def __init__(self, dim: int, clusters: int = 20_000):
        rng = np.random.default_rng(0)
        self.dim, self.xp = dim, np
        basis = np.linalg.qr(rng.standard_normal((dim, dim)))[0].astype(np.float32)
        basis *= (np.arange(dim, dtype=np.float32) + 1)[:, None] ** -0.5
        basis /= np.linalg.norm(basis)
        parents = _normalized(rng.standard_normal((PARENTS, dim), np.float32) @ basis)
        around = rng.standard_normal((clusters, dim), np.float32) @ basis
        self.centers = _normalized(parents[rng.integers(0, PARENTS, clusters)] + 0.7 * around)
        self.directions = _normalized(rng.standard_normal((DIRECTIONS, dim), np.float32))
        groups = np.linspace(0, DIRECTIONS, SUBSPACE + 1).astype(int)  # a center has one direction of each
        self.subspaces = rng.integers(groups[:-1], groups[1:], (clusters, SUBSPACE))
        sizes = (np.arange(clusters) + 1.0) ** -0.8
        self.shares = np.cumsum(sizes / sizes.sum())

    def on(self, device: Device) -> Self:
        """Return the same clusters, of which vectors are drawn on a device."""
        moved = copy.copy(self)
        arrays = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        vars(moved).update({name: device.put(value) for name, value in arrays.items()})
        moved.xp = device.xp
        return moved

    def draw(self, count: int, seed: Sequence[int] | int) -> Any:
        """Return `count` vectors of norm 1."""
        xp = self.xp
        rng = xp.random.default_rng(seed)
        cluster = xp.searchsorted(self.shares[:-1], rng.random(count))
        along = xp.zeros((count, DIRECTIONS), np.float32)
        values = rng.standard_normal((count, SUBSPACE), dtype=np.float32)
        along[xp.arange(count)[:, None], self.subspaces[cluster]] = values
        X = rng.standard_normal((count, self.dim), dtype=np.float32)
        X *= np.float32(0.25 * self.dim**-0.5)
        X += np.float32(0.16) * (along @ self.directions)
        X += self.centers[cluster]
        return _normalized(X)


Model = Clusters | StructuredClusters


def _normalized(X: Floats) -> Floats:
    X /= np.sqrt(np.einsum("ij,ij->i", X, X))[:, None]
    return X


def write_vectors(model: Model, path: Path, rows: int, *, number: int = 0, dtype: Any = np.float32) -> None:
    """Write `rows` vectors to a file unless it is there; number: of the file among those of a collection."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}.part")
    X = np.lib.format.open_memmap(unfinished, "w+", dtype, (rows, model.dim))

    def fill(start: int) -> None:
        part = X[start : start + CHUNK]
        part[:] = model.draw(len(part), [number, start])

    Workers(available_cores()).map(fill, range(0, rows, CHUNK))
    X.flush()
    unfinished.rename(path)

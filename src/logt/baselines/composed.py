"""Any method of this library as a system: an Index with one segment, or one per batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from logt._internal.progress import shown_progress
from logt._internal.threads import Progress
from logt._internal.types import Floats, Ids
from logt._internal.validation import check_positive, infer_dim
from logt.augmentation import smoothed
from logt.baselines.base import BuiltSystem, System, check_not_empty, workers_for
from logt.engine.protocols import Method
from logt.index import Index


@dataclass(frozen=True)
class Composed:
    """A method in an index. The settings are those of `Index.search`: effort, nprobe, p, R, correct and so on.

    method: one of `logt.methods`. name: for reports. batches: add the vectors in so many random batches, as in the
    paper.
    """

    method: Method
    name: str = "logt"
    batches: int = 1

    def __post_init__(self) -> None:
        check_positive(self, "batches")

    def build(
        self, X: Floats, *, seed: int = 0, threads: int | None = None, progress: Progress | bool | None = None
    ) -> BuiltIndex:
        """Build from vectors X; seed, threads, progress: as in `System.build`."""
        check_not_empty(X)
        count = workers_for(threads).threads
        index = Index(infer_dim(X), method=self.method, seed=seed, threads=count, segment_size=None)
        with shown_progress(progress) as report:
            if self.batches == 1:
                index.add(X, progress=report)
            else:
                order = np.random.default_rng([seed, 2]).permutation(len(X))
                for batch in np.array_split(order, self.batches):
                    rows = np.sort(batch)
                    index.add(X[rows], ids=rows, progress=report)
        return BuiltIndex(index)


@dataclass(frozen=True)
class Smoothed:
    """A system over smoothed vectors: each is moved towards its neighbors first (`logt.smoothed`).

    system: any other system. n: neighbors per vector.
    """

    system: System
    n: int = 10

    @property
    def name(self) -> str:
        return f"{self.system.name}, smoothed"

    def build(
        self, X: Floats, *, seed: int = 0, threads: int | None = None, progress: Progress | bool | None = None
    ) -> BuiltSystem:
        """Build from vectors X; seed, threads, progress: as in `System.build`."""
        V = smoothed(X, n=self.n, threads=workers_for(threads).threads)
        return self.system.build(V, seed=seed, threads=threads, progress=progress)


@dataclass(frozen=True)
class Linked:
    """A method in an index with a stored neighbor graph, which a search with rerank="diffusion" needs.

    system: the method. k: neighbors per vector.
    """

    system: Composed
    k: int = 50

    @property
    def name(self) -> str:
        return f"{self.system.name}, linked"

    def build(
        self, X: Floats, *, seed: int = 0, threads: int | None = None, progress: Progress | bool | None = None
    ) -> BuiltIndex:
        """Build from vectors X; seed, threads, progress: as in `System.build`."""
        index = self.system.build(X, seed=seed, threads=threads, progress=progress).index
        index.link(min(self.k, len(index)), threads=threads, progress=progress)
        return BuiltIndex(index)


class BuiltIndex(BuiltSystem):
    """An index as a system. ρ leaves re-ranking out: its operations depend on the query."""

    index: Index

    def __init__(self, index: Index):
        self.index = index
        report = index.report()
        self.nbytes, self.memory_ratio = int(report["bytes"]), float(report["memory ratio"])

    def search(self, Q: Any, k: int, *, threads: int = 1, **settings: Any) -> Ids:
        return self.index.search(np.atleast_2d(Q), k, threads=threads, **settings).ids

    def rho(self, *, correct: bool = True, rerank: Any = None, **settings: Any) -> float:
        return self.index.complexity(**settings)

"""Any method of ours as a system: (X, Method) -> an Index of one segment, or of one a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from logt._threads import Progress
from logt._types import Floats, Ids
from logt._validation import check_positive, infer_dim
from logt.augmentation import smoothed
from logt.baselines.base import Built, System, refuse_none, workers_for
from logt.engine.method import Method
from logt.index import Index


@dataclass(frozen=True)
class Composed:
    """A method through an index; with `batches`, the vectors come in so many random batches, as in the paper.

    Settings are those of `Index.search`: effort, units, p, R, correct and so on.
    """

    method: Method
    name: str = "logt"
    batches: int = 1

    def __post_init__(self) -> None:
        check_positive(self, "batches")

    def build(
        self, X: Floats, *, seed: int = 0, threads: int | None = None, progress: Progress | None = None
    ) -> Built:
        refuse_none(X)
        workers = workers_for(threads, progress)
        index = Index(infer_dim(X), method=self.method, seed=seed, threads=workers.threads, segment_size=None)
        if self.batches == 1:
            index.add(X, progress=progress)
        else:
            order = np.random.default_rng([seed, 2]).permutation(len(X))
            for batch in np.array_split(order, self.batches):
                rows = np.sort(batch)
                index.add(X[rows], ids=rows, progress=progress)
        return of_index(index)


@dataclass(frozen=True)
class Smoothed:
    """A system over vectors that were each drawn towards their n nearest before (smoothing.py)."""

    system: System
    n: int = 10

    @property
    def name(self) -> str:
        return f"{self.system.name}, smoothed"

    def build(
        self, X: Floats, *, seed: int = 0, threads: int | None = None, progress: Progress | None = None
    ) -> Built:
        drawn = smoothed(X, n=self.n, threads=workers_for(threads).threads)
        return self.system.build(drawn, seed=seed, threads=threads, progress=progress)


def of_index(index: Index) -> Built:
    """An index as a system."""

    def search(Q: Any, k: int, *, threads: int = 1, **setting: Any) -> Ids:
        return index.search(np.atleast_2d(Q), k, threads=threads, **setting).ids

    def rho(*, correct: bool = True, **setting: Any) -> float:
        return index.complexity(**setting)

    report = index.report()
    return Built(search, report["bytes"], report["memory ratio"], rho, index=index)

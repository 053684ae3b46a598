"""Any method of this library as a system: an Index with one segment, or one per batch."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from logt._internal.threads import Workers
from logt._internal.types import Floats, Ids
from logt._internal.validation import check_positive
from logt.baselines.base import BuiltSystem, System
from logt.engine.protocols import Method
from logt.index import Index


@dataclass(frozen=True)
class Composed(System):
    """A method in an index. The settings are those of `Index.search`: effort, nprobe, p, R, correct and so on.

    method: one of `logt.methods`. batches: add the vectors in so many random batches, as in the paper. linked: add
    the neighbor graph.
    """

    method: Method
    batches: int = 1
    linked: bool = False

    def __post_init__(self) -> None:
        check_positive(self, "batches")

    def _build(self, X: Floats, seed: int, workers: Workers) -> "BuiltIndex":
        index = Index(X.shape[1], method=self.method, seed=seed, threads=workers.threads, segment_size=None)
        if self.batches == 1:
            index.add(X, progress=workers.progress)
        else:
            order = np.random.default_rng([seed, 2]).permutation(len(X))
            for batch in np.array_split(order, self.batches):
                rows = np.sort(batch)
                index.add(X[rows], ids=rows, progress=workers.progress)
        if self.linked:
            index.link(progress=workers.progress)
            index.search(X[:1], 1)  # what walks on the graph read is computed by the first one; its bytes count
        return BuiltIndex(index)


class BuiltIndex(BuiltSystem):
    """An index as a system."""

    index: Index

    def __init__(self, index: Index):
        self.index = index
        report = index.report()
        self.nbytes, self.memory_ratio = int(report["bytes"]), float(report["memory ratio"])

    def search(self, Q: Any, k: int, *, threads: int = 1, **settings: Any) -> Ids:
        return self.index.search(np.atleast_2d(Q), k, threads=threads, **settings).ids

    def rho(self, *, correct: bool = True, **settings: Any) -> float:
        """Return the complexity ratio; NaN with a neighbor graph, whose operations are not counted."""
        return math.nan if self.index.report()["linked"] else self.index.complexity(**settings)

"""Other libraries as systems, through their own packages (the extra "baselines")."""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from logt._internal.extras import needs_extra
from logt._internal.threads import Workers
from logt._internal.types import Floats, Ids
from logt._internal.validation import check_choice, check_fraction, check_int, check_positive
from logt.baselines.base import BuiltSystem, System, normalize_queries, pad_ids

SAMPLE_QUERIES = 64
"""Vectors of the collection used as queries where the operations of a search depend on the query."""


class _LibraryIndex(BuiltSystem):
    """An index of another library over N vectors of dimension d."""

    def __init__(self, N: int, d: int, nbytes: int):
        self._N, self._d = N, d
        self.nbytes, self.memory_ratio = nbytes, nbytes / (4 * N * d)

    def search(self, Q: Any, k: int, *, threads: int = 1, **settings: Any) -> Ids:
        queries, k = normalize_queries(Q, self._d), check_int("k", k)
        ids = self._search(queries, min(k, self._N), check_int("threads", threads), **settings)
        return pad_ids(np.asarray(ids).reshape(len(queries), -1).astype(np.int64), k)

    @abstractmethod
    def _search(self, Q: Floats, k: int, threads: int, *args: Any, **settings: Any) -> Any:
        """Return the rows of at most N results for checked queries."""


def import_extra(module: str, platforms: str = "") -> Any:
    """Return a module of the extra "baselines"; `platforms` names those that it is published for, if not all."""
    with needs_extra("baselines", f"this baseline needs {module}{platforms}"):
        return importlib.import_module(module)


@contextmanager
def omp_threads(count: int) -> Iterator[None]:
    """Run faiss on `count` threads; the number is process-wide and is restored at the end."""
    faiss = import_extra("faiss")
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(count)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


@dataclass(frozen=True)
class HNSW(System):
    """The graph of Malkov and Yashunin over float32 vectors, by faiss. Setting: `ef`, the candidates that are kept.

    M: edges per vector.
    """

    M: int = 32

    def __post_init__(self) -> None:
        check_positive(self, "M")

    def _build(self, X: Floats, seed: int, workers: Workers) -> BuiltHNSW:
        faiss = import_extra("faiss")
        index = faiss.IndexHNSWFlat(X.shape[1], self.M, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = 100
        with omp_threads(workers.threads):
            index.add(X)
        return BuiltHNSW(index, X, seed)


class BuiltHNSW(_LibraryIndex):
    """A graph; the distances that a search computes are counted with some of the vectors as queries."""

    def __init__(self, index: Any, X: Floats, seed: int):
        super().__init__(X.shape[0], X.shape[1], len(import_extra("faiss").serialize_index(index)))
        chosen = np.random.default_rng(seed).choice(len(X), min(SAMPLE_QUERIES, len(X)), replace=False)
        self._index, self._sample = index, X[np.sort(chosen)]

    def _search(self, Q: Floats, k: int, threads: int, *, ef: int = 128) -> Any:
        self._index.hnsw.efSearch = max(check_int("ef", ef), k)
        with omp_threads(threads):
            return self._index.search(Q, k)[1]

    def rho(self, *, ef: int = 128) -> float:
        statistics = import_extra("faiss").cvar.hnsw_stats
        statistics.reset()
        self.search(self._sample, 1, ef=ef)
        return float(statistics.ndis / len(self._sample) / self._N)


@dataclass(frozen=True)
class Flann(System):
    """FLANN of Muja and Lowe, which tunes itself on a tenth of X to find the nearest with `precision`.

    Tuning runs up to a thousand searches at about a hundred settings: minutes for a few thousand vectors. It compares
    by L2, which ranks vectors of norm 1 as cosine does. Setting: `checks`, the number of vectors that a search
    compares, by default the tuned number. The complexity ratio is 1 / the speed-up that FLANN reports, or
    checks / N.

    precision: the fraction of nearest neighbors to find. algorithm: "autotuned" chooses one of the others.
    """

    precision: float = 0.95
    algorithm: Literal["autotuned", "kdtree", "kmeans"] = "autotuned"

    def __post_init__(self) -> None:
        check_choice("algorithm", self.algorithm, ("autotuned", "kdtree", "kmeans"))
        object.__setattr__(self, "precision", check_fraction("precision", self.precision))

    def _build(self, X: Floats, seed: int, workers: Workers) -> BuiltFlann:
        flann = import_extra("pyflann_ibeis", " (x86-64 only)").FLANN()
        tuned = flann.build_index(
            X,
            algorithm=self.algorithm,
            target_precision=self.precision,
            sample_fraction=0.1,
            build_weight=0.01,
            memory_weight=0.0,
            random_seed=1 + seed,
            log_level="none",
            cores=1,
        )
        return BuiltFlann(flann, X, tuned)


class BuiltFlann(_LibraryIndex):
    """Trees of FLANN over a collection; `tuned` are the parameters that FLANN reports."""

    def __init__(self, flann: Any, X: Floats, tuned: dict[str, Any]):
        super().__init__(X.shape[0], X.shape[1], X.nbytes + int(flann.used_memory()))
        self._flann, self._tuned = flann, tuned
        self._X = X  # FLANN reads it in place

    def _search(self, Q: Floats, k: int, threads: int, *, checks: int | None = None) -> Any:
        checks = self._tuned["checks"] if checks is None else check_int("checks", checks)
        return self._flann.nn_index(Q, k, checks=checks, cores=threads)[0]

    def rho(self, *, checks: int | None = None) -> float:
        if checks is None and self._tuned["speedup"] > 0:
            return float(1 / self._tuned["speedup"])
        return min(1.0, (self._tuned["checks"] if checks is None else checks) / self._N)

"""Other libraries as systems, through their own packages (the extra "baselines")."""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from logt._internal.threads import Workers
from logt._internal.types import Floats, Ids
from logt._internal.validation import check_choice, check_fraction, check_int
from logt.baselines.base import BuiltSystem, System, normalize_queries, pad_ids, sample_queries
from logt.errors import InvalidInputError, MissingExtraError


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
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"this baseline needs {module}: pip install 'logt-search[baselines]'{platforms}"
        ) from error


class FaissIndex:
    """An index of faiss itself: no parameter is checked, and a search uses as many threads as faiss is set to.

    X: float32 vectors; of norm 1 under cosine. description: faiss's factory string. threads: of the build. metric:
    "cosine", "ip" or "l2". centroids: those of the inverted lists, learned if None.
    """

    def __init__(
        self,
        X: Floats,
        description: str,
        *,
        threads: int,
        metric: str = "cosine",
        centroids: Floats | None = None,
        efConstruction: int = 100,
    ):
        faiss = import_extra("faiss")
        kind = faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT
        try:
            self.index = faiss.index_factory(X.shape[1], description, kind)
        except RuntimeError as error:
            raise InvalidInputError(f"faiss cannot build {description!r} for dimension {X.shape[1]}") from error
        self.refined = hasattr(self.index, "k_factor")
        self.lists = faiss.try_extract_index_ivf(self.index.base_index if self.refined else self.index)
        self.graph = getattr(self.index, "hnsw", None)
        if self.graph is not None:
            self.graph.efConstruction = efConstruction
        if centroids is not None:
            self.lists.quantizer.add(centroids)  # training then leaves the lists alone
        with omp_threads(threads):
            self.index.train(X)
            self.index.add(X)

    def search(self, Q: Floats, k: int, *, nprobe: int = 1, ef: int = 128, k_factor: int = 1) -> Ids:
        """Return the rows of the k nearest vectors.

        nprobe: inverted lists that are scanned. ef: candidates that a graph keeps. k_factor: candidates per result
        that are compared again. An index ignores what it does not have.
        """
        if self.lists is not None:
            self.lists.nprobe = nprobe
        if self.graph is not None:
            self.graph.efSearch = max(ef, k)
        if self.refined:
            self.index.k_factor = k_factor
        ids: Ids = self.index.search(Q, k)[1]
        return ids

    @property
    def nbytes(self) -> int:
        return len(import_extra("faiss").serialize_index(self.index))


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
class Faiss(System):
    """An index of faiss.

    description: its factory string: "SQ8", "SQ4", "PQ256np", "IVF512,SQ8", "RaBitQ", "HNSW32,Flat" and so on.
    Settings: `nprobe`, the number of lists that a search of an IVF index scans; `ef`, the number of candidates that
    a search of a graph keeps.
    """

    description: str

    def _build(self, X: Floats, seed: int, workers: Workers) -> BuiltFaiss:
        return BuiltFaiss(FaissIndex(X, self.description, threads=workers.threads), sample_queries(X, seed))


class BuiltFaiss(_LibraryIndex):
    """An index of faiss; `sample` are the queries with which the operations of a search are counted."""

    def __init__(self, index: FaissIndex, sample: Floats):
        super().__init__(index.index.ntotal, index.index.d, index.nbytes)
        self._index, self._sample = index, sample

    def _search(self, Q: Floats, k: int, threads: int, **settings: Any) -> Ids:
        for name, part in (("nprobe", self._index.lists), ("ef", self._index.graph)):
            if name in settings and part is None:
                raise InvalidInputError(f"this index of faiss does not have the setting {name}={settings[name]!r}")
        checked = {name: check_int(name, value) for name, value in settings.items()}
        with omp_threads(threads):
            return self._index.search(Q, k, **checked)

    def rho(self, **settings: Any) -> float:
        statistics = import_extra("faiss").cvar
        if self._index.graph is not None:
            return self._count_distances(statistics.hnsw_stats, settings) / self._N
        quantizer = getattr(self._index.index, "pq", None)  # compares by look-ups in a table that each query needs
        per_vector, per_query = (self._d, 0) if quantizer is None else (quantizer.M, quantizer.ksub * self._d)
        scanned: float = self._N
        if self._index.lists is not None:
            per_query += self._index.lists.nlist * self._d
            scanned = self._count_distances(statistics.indexIVF_stats, settings)
        return float((per_query + per_vector * scanned) / (self._d * self._N))

    def _count_distances(self, statistics: Any, settings: dict[str, Any]) -> float:
        """Return the distances that a search computes per sample query."""
        statistics.reset()
        self.search(self._sample, 1, **settings)
        return float(statistics.ndis / len(self._sample))


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

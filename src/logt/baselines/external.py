"""Other libraries as systems, through their own packages (the extra "baselines").

Each uses the requested number of threads, except turbovec, which takes it from RAYON_NUM_THREADS.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from logt._internal.threads import Progress
from logt._internal.types import Floats, Ids
from logt._internal.validation import check_choice, check_fraction, check_int, check_positive
from logt.baselines.base import (
    BuiltSystem,
    normalize_queries,
    normalize_vectors,
    pad_ids,
    sample_queries,
    workers_for,
)
from logt.errors import InvalidInputError, MissingExtraError


class _LibraryIndex(BuiltSystem):
    """An index of another library over N vectors of dimension d."""

    def __init__(self, N: int, d: int, nbytes: int):
        self._N, self._d, self._nbytes = N, d, nbytes

    @property
    def nbytes(self) -> int:
        return self._nbytes

    @property
    def memory_ratio(self) -> float:
        return self._nbytes / (4 * self._N * self._d)


def import_extra(module: str, platforms: str = "") -> Any:
    """Return a module of the extra "baselines"; `platforms` names those that it is published for, if not all."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"this baseline needs {module}: pip install 'logt-search[baselines]'{platforms}"
        ) from error


# ---------------------------------------------------------------------------------------------------- faiss


@dataclass(frozen=True)
class Faiss:
    """An index of faiss.

    description: its factory string: "SQ8", "SQ4", "PQ256np", "IVF512,SQ8", "RaBitQ", and so on. Setting: `nprobe`,
    the number of lists that a search of an IVF index scans.
    """

    description: str

    @property
    def name(self) -> str:
        return f"faiss {self.description}"

    def build(
        self, X: Floats, *, seed: int = 0, threads: int | None = None, progress: Progress | bool | None = None
    ) -> BuiltFaiss:
        """Build from vectors X; seed, threads, progress: as in `System.build`."""
        faiss = import_extra("faiss")
        V = normalize_vectors(X)
        try:
            index = faiss.index_factory(V.shape[1], self.description, faiss.METRIC_INNER_PRODUCT)
        except RuntimeError as error:
            raise InvalidInputError(f"faiss cannot build {self.description!r} for dimension {V.shape[1]}") from error
        with omp_threads(faiss, workers_for(threads).threads):
            index.train(V)
            index.add(V)
        return BuiltFaiss(faiss, index, sample_queries(V, seed), self.description)


@dataclass(frozen=True)
class HNSW:
    """The graph of Malkov and Yashunin in faiss, over float32 vectors.

    M: edges per vector. efConstruction: candidates that are kept while the graph is built. Setting: `ef`, the number
    of candidates that a search keeps.
    """

    M: int = 32
    efConstruction: int = 100  # noqa: N815

    def __post_init__(self) -> None:
        check_positive(self, "M", "efConstruction")

    @property
    def name(self) -> str:
        return f"faiss HNSW{self.M}"

    def build(
        self, X: Floats, *, seed: int = 0, threads: int | None = None, progress: Progress | bool | None = None
    ) -> BuiltHNSW:
        """Build from vectors X; seed, threads, progress: as in `System.build`."""
        faiss = import_extra("faiss")
        V = normalize_vectors(X)
        index = faiss.IndexHNSWFlat(V.shape[1], self.M, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = self.efConstruction
        with omp_threads(faiss, workers_for(threads).threads):
            index.add(V)
        return BuiltHNSW(faiss, index, sample_queries(V, seed))


class _FaissIndex(_LibraryIndex):
    """A faiss index; `sample` are the queries with which the operations of a search are counted."""

    def __init__(self, faiss: Any, index: Any, sample: Floats):
        super().__init__(index.ntotal, index.d, len(faiss.serialize_index(index)))
        self._faiss, self._index, self._sample = faiss, index, sample

    def _search(self, Q: Any, k: int, threads: int) -> Ids:
        queries, k = normalize_queries(Q, self._d), check_int("k", k)
        with omp_threads(self._faiss, check_int("threads", threads)):
            ids: Ids = self._index.search(queries, min(k, self._N))[1]
        return pad_ids(ids, k)

    def _count_distances(self, stats: Any, **settings: Any) -> float:
        """Return the distances that a search computes per sample query."""
        stats.reset()
        self.search(self._sample, 1, **settings)
        return float(stats.ndis / len(self._sample))


class BuiltFaiss(_FaissIndex):
    """An index from faiss's factory."""

    def __init__(self, faiss: Any, index: Any, sample: Floats, description: str):
        super().__init__(faiss, index, sample)
        self._description = description
        self._ivf = faiss.try_extract_index_ivf(index)  # None if it has no inverted lists

    def search(self, Q: Any, k: int, *, nprobe: int | None = None, threads: int = 1) -> Ids:
        if nprobe is not None and self._ivf is None:
            raise InvalidInputError(f"{self._description} has no inverted lists; do not pass nprobe (got {nprobe})")
        if self._ivf is not None:
            self._ivf.nprobe = 1 if nprobe is None else check_int("nprobe", nprobe)
        return self._search(Q, k, threads)

    def rho(self, *, nprobe: int | None = None) -> float:
        per_vector, per_query = self._operations()
        if self._ivf is None:
            scanned: float = self._N
        else:
            per_query += self._ivf.nlist * self._d
            scanned = self._count_distances(self._faiss.cvar.indexIVF_stats, nprobe=nprobe)
        return float((per_query + per_vector * scanned) / (self._d * self._N))

    def _operations(self) -> tuple[int, int]:
        """Return (operations per scanned vector, per query): table look-ups of a product quantizer, else products."""
        quantizer = getattr(self._faiss.downcast_index(self._index), "pq", None)
        return (self._d, 0) if quantizer is None else (quantizer.M, quantizer.ksub * self._d)


class BuiltHNSW(_FaissIndex):
    """A graph over a collection."""

    def search(self, Q: Any, k: int, *, ef: int = 128, threads: int = 1) -> Ids:
        self._index.hnsw.efSearch = max(check_int("ef", ef), k)
        return self._search(Q, k, threads)

    def rho(self, *, ef: int = 128) -> float:
        return self._count_distances(self._faiss.cvar.hnsw_stats, ef=ef) / self._N


@contextmanager
def omp_threads(faiss: Any, count: int) -> Iterator[None]:
    """Run faiss on `count` threads; the number is process-wide and is restored at the end."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(count)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


# --------------------------------------------------------------------------------------- FLANN and turbovec


@dataclass(frozen=True)
class Flann:
    """FLANN of Muja and Lowe, which tunes itself on a fraction `sample` of X to find the nearest with `precision`.

    Tuning runs up to a thousand searches at about a hundred settings: minutes for a few thousand vectors. It compares
    by L2, which ranks vectors of norm 1 as cosine does. Setting: `checks`, the number of vectors that a search
    compares, by default the tuned number. The complexity ratio is 1 / the speed-up that FLANN reports, or
    checks / N.

    precision: the fraction of nearest neighbors to find. sample: the fraction of X that it is tuned on. algorithm:
    "autotuned" chooses one of the others.
    """

    precision: float = 0.95
    sample: float = 0.1
    algorithm: Literal["autotuned", "kdtree", "kmeans"] = "autotuned"

    def __post_init__(self) -> None:
        check_choice("algorithm", self.algorithm, ("autotuned", "kdtree", "kmeans"))
        for name in ("precision", "sample"):
            object.__setattr__(self, name, check_fraction(name, getattr(self, name)))

    @property
    def name(self) -> str:
        return f"FLANN {self.algorithm}"

    def build(
        self, X: Floats, *, seed: int = 0, threads: int | None = None, progress: Progress | bool | None = None
    ) -> BuiltFlann:
        """Build from vectors X; seed, threads, progress: as in `System.build`."""
        pyflann = import_extra("pyflann_ibeis", " (x86-64 only)")
        V = normalize_vectors(X)
        flann = pyflann.FLANN()
        tuned = flann.build_index(
            V,
            algorithm=self.algorithm,
            target_precision=self.precision,
            sample_fraction=self.sample,
            build_weight=0.01,
            memory_weight=0.0,
            random_seed=1 + seed,
            log_level="none",
            cores=1,
        )
        return BuiltFlann(flann, V, tuned)


@dataclass(frozen=True)
class Turbovec:
    """turbovec: codes of `bits` (2 to 4) bits per dimension after a rotation, all scanned by each search."""

    bits: int = 4

    def __post_init__(self) -> None:
        check_choice("bits", self.bits, (2, 3, 4))

    @property
    def name(self) -> str:
        return f"turbovec {self.bits} bit"

    def build(
        self, X: Floats, *, seed: int = 0, threads: int | None = None, progress: Progress | bool | None = None
    ) -> BuiltTurbovec:
        """Build from vectors X; seed, threads, progress: as in `System.build`."""
        turbovec = import_extra("turbovec")
        V = normalize_vectors(X)
        rng = np.random.default_rng(seed)
        index = turbovec.TurboQuantIndex(V.shape[1], self.bits)
        index.calibrate(V[rng.choice(len(V), min(1024, len(V)), replace=False)])
        index.add(V)
        index.prepare()
        return BuiltTurbovec(index, V)


class BuiltFlann(_LibraryIndex):
    """Trees of FLANN over a collection; `tuned` are the parameters that FLANN reports."""

    def __init__(self, flann: Any, X: Floats, tuned: dict[str, Any]):
        super().__init__(X.shape[0], X.shape[1], X.nbytes + int(flann.used_memory()))
        self._flann, self._tuned = flann, tuned
        self._X = X  # FLANN reads it in place

    def search(self, Q: Any, k: int, *, checks: int | None = None, threads: int = 1) -> Ids:
        queries, k = normalize_queries(Q, self._d), check_int("k", k)
        checks = self._tuned["checks"] if checks is None else check_int("checks", checks)
        cores = check_int("threads", threads)
        ids, _ = self._flann.nn_index(queries, min(k, self._N), checks=checks, cores=cores)
        return pad_ids(ids.reshape(len(queries), -1).astype(np.int64), k)

    def rho(self, *, checks: int | None = None) -> float:
        if checks is None and self._tuned["speedup"] > 0:
            return float(1 / self._tuned["speedup"])
        return min(1.0, (self._tuned["checks"] if checks is None else checks) / self._N)


class BuiltTurbovec(_LibraryIndex):
    """Codes of turbovec over a collection."""

    def __init__(self, index: Any, X: Floats):
        super().__init__(X.shape[0], X.shape[1], len(index.to_bytes()))
        self._index = index

    def search(self, Q: Any, k: int, *, threads: int = 1) -> Ids:
        queries, k = normalize_queries(Q, self._d), check_int("k", k)
        _, ids = self._index.search(queries, min(k, self._N))
        return pad_ids(np.asarray(ids).astype(np.int64), k)

    def rho(self) -> float:
        return 1.0

"""Rivals, through the real libraries (the extra "rivals"): (X, parameters) -> a search by that library.

Each is told to use as many threads as are asked for, but turbovec, whose number is that of RAYON_NUM_THREADS.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from logt._threads import Progress
from logt._types import Floats, Ids
from logt._validation import check_choice, check_float, check_int, check_positive
from logt.baselines.base import Built, padded_ids, probes, unit_queries, unit_vectors, workers_for
from logt.errors import InvalidInputError, MissingExtraError


@dataclass(frozen=True)
class Faiss:
    """An index by the words of faiss's factory: "SQ8", "SQ4", "PQ256np", "IVF512,SQ8", "RaBitQ", and so on.

    `nprobe` is how many lists of an IVF index are read.
    """

    description: str

    @property
    def name(self) -> str:
        return f"faiss {self.description}"

    def build(
        self, X: Floats, *, seed: int = 0, threads: int | None = None, progress: Progress | None = None
    ) -> Built:
        faiss = import_extra("faiss")
        V = unit_vectors(X)
        try:
            index = faiss.index_factory(V.shape[1], self.description, faiss.METRIC_INNER_PRODUCT)
        except RuntimeError as error:
            raise InvalidInputError(
                f"faiss makes no index of {self.description!r} for dimension {V.shape[1]}"
            ) from error
        with omp_threads(faiss, workers_for(threads).threads):
            index.train(V)
            index.add(V)
        lists = faiss.try_extract_index_ivf(index)

        def read(nprobe: int | None) -> None:
            if nprobe is not None and lists is None:
                raise InvalidInputError(f"{self.description} has no lists to probe: leave nprobe={nprobe} out")
            if lists is not None:
                lists.nprobe = 1 if nprobe is None else check_int("nprobe", nprobe)

        def search(Q: Any, k: int, *, nprobe: int | None = None, threads: int = 1) -> Ids:
            read(nprobe)
            return _by_faiss(faiss, index, Q, k, threads)

        def rho(*, nprobe: int | None = None) -> float:
            N, d = V.shape
            each, once = _operations(faiss.downcast_index(index), d)
            if lists is None:
                return float((once + each * N) / (d * N))
            faiss.cvar.indexIVF_stats.reset()
            search(sample, 1, nprobe=nprobe)
            seen = faiss.cvar.indexIVF_stats.ndis / len(sample)
            return float((lists.nlist * d + once + each * seen) / (d * N))

        sample = probes(V, seed)
        size = len(faiss.serialize_index(index))
        return Built(search, size, size / V.nbytes, rho)


@dataclass(frozen=True)
class HNSW:
    """The graph of Malkov and Yashunin in faiss, over float32 vectors; `ef` is how many candidates a search keeps."""

    M: int = 32
    efConstruction: int = 100  # noqa: N815

    def __post_init__(self) -> None:
        check_positive(self, "M", "efConstruction")

    @property
    def name(self) -> str:
        return f"faiss HNSW{self.M}"

    def build(
        self, X: Floats, *, seed: int = 0, threads: int | None = None, progress: Progress | None = None
    ) -> Built:
        faiss = import_extra("faiss")
        V = unit_vectors(X)
        index = faiss.IndexHNSWFlat(V.shape[1], self.M, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = self.efConstruction
        with omp_threads(faiss, workers_for(threads).threads):
            index.add(V)

        def search(Q: Any, k: int, *, ef: int = 128, threads: int = 1) -> Ids:
            index.hnsw.efSearch = max(check_int("ef", ef), k)
            return _by_faiss(faiss, index, Q, k, threads)

        def rho(*, ef: int = 128) -> float:
            faiss.cvar.hnsw_stats.reset()
            search(sample, 1, ef=ef)
            return float(faiss.cvar.hnsw_stats.ndis / len(sample) / len(V))

        sample = probes(V, seed)
        size = len(faiss.serialize_index(index))
        return Built(search, size, size / V.nbytes, rho)


@dataclass(frozen=True)
class Flann:
    """FLANN of Muja and Lowe, which tunes itself on a part `sample` of X until it finds the nearest with `precision`.

    Tuning times up to a thousand searches at some hundred settings: minutes for a few thousand vectors. By L2, which
    ranks unit vectors as the cosine does. `checks` is how many vectors a search looks at: as tuned, unless it is
    given. The complexity is one over the speed-up that FLANN states, or what those vectors cost.
    """

    precision: float = 0.95
    sample: float = 0.1
    algorithm: Literal["autotuned", "kdtree", "kmeans"] = "autotuned"

    def __post_init__(self) -> None:
        check_choice("algorithm", self.algorithm, ("autotuned", "kdtree", "kmeans"))
        for part in ("precision", "sample"):
            object.__setattr__(self, part, check_float(part, getattr(self, part)))
            if not 0 < getattr(self, part) <= 1:
                raise InvalidInputError(f"{part} must be above 0 and at most 1, got {getattr(self, part)!r}")

    @property
    def name(self) -> str:
        return f"FLANN {self.algorithm}"

    def build(
        self, X: Floats, *, seed: int = 0, threads: int | None = None, progress: Progress | None = None
    ) -> Built:
        pyflann = import_extra("pyflann_ibeis")
        V = unit_vectors(X)
        flann = pyflann.FLANN()
        found = flann.build_index(
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

        def search(Q: Any, k: int, *, checks: int | None = None, threads: int = 1) -> Ids:
            queries, k = unit_queries(Q, V.shape[1]), check_int("k", k)
            looked = found["checks"] if checks is None else check_int("checks", checks)
            ids, _ = flann.nn_index(queries, min(k, len(V)), checks=looked, cores=check_int("threads", threads))
            return padded_ids(ids.reshape(len(queries), -1).astype(np.int64), k)

        def rho(*, checks: int | None = None) -> float:
            if checks is None and found["speedup"] > 0:
                return float(1 / found["speedup"])
            return min(1.0, (found["checks"] if checks is None else checks) / len(V))

        size = V.nbytes + int(flann.used_memory())
        return Built(search, size, size / V.nbytes, rho)


@dataclass(frozen=True)
class Turbovec:
    """turbovec: 2 to 4 bits a dimension after a rotation, all read by each search."""

    bits: int = 4

    def __post_init__(self) -> None:
        check_choice("bits", self.bits, (2, 3, 4))

    @property
    def name(self) -> str:
        return f"turbovec {self.bits} bit"

    def build(
        self, X: Floats, *, seed: int = 0, threads: int | None = None, progress: Progress | None = None
    ) -> Built:
        turbovec = import_extra("turbovec")
        V = unit_vectors(X)
        rng = np.random.default_rng(seed)
        index = turbovec.TurboQuantIndex(V.shape[1], self.bits)
        index.calibrate(V[rng.choice(len(V), min(1024, len(V)), replace=False)])
        index.add(V)
        index.prepare()

        def search(Q: Any, k: int, *, threads: int = 1) -> Ids:
            queries, k = unit_queries(Q, V.shape[1]), check_int("k", k)
            _, ids = index.search(queries, min(k, len(V)))
            return padded_ids(np.asarray(ids).astype(np.int64), k)

        size = len(index.to_bytes())
        return Built(search, size, size / V.nbytes, lambda: 1.0)


def import_extra(module: str) -> Any:
    """A module of the extra "rivals"."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"this rival needs {module}: pip install 'logt-search[baselines]'") from error


@contextmanager
def omp_threads(faiss: Any, count: int) -> Iterator[None]:
    """faiss on so many threads; the number is process-wide, so the old one comes back."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(count)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _by_faiss(faiss: Any, index: Any, Q: Any, k: int, threads: int) -> Ids:
    queries, k = unit_queries(Q, index.d), check_int("k", k)
    with omp_threads(faiss, check_int("threads", threads)):
        ids: Ids = index.search(queries, min(k, index.ntotal))[1]
    return padded_ids(ids, k)


def _operations(index: Any, d: int) -> tuple[int, int]:
    """(for each vector looked at, once a query): look-ups of a product quantizer, else a product a dimension."""
    quantizer = getattr(index, "pq", None)
    return (d, 0) if quantizer is None else (quantizer.M, quantizer.ksub * d)

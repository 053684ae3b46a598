"""The systems side by side. A system is built once; each of its settings searches it, on one thread."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

import logt
from logt.methods import compact, lo_gt, sketched, starred

Search = Callable[[np.ndarray, int], np.ndarray]


@dataclass(frozen=True)
class System:
    """make(X) -> (search(Q, k, **setting) -> ids, bytes)"""

    name: str
    make: Callable[[np.ndarray], tuple[Callable[..., np.ndarray], int]]
    settings: dict[str, dict[str, float]] = field(default_factory=lambda: {"": {}})


def exhaustive(X):
    def search(Q, k):
        S = (X @ Q[0])[None] if len(Q) == 1 else Q @ X.T
        best = np.argpartition(-S, k, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(S, best, axis=1), axis=1)
        return np.take_along_axis(best, order, axis=1)

    return search, X.nbytes


def ours(method):
    def make(X):
        index = logt.Index(X.shape[1], method=method, threads=2, segment_size=None)
        index.add(X)
        return lambda Q, k, **setting: index.search(Q, k, threads=1, **setting).ids, index.report()["bytes"]

    return make


def faiss_factory(description):
    def make(X):
        import faiss

        faiss.omp_set_num_threads(2)
        index = faiss.index_factory(X.shape[1], description, faiss.METRIC_INNER_PRODUCT)
        index.train(X)
        index.add(X)
        faiss.omp_set_num_threads(1)

        def search(Q, k, nprobe=None):
            if nprobe:
                index.nprobe = nprobe
            return index.search(Q, k)[1]

        return search, len(faiss.serialize_index(index))

    return make


def turbovec(bits):
    def make(X):
        import turbovec  # on one thread if RAYON_NUM_THREADS says so, as bench.py does

        index = turbovec.TurboQuantIndex(X.shape[1], bits)
        index.calibrate(X[np.random.default_rng(0).choice(len(X), min(1024, len(X)), replace=False)])
        index.add(X)
        index.prepare()
        return lambda Q, k: index.search(Q, k)[1], len(index.to_bytes())

    return make


def hnsw(X):
    import faiss

    faiss.omp_set_num_threads(2)
    index = faiss.IndexHNSWFlat(X.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = 100
    index.add(X)
    faiss.omp_set_num_threads(1)

    def search(Q, k, ef):
        index.hnsw.efSearch = max(ef, k)
        return index.search(Q, k)[1]

    return search, len(faiss.serialize_index(index))


def systems() -> list[System]:
    """Rivals that are not installed are left out."""
    efforts = {f"effort {e}": {"effort": e} for e in (0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)}
    cascades = {"": {"p": 1.0}, "p=0.2": {"p": 0.2}, "p=0.3": {"p": 0.3}, "p=0.5": {"p": 0.5}, "p=0.7": {"p": 0.7}}
    both = {name: {**cascade, "correct": False} for name, cascade in cascades.items()}
    both["p=0.7, corrected (LO-GT*)"] = {"p": 0.7}
    found = [
        System("exhaustive float32", exhaustive),
        System("logt", ours(sketched()), efforts),
        System("logt 1 bit", ours(sketched(bits=1)), {"effort 0.4": {"effort": 0.4}, "effort 1.0": {"effort": 1.0}}),
        System("logt 4 bits", ours(sketched(bits=4)), {"effort 0.4": {"effort": 0.4}, "effort 0.6": {"effort": 0.6}}),
        System("LO-GT L=100", ours(compact(lo_gt(L=100))), cascades),
        System("LO-GT L=300", ours(compact(starred(lo_gt(L=300)))), both),
    ]
    if importlib.util.find_spec("faiss"):
        found += [
            System("faiss SQ8", faiss_factory("SQ8")),
            System("faiss SQ4", faiss_factory("SQ4")),
            System(
                "faiss IVF512,SQ8", faiss_factory("IVF512,SQ8"), {f"{n} lists": {"nprobe": n} for n in (4, 16, 64)}
            ),
            System("faiss IVF512,RaBitQ", faiss_factory("IVF512,RaBitQ"), {"16 lists": {"nprobe": 16}}),
            System("faiss HNSW32", hnsw, {f"ef={ef}": {"ef": ef} for ef in (128, 500)}),
        ]
    if importlib.util.find_spec("turbovec"):
        found += [System(f"turbovec {bits} bit", turbovec(bits)) for bits in (2, 4)]
    return found

"""The systems that bench.py compares: those of this library, and those of others."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import logt
from benchmarks.interface import Built, Collection, Settings, System, UnsupportedError, bytes_of, grid
from benchmarks.libraries import library_systems
from logt.lists.method import Sketched
from logt.methods import compact, lo_gt, sketched, starred

RECALLS = grid("recall {}", recall=(0.7, 0.8, 0.9, 0.98, 0.99))
EFFORTS = grid("effort {}", effort=(0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0))
DEFAULT: Settings = {"": {}}
RE_RANKED: Settings = {
    **DEFAULT,
    "αQE": {"expand": 10},
    "diffusion": {"rerank": "diffusion"},
    "αQE, diffusion": {"expand": 10, "rerank": "diffusion"},
}


def systems() -> list[System]:
    """Return all systems, whether their libraries are installed or not."""
    return [*own_systems(), *library_systems()]


def own_systems() -> list[System]:
    """Return exhaustive search, the default index and its variants, and the paper's method."""
    cascades: Settings = {"": {"p": 1.0}, **grid("p={}", p=(0.3, 0.7))}
    few = grid("effort {}", effort=(0.2, 0.4, 0.6, 0.8, 1.0))
    uncorrected = {name: {**setting, "correct": False} for name, setting in cascades.items()}
    return [
        System("exhaustive float32", _exhaustive, DEFAULT, "logt-search", "logt", full_ranking="once"),
        _index("logt", sketched(), {**DEFAULT, **RECALLS, **EFFORTS}),
        _index("logt linked", sketched(), {**DEFAULT, **RECALLS, **EFFORTS}, link=True),
        _index("logt without refinement", sketched(refine=False), {**DEFAULT, **few}),
        _index("logt 1 bit", sketched(bits=1), {**DEFAULT, **few}),
        _index("logt 4 bits", sketched(bits=4), {**DEFAULT, **few}),
        _index("logt 4 bits without refinement", sketched(bits=4, refine=False), {**DEFAULT, **few}),
        _index("logt 8 bits without refinement", sketched(bits=8, refine=False), {**DEFAULT, **few}),
        _index("logt compact", sketched(bits=1, refine=False), {**DEFAULT, **few}, smooth=True),
        _index("logt re-ranked", sketched(), RE_RANKED, link=True),
        _index("logt smoothed, re-ranked", sketched(), RE_RANKED, link=True, smooth=True),
        _index("LO-GT L=100", compact(lo_gt(L=100)), cascades),
        _index("LO-GT* L=300", compact(starred(lo_gt(L=300))), {**uncorrected, "p=0.7, corrected": {"p": 0.7}}),
    ]


def _index(name: str, method: logt.Method, settings: Settings, *, smooth: bool = False, link: bool = False) -> System:
    cosine_only = smooth or settings is RE_RANKED

    def build(data: Collection) -> Built:
        if cosine_only and data.metric != "cosine":
            raise UnsupportedError("smoothed vectors and diffusion are compared by cosine only")
        return _build_index(data, method, smooth, link)

    # a complete ranking by sketches reads everything anyway
    each = settings is RE_RANKED or not isinstance(method, Sketched)
    return System(name, build, settings, "logt-search", "logt", full_ranking="each" if each else "once")


def _build_index(data: Collection, method: logt.Method, smooth: bool, link: bool) -> Built:
    """Build an index, save it and search it as it is opened again: its refinement stays on disk."""
    X = logt.smoothed(data.X, threads=data.threads) if smooth else data.X
    index = logt.Index(data.dim, method=method, metric=data.metric, threads=data.threads, segment_size=None)
    index.add(X)
    if link:
        index.link()
    folder = Path(tempfile.mkdtemp(prefix="index-", dir=data.folder))
    index.save(folder)
    opened = logt.Index.open(folder, threads=1)

    def search(Q: np.ndarray, k: int, **setting: Any) -> np.ndarray:
        return opened.search(Q, k, **setting).ids

    def sizes() -> tuple[int, int]:
        search(np.asarray(data.X[:1], np.float32), 1)  # a first search keeps where the nodes of the graph are
        return int(opened.report()["bytes"]), bytes_of(folder)

    return Built(search, sizes)


def _exhaustive(data: Collection) -> Built:
    X = np.array(data.X)
    squares = np.square(X).sum(axis=1) if data.metric == "l2" else None

    def search(Q: np.ndarray, k: int) -> np.ndarray:
        # for one query, BLAS is faster with X as the first factor
        scores = (X @ Q[0])[None] if len(Q) == 1 else Q @ X.T
        if squares is not None:
            scores = 2 * scores - squares
        k = min(k, len(X))
        top = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(scores, top, axis=1), axis=1, kind="stable")
        return np.take_along_axis(top, order, axis=1)

    return Built(search, lambda: (X.nbytes, X.nbytes))

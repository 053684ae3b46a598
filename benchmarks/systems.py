"""The systems that bench.py compares: each is built once and searched with several settings."""

from __future__ import annotations

import importlib
import importlib.metadata
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import logt
from logt.methods import compact, lo_gt, sketched, starred

Search = Callable[..., np.ndarray]
Settings = Mapping[str, Mapping[str, Any]]


class UnsupportedError(Exception):
    """A system cannot be built for this metric or dimension."""


@dataclass(frozen=True)
class Collection:
    """What a system is built from. folder: for files that systems share, or write to be measured."""

    X: np.ndarray
    metric: str
    threads: int
    folder: Path

    @property
    def N(self) -> int:
        return self.X.shape[0]

    @property
    def dim(self) -> int:
        return self.X.shape[1]


@dataclass(frozen=True)
class Built:
    """A system that was built. search(Q, k, **setting) returns ids (nq, k) on one thread.

    sizes: returns (bytes that stay in memory, bytes of the saved files). seconds: what an earlier
    build spent on what several systems share.
    """

    search: Search
    sizes: Callable[[], tuple[int, int]]
    seconds: float = 0.0


@dataclass(frozen=True)
class System:
    """A system and the settings of its searches, by name.

    package: the distribution that it comes from, whose version is reported. module: what is imported. where: the
    machines that the package is published for. environment: variables of its process.
    """

    name: str
    build: Callable[[Collection], Built]
    settings: Settings
    package: str
    module: str
    where: str = ""
    full_ranking: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    def missing(self) -> str:
        """Return why the system cannot be used here, and what to install; empty if it can."""
        try:
            importlib.import_module(self.module)
        except ImportError as error:
            where = f" ({self.where})" if self.where else ""
            return f"{error}; pip install {self.package}{where}, or the extra baselines"
        return ""

    def version(self) -> str:
        """Return the installed version."""
        try:
            return importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:  # a copy that was not installed
            return str(getattr(importlib.import_module(self.module), "__version__", "unknown"))


def systems() -> list[System]:
    """Return all systems, whether their libraries are installed or not."""
    from benchmarks.libraries import library_systems

    return [*own_systems(), *library_systems()]


def sweep(name: str, parameter: str, values: Sequence[float]) -> dict[str, dict[str, Any]]:
    """Return one setting per value of a parameter; name: with "{}" for the value."""
    return {name.format(value): {parameter: value} for value in values}


def bytes_of(path: Path) -> int:
    """Return the bytes of a file, or of all files of a folder."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def saved_sizes(save: Callable[[str], object]) -> tuple[int, int]:
    """Return the bytes that a function writes to the path that it is given, a file or a folder.

    They are taken for those in memory as well: these libraries read the whole file.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "saved"
        save(str(path))
        size = bytes_of(path)
    return size, size


# ----------------------------------------------------------------------------------------------- this library

RECALLS = sweep("recall {}", "recall", (0.7, 0.8, 0.9, 0.98, 0.99))
EFFORTS = sweep("effort {}", "effort", (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0))
DEFAULT: Settings = {"": {}}


def own_systems() -> list[System]:
    """Return exhaustive search, the default index and its variants, and the paper's method."""
    cascades: Settings = {"": {"p": 1.0}, **sweep("p={}", "p", (0.3, 0.7))}
    few = sweep("effort {}", "effort", (0.2, 0.4, 0.6, 0.8, 1.0))
    uncorrected = {name: {**setting, "correct": False} for name, setting in cascades.items()}
    return [
        System("exhaustive float32", _exhaustive, DEFAULT, "logt-search", "logt", full_ranking=True),
        _index("logt", sketched(), {**DEFAULT, **RECALLS, **EFFORTS}),
        _index("logt linked", sketched(), {**DEFAULT, **RECALLS, **EFFORTS}, link=True),
        _index("logt without supplement", sketched(refine=False), {**DEFAULT, **few}),
        _index("logt 1 bit", sketched(bits=1), {**DEFAULT, **few}),
        _index("logt 4 bits", sketched(bits=4), {**DEFAULT, **few}),
        _index("logt 4 bits without supplement", sketched(bits=4, refine=False), {**DEFAULT, **few}),
        _index("logt 8 bits without supplement", sketched(bits=8, refine=False), {**DEFAULT, **few}),
        _index("logt compact", sketched(bits=1, refine=False), {**DEFAULT, **few}, smooth=True),
        _index("LO-GT L=100", compact(lo_gt(L=100)), cascades),
        _index("LO-GT* L=300", compact(starred(lo_gt(L=300))), {**uncorrected, "p=0.7, corrected": {"p": 0.7}}),
    ]


def _index(name: str, method: logt.Method, settings: Settings, *, smooth: bool = False, link: bool = False) -> System:
    def build(data: Collection) -> Built:
        return _build_index(data, method, smooth, link)

    return System(name, build, settings, "logt-search", "logt", full_ranking=True)


def _build_index(data: Collection, method: logt.Method, smooth: bool, link: bool) -> Built:
    """Build an index, save it and search it as it is opened again: its supplement stays on disk."""
    if smooth and data.metric != "cosine":
        raise UnsupportedError("smoothed vectors are compared by cosine only")
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

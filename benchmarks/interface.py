"""What bench.py needs from a system: it is built once, has a size, and is searched with several settings."""

import importlib
import importlib.metadata
import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

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
    machines that the package is published for. full_ranking: whether it can rank all vectors, and then whether the
    settings give the same ranking, so that it is measured once. environment: variables of its process.
    """

    name: str
    build: Callable[[Collection], Built]
    settings: Settings
    package: str
    module: str
    where: str = ""
    full_ranking: Literal["no", "once", "each"] = "no"
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


def grid(name: str, **parameters: Sequence[float]) -> dict[str, dict[str, Any]]:
    """Return a setting for each combination of values; name: with "{}" for the value of each parameter."""
    combinations = itertools.product(*parameters.values())
    return {name.format(*values): dict(zip(parameters, values, strict=True)) for values in combinations}


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

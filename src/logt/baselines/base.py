"""The interface of all systems: a system builds from X, and what it builds can be searched and has a known cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from logt._internal.progress import shown_progress
from logt._internal.threads import Progress, Workers, available_cores
from logt._internal.types import Floats, Ids
from logt._internal.validation import as_matrix, check_int, infer_dim, normalize_rows, row_norms
from logt.errors import InvalidInputError
from logt.index import Index
from logt.metrics import check_queries, check_vectors


class BuiltSystem(ABC):
    """A system that holds a collection, searched by cosine.

    Settings are keyword arguments of `search` and `rho`; each class lists its own.

    nbytes: bytes of everything that a search reads. memory_ratio: the paper's memory count, stored scalars over d·N;
    codes count by their bytes, four to a scalar. index: set if the system is a `logt.Index`, which can be saved.
    """

    nbytes: int
    memory_ratio: float
    index: Index | None = None

    @abstractmethod
    def search(self, Q: Any, k: int, *args: Any, **settings: Any) -> Ids:
        """Return ids (nq, k) for queries Q, best first; lists with fewer than k results end in -1.

        All systems take `threads` as a keyword argument, 1 by default.
        """

    @abstractmethod
    def rho(self, *args: Any, **settings: Any) -> float:
        """Return the paper's complexity ratio of a search: operations per query over d·N."""


class System(ABC):
    """The parameters of a system, as a frozen dataclass; its repr is the configuration of an experiment."""

    def build(
        self, X: Any, *, seed: int = 0, threads: int | None = None, progress: Progress | bool | None = None
    ) -> BuiltSystem:
        """Build the system from vectors.

        X: vectors, (N, d). seed: the same vectors and seed give the same system. threads: the number of threads, all
        cores if None. progress: True draws bars; a function is called as progress(what, done, total).
        """
        with shown_progress(progress) as report:
            return self._build(normalize_vectors(X), seed, workers_for(threads, report))

    @abstractmethod
    def _build(self, X: Floats, seed: int, workers: Workers) -> BuiltSystem:
        """Build from float32 vectors of norm 1."""


def workers_for(threads: int | None, progress: Progress | None = None) -> Workers:
    """Return workers on the given number of threads; None means all cores."""
    return Workers(available_cores() if threads is None else check_int("threads", threads), progress)


def normalize_vectors(X: Any) -> Floats:
    """Return X, checked, as float32 rows of norm 1; X itself if it already is that."""
    rows = check_vectors(X, infer_dim(X), "cosine")
    if not len(rows):
        raise InvalidInputError("X holds no vectors; a system is built from at least one")
    norms = row_norms(rows)
    if rows.dtype == np.float32 and rows.flags.c_contiguous and np.abs(norms - 1).max(initial=0) < 1e-6:
        return rows
    return normalize_rows(rows, norms)


def normalize_queries(Q: Any, dim: int) -> Floats:
    """Return Q, checked, as float32 rows of norm 1."""
    return check_queries(as_matrix(Q, dim, "Q"), "cosine", ignore=False, hint="correct it")[0]


def pad_ids(ids: Ids, k: int) -> Ids:
    """Return lists of length k: longer ones are cut, shorter ones end in -1."""
    out = np.full((len(ids), k), -1, np.int64)
    out[:, : ids.shape[1]] = ids[:, :k]
    return out

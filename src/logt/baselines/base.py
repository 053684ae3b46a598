"""What every system is: (X, parameters) -> a search, with what it costs in bytes and in the paper's counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from logt._threads import Progress, Workers, available_cores, split_range
from logt._types import Floats, Ids
from logt._validation import as_matrix, check_int, infer_dim, normalize_rows, row_norms
from logt.engine.decode_search import rank_scores
from logt.errors import InvalidInputError
from logt.index import Index
from logt.metrics import check_queries, check_vectors

PROBES = 64
"""Vectors of the collection that stand for queries where the operations of a search have to be counted."""

_TILE = 64  # queries compared with everything together


@dataclass(frozen=True)
class Built:
    """A system that holds a collection, searched by cosine.

    `search(Q, k, **setting)` gives ids (nq, k), best first, -1 in empty places; on one thread, or as many as
    `threads` says. `bytes` are those of all that a search reads. `memory` and `rho(**setting)` are the paper's
    counts, both divided by d·N: scalars kept (codes of less than a scalar count by their bytes, four to a scalar),
    and operations per query. `index` is what can be saved, where there is one.
    """

    search: Callable[..., Ids]
    bytes: int
    memory: float
    rho: Callable[..., float]
    index: Index | None = None


class System(Protocol):
    """A frozen dataclass of parameters; its repr is the configuration."""

    @property
    def name(self) -> str: ...
    def build(
        self, X: Floats, *, seed: int = 0, threads: int | None = None, progress: Progress | None = None
    ) -> Built: ...


def workers_for(threads: int | None, progress: Progress | None = None) -> Workers:
    """All cores, unless a number of threads is given."""
    return Workers(available_cores() if threads is None else check_int("threads", threads), progress)


def unit_vectors(X: Any) -> Floats:
    """X, checked, as float32 rows of length 1; X itself where it is that already."""
    rows = check_vectors(X, infer_dim(X), "cosine")
    refuse_none(rows)
    norms = row_norms(rows)
    if rows.dtype == np.float32 and rows.flags.c_contiguous and np.abs(norms - 1).max(initial=0) < 1e-6:
        return rows
    return normalize_rows(rows, norms)


def refuse_none(X: Any) -> None:
    """Raise unless there is a vector to build from."""
    if len(X) == 0:
        raise InvalidInputError("X holds no vectors, a system is built from at least one")


def unit_queries(Q: Any, dim: int) -> Floats:
    """Q, checked, as float32 rows of length 1."""
    return check_queries(as_matrix(Q, dim, "Q"), "cosine", ignore=False, hint="correct it")[0]


def by_tile(dim: int, answer: Callable[[Floats], Floats]) -> Callable[..., Ids]:
    """A search by answer(some queries) -> a score for each vector."""

    def search(Q: Any, k: int, *, threads: int = 1) -> Ids:
        queries, k = unit_queries(Q, dim), check_int("k", k)
        tiles = split_range(len(queries), _TILE)
        found = workers_for(threads).map(lambda tile: best(answer(queries[tile]), k), tiles)
        return np.concatenate([np.empty((0, k), np.int64), *found])

    return search


def best(scores: Floats, k: int) -> Ids:
    """The rows of the k largest scores of each query, equal ones by row; -1 where there are fewer than k."""
    nq, N = scores.shape
    rows = np.broadcast_to(np.arange(N), (nq, N))
    order = rank_scores(np.ascontiguousarray(scores), np.ascontiguousarray(rows), min(k, N))
    return padded_ids(order, k)


def padded_ids(ids: Ids, k: int) -> Ids:
    """Lists of k: the first k of longer ones, shorter ones ended by -1."""
    out = np.full((len(ids), k), -1, np.int64)
    out[:, : ids.shape[1]] = ids[:, :k]
    return out


def probes(X: Floats, seed: int) -> Floats:
    """Some of the vectors, at random."""
    chosen = np.random.default_rng(seed).choice(len(X), min(PROBES, len(X)), replace=False)
    return X[np.sort(chosen)]

"""Exhaustive search, the reference of all figures."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from logt._internal.threads import Workers, split_range
from logt._internal.types import Floats, Ids
from logt._internal.validation import check_int
from logt.baselines.base import BuiltSystem, System, normalize_queries, pad_ids, workers_for
from logt.group_testing.search import rank_scores

_TILE = 64  # queries scored together


@dataclass(frozen=True)
class Exhaustive(System):
    """q·x for all x, in float32 by BLAS."""

    def _build(self, X: Floats, seed: int, workers: Workers) -> "BuiltExhaustive":
        return BuiltExhaustive(X)


class BuiltExhaustive(BuiltSystem):
    """The normalized vectors."""

    memory_ratio = 1.0

    def __init__(self, X: Floats):
        self._X, self.nbytes = X, X.nbytes

    def search(self, Q: Any, k: int, *, threads: int = 1) -> Ids:
        queries, k = normalize_queries(Q, self._X.shape[1]), check_int("k", k)
        ids = workers_for(threads).map(lambda tile: self._rank(queries[tile], k), split_range(len(queries), _TILE))
        return np.concatenate([np.empty((0, k), np.int64), *ids])

    def rho(self) -> float:
        return 1.0

    def _rank(self, Q: Floats, k: int) -> Ids:
        # for one query, BLAS is faster with X as the first factor
        scores = (self._X @ Q[0])[None] if len(Q) == 1 else Q @ self._X.T
        rows = np.tile(np.arange(len(self._X)), (len(Q), 1))
        return pad_ids(rank_scores(np.ascontiguousarray(scores), rows, min(k, len(self._X))), k)

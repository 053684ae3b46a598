"""Exhaustive search: every similarity by one matrix product; the reference of all figures."""

from __future__ import annotations

from dataclasses import dataclass

from logt._internal.threads import Workers
from logt._internal.types import Floats
from logt.baselines.base import ScoringSystem, VectorSystem


@dataclass(frozen=True)
class Exhaustive(VectorSystem):
    """q·x for all x, in float32 by BLAS. `name` is for reports."""

    name: str = "exhaustive float32"

    def _build(self, X: Floats, seed: int, workers: Workers) -> BuiltExhaustive:
        return BuiltExhaustive(X)


class BuiltExhaustive(ScoringSystem):
    """The normalized vectors."""

    memory_ratio = 1.0

    def __init__(self, X: Floats):
        self._X = X
        self.dim = X.shape[1]

    def scores(self, Q: Floats) -> Floats:
        # for one query, BLAS is faster with X as the first factor
        return (self._X @ Q[0])[None] if len(Q) == 1 else Q @ self._X.T

    @property
    def nbytes(self) -> int:
        return self._X.nbytes

    def rho(self) -> float:
        return 1.0

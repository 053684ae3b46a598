"""Exhaustive search: every similarity by one product, the baseline of all figures."""

from __future__ import annotations

from dataclasses import dataclass

from logt._threads import Progress
from logt._types import Floats
from logt.baselines.base import Built, by_tile, unit_vectors


@dataclass(frozen=True)
class Exhaustive:
    """q·x for all x, in float32 by BLAS."""

    name: str = "exhaustive float32"

    def build(
        self, X: Floats, *, seed: int = 0, threads: int | None = None, progress: Progress | None = None
    ) -> Built:
        V = unit_vectors(X)
        return Built(
            search=by_tile(V.shape[1], lambda Q: similarities(Q, V)),
            bytes=V.nbytes,
            memory=1.0,
            rho=lambda: 1.0,
        )


def similarities(Q: Floats, X: Floats) -> Floats:
    """Q·Xᵀ; BLAS reads X faster for one query if it stands first."""
    return (X @ Q[0])[None] if len(Q) == 1 else Q @ X.T

"""Correction, (ranking, units) -> ranking: drop false positives without the vectors (section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from logt import _kernels
from logt._types import Ids
from logt.errors import at_least_one


@dataclass(frozen=True)
class Suppress:
    """Non-maxima suppression within units: of the vectors that share one, only the best can match.

    In one pass over the first `depth` results, each that is not suppressed so far suppresses all vectors, at
    whatever place, that share a unit with it. What is suppressed suppresses nothing and goes to the end of the
    list, in the order it had.
    """

    depth: int = 500

    def __post_init__(self) -> None:
        at_least_one(self, "depth")

    def __call__(self, units: Ids) -> tuple[Ids, Ids]:
        """(the new order of each list, how many of each are not suppressed), from units (nq, length, m).

        -1 marks an empty place.
        """
        order, counts = np.empty(units.shape[:2], np.int64), np.empty(len(units), np.int64)
        _kernels.suppress(np.ascontiguousarray(units), self.depth, order, counts)
        return order, counts

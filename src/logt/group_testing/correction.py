"""Correction, (ranking, units) -> ranking: drop false positives without the vectors (section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from logt import _kernels
from logt._internal.types import Ids
from logt._internal.validation import check_positive


@dataclass(frozen=True)
class Suppress:
    """Non-maximum suppression within units: of the vectors that share a unit, only the best can match.

    In one pass over the first `depth` results, each result that is not yet suppressed suppresses all others in the
    list that share a unit with it. Suppressed results suppress nothing and move to the end of the list, in order.
    """

    depth: int = 500

    def __post_init__(self) -> None:
        check_positive(self, "depth")

    def __call__(self, units: Ids) -> tuple[Ids, Ids]:
        """From units (nq, length, m), return (the new order of each list, how many are not suppressed).

        A unit of -1 marks an empty result.
        """
        order, counts = np.empty(units.shape[:2], np.int64), np.empty(len(units), np.int64)
        _kernels.suppress(np.ascontiguousarray(units), self.depth, order, counts)
        return order, counts

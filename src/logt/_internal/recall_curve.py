"""Recall by effort, as measured: it is stored with codecs and with the neighbor graph."""

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from logt._internal.types import Array, Floats
from logt._internal.validation import check_array


@dataclass(frozen=True, eq=False)
class RecallCurve:
    """How accurate searches are by effort, as measured with vectors of the collection.

    recall: (len(KS), len(EFFORTS)), the fraction of the results of a full read that a search finds, for KS[i] results
    at EFFORTS[j]; it increases with effort. At effort 1 it is 1, by definition, but it may jump there: only a full
    read leaves nothing out.
    """

    recall: Floats

    KS: ClassVar = (10, 100, 1000)
    EFFORTS: ClassVar = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99)

    @classmethod
    def from_array(cls, recall: Array) -> Self:
        """Build from a stored array; raise ValueError if it is not a curve."""
        recall = check_array(recall, np.float32, 2)
        if recall.shape != (len(cls.KS), len(cls.EFFORTS)) or not (recall >= 0).all() or not (recall <= 1).all():
            raise ValueError("the curve of recall by effort is impossible")
        return cls(recall)

    def effort(self, recall: float, k: int) -> float:
        """Return the least effort that reaches a recall for k results."""
        efforts = [self._effort(row, recall) for row in self.recall.tolist()]
        at = bisect_left(self.KS, k)  # the first row for at least k results
        if at in (0, len(efforts)):
            return efforts[min(at, len(efforts) - 1)]
        fewer, more = efforts[at - 1 : at + 1]
        share = math.log(k / self.KS[at - 1]) / math.log(self.KS[at] / self.KS[at - 1])
        return 1.0 if max(fewer, more) == 1 else fewer + (more - fewer) * share

    def _effort(self, row: list[float], recall: float) -> float:
        at = bisect_left(row, recall)
        if recall == 1 or at == len(row):
            return 1.0
        if at == 0:
            return self.EFFORTS[0]
        low, high = row[at - 1], row[at]
        return self.EFFORTS[at - 1] + (self.EFFORTS[at] - self.EFFORTS[at - 1]) * (recall - low) / (high - low)

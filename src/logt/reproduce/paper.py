"""What the paper states, as data (Iscen and Chum, ECCV 2018, section 4): mAP in percent, index time in minutes.

The source of its curves is not published: what is here stands in the text, in a table, or in a label of a figure.
Labels stand just below the points they name, so they are read as lower estimates by a few tenths.
"""

from __future__ import annotations

from typing import NamedTuple

OXFORD = 81.3
"""Exhaustive search in Oxford105k."""


class Point(NamedTuple):
    """Something at a complexity ratio, with its mAP in Oxford105k."""

    label: str
    rho: float
    mean_ap: float


DENSE = {2: 0.09, 3: 0.20, 4: 0.36, 5: 0.56}
"""Complexity ratio of the dense 1-order decoder at n = 50, by m."""

DENSE_REACHES = Point("m=4", 0.36, 81.3)
SPARSE = (Point("L=100", 0.13, 79.9), Point("L=200", 0.182, 80.9), Point("L=300", 0.23, 81.3))
CASCADE = Point("L=300 in cascade", 0.18, 81.3)


class Seconds(NamedTuple):
    exhaustive: float
    ours: float
    rho: float

    @property
    def ratio(self) -> float:
        return self.ours / self.exhaustive


TIME = Seconds(0.198, 0.054, 0.18)
"""Per query in Oxford105k, one thread, Matlab."""


class Row(NamedTuple):
    """A row of the comparison table in Oxford105k; minutes on a server of 32 cores, 0 where it says less than one."""

    complexity: float
    memory: float
    minutes: int
    oxford: float


TABLE = {
    "exhaustive": Row(1.00, 1.00, 0, 81.3),
    "GT pinv": Row(4.20, 4.20, 0, 63.9),
    "GT back-propagation": Row(0.36, 1.36, 0, 73.4),
    "dictionary + coreset": Row(0.18, 0.18, 273, 81.4),
    "dictionary": Row(0.11, 0.11, 435, 86.8),
    "LO-GT*": Row(0.18, 0.23, 4, 81.3),
}

DICTIONARY_HOURS = 50
"""Index time of dictionary learning in 10 batches of a million vectors."""

SMALLEST_BATCH = 10_000
"""Vectors in each of 100 batches of a million."""

FLANN_PRECISION, FLANN_SPEEDUP, FLANN_RATIO = 0.95, 1.45, 0.69
FLANN_OURS = 0.2
"""The complexity ratio at which the paper has the accuracy of exhaustive search, as it says beside FLANN."""

PQ_EXACT = {256: 77.7, 32: 52.2, 16: 44.8}
PQ_STORED = {256: 79.2, 32: 70.5, 16: 62.3}
"""mAP with memory vectors of c bytes: U from Y, and from Ŷ."""


def shifted(mean_ap: float, ours: float, theirs: float = OXFORD) -> float:
    """A mAP of the paper on our scale: as far from our exhaustive search as from its own."""
    return ours + mean_ap - theirs

"""The values that the paper states (Iscen and Chum, ECCV 2018, section 4): mAP in percent, index time in minutes.

The data of its curves are not published. The values here are from the text, from a table, or from a label in a
figure. Labels are printed just below their points, so they may be a few tenths too low.
"""

from typing import NamedTuple

OXFORD = 81.3
"""mAP of exhaustive search in Oxford105k."""


class StatedPoint(NamedTuple):
    """A complexity ratio and the mAP in Oxford105k."""

    label: str
    rho: float
    mean_ap: float


DENSE_REACHES = StatedPoint("m=4", 0.36, 81.3)
SPARSE = (StatedPoint("L=100", 0.13, 79.9), StatedPoint("L=200", 0.182, 80.9), StatedPoint("L=300", 0.23, 81.3))
CASCADE = StatedPoint("L=300 with cascade", 0.18, 81.3)


EXHAUSTIVE_SECONDS, LO_GT_SECONDS, TIME_RHO = 0.198, 0.054, 0.18
TIME_RATIO = LO_GT_SECONDS / EXHAUSTIVE_SECONDS
"""Seconds per query in Oxford105k, one thread, Matlab, and the complexity ratio of LO-GT*."""


class StatedRow(NamedTuple):
    """A row of table 1 in Oxford105k; minutes on a server with 32 cores, 0 for less than one."""

    complexity: float
    memory: float
    minutes: int
    oxford: float


TABLE = {
    "exhaustive": StatedRow(1.00, 1.00, 0, 81.3),
    "GT pinv": StatedRow(4.20, 4.20, 0, 63.9),
    "GT back-propagation": StatedRow(0.36, 1.36, 0, 73.4),
    "dictionary + coreset": StatedRow(0.18, 0.18, 273, 81.4),
    "dictionary": StatedRow(0.11, 0.11, 435, 86.8),
    "LO-GT*": StatedRow(0.18, 0.23, 4, 81.3),
}

DICTIONARY_HOURS = 50
"""Index time of dictionary learning with a million vectors in 10 batches."""

SMALLEST_BATCH = 10_000
"""Vectors per batch when a million are split into 100."""

FLANN_PRECISION, FLANN_SPEEDUP, FLANN_RATIO = 0.95, 1.45, 0.69
FLANN_LO_GT = 0.2
"""The complexity ratio at which LO-GT reaches the accuracy of exhaustive search, as stated next to FLANN."""

PQ_EXACT = {256: 77.7, 32: 52.2, 16: 44.8}
PQ_STORED = {256: 79.2, 32: 70.5, 16: 62.3}
"""mAP with memory vectors of c bytes: U fitted to Y, and to Ŷ."""


def shift_to(exhaustive: float, mean_ap: float) -> float:
    """Return a mAP of the paper shifted so that its exhaustive search has the given mAP."""
    return exhaustive + mean_ap - OXFORD

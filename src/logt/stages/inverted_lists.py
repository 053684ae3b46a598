"""Inverted lists: the vectors of each unit next to each other, so that a search scans only those of a few units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logt._types import Array, Ids
from logt._validation import check_float, check_positive
from logt.errors import InvalidInputError

MIN_SCANNED = 4096
"""Vectors whose codes are decoded at least, at effort 1; in proportion at less."""

_CANDIDATES = 30  # re-ranked by the supplement, at effort 1/3


class Reading(NamedTuple):
    """How much of the lists a search reads (lists.hpp).

    lists: M**lists of M lists are decoded. nprobe: or so many, if not 0. least: and further ones until so many
    vectors are. code_reach, head_reach: deviations of the residual by which a vector may exceed the estimate of its
    code, or of its head. candidates: kept for the supplement, at least. everything: read all bits of all vectors.
    """

    lists: float
    nprobe: int
    least: int
    code_reach: float
    head_reach: float
    candidates: int
    everything: bool


@dataclass(frozen=True)
class Probe:
    """How much a search reads, by one number: effort, from 0 to 1.

    It decodes the codes of the M**(0.55 + 0.45 · effort) lists with the highest scores, of all M, and reads the
    residual of vectors that can still be among the results: whose estimate is too low by at most 2.5 + 2.75 · effort
    deviations. effort=1 reads everything.

    effort: as described. nprobe: sets the number of lists directly.
    """

    effort: float = 0.5
    nprobe: int | None = None

    def __post_init__(self) -> None:
        if self.nprobe is not None:
            check_positive(self, "nprobe")
        object.__setattr__(self, "effort", check_float("effort", self.effort))
        if not 0 <= self.effort <= 1:
            raise InvalidInputError(f"effort must be from 0 to 1, got {self.effort!r}")

    def reading(self, k: int, *, refine: bool) -> Reading:
        """Return how a search for k results reads the lists; refine: there is a supplement."""
        everything = self.effort == 1 and self.nprobe is None
        return Reading(
            lists=0.55 + 0.45 * self.effort,
            nprobe=min(self.nprobe or 0, 1 << 62),
            least=0 if self.nprobe else round(MIN_SCANNED * self.effort),
            code_reach=2.5 + 2.75 * self.effort,
            head_reach=1.5,
            candidates=max(k + k // 2, round(_CANDIDATES * (2 / 3 + self.effort))) if refine else 0,
            everything=everything,
        )


def sort_into_lists(unit: Array, count: int) -> tuple[NDArray[np.uint32], Ids]:
    """Return (the row of each position, where the list of each of `count` units starts); unit: of each row."""
    row = np.argsort(unit, kind="stable").astype(np.uint32)
    starts = np.concatenate([[0], np.cumsum(np.bincount(unit, minlength=count))]).astype(np.int64)
    return row, starts

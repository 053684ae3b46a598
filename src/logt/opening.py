"""Opening, U -> lists: which vectors have an entry in each unit, so that a search reads only those of a few units."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from logt._types import Ids
from logt.decoder import Codes
from logt.errors import InvalidInputError, at_least_one, real

LEAST = 4096
"""Vectors read at least in one segment at full effort."""


@dataclass(frozen=True)
class Lists:
    """The vectors of unit j: rows[offsets[j]:offsets[j + 1]]."""

    offsets: Ids
    rows: NDArray[np.uint32]

    @property
    def nbytes(self) -> int:
        return self.offsets.nbytes + self.rows.nbytes


@dataclass(frozen=True)
class Open:
    """How a search reads U by unit: the M^effort units that answer most, of all M; effort = 1 reads everything.

    It goes on to LEAST · effort vectors where those units hold fewer, so that small collections are read whole.
    `units` says outright how many. Each vector is listed with the units of its first `entries` entries, if their
    weights are above 0.
    """

    effort: float = 0.5
    entries: int = 2
    units: int | None = None

    def __post_init__(self) -> None:
        at_least_one(self, "entries")
        if self.units is not None:
            at_least_one(self, "units")
        object.__setattr__(self, "effort", real("effort", self.effort))
        if not 0 <= self.effort <= 1:
            raise InvalidInputError(f"effort must be from 0 to 1, got {self.effort!r}")

    def opened(self, count: int) -> int:
        """How many units of `count` are opened."""
        return self.units or round(count**self.effort)

    @property
    def least(self) -> int:
        """How many vectors are read at least, while there are more units."""
        return 0 if self.units else round(LEAST * self.effort)

    def __call__(self, codes: Codes, count: int) -> Lists:
        unit, weight = (part[:, : self.entries] for part in codes.rows())
        listed = weight > 0
        listed[:, 0] = True  # nobody is lost
        flat = unit[listed]
        row = np.repeat(np.arange(len(codes), dtype=np.uint32), listed.sum(axis=1))
        offsets = np.concatenate([[0], np.cumsum(np.bincount(flat, minlength=count))]).astype(np.int64)
        return Lists(offsets, row[np.argsort(flat, kind="stable")])

"""Opening, U -> lists: which vectors have an entry in each unit, so that a search reads only those of a few units."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from logt._types import Array, Ids
from logt.errors import InvalidInputError, at_least_one, real
from logt.stages.codes import Codes

LEAST = 4096
"""Vectors read at least, over all segments, at full effort."""


@dataclass(frozen=True)
class Lists:
    """The vectors of each unit, and where their codes and sketches lie: place p is that of row[p].

    Unit j has the places starts[j]:starts[j + 1], of those whose first entry it is, side by side in memory, and
    further[offsets[j]:offsets[j + 1]], of others.
    """

    row: NDArray[np.uint32]
    starts: Ids
    offsets: Ids
    further: NDArray[np.uint32]

    @property
    def nbytes(self) -> int:
        made = self.place.nbytes if "place" in vars(self) else 0
        return made + sum(part.nbytes for part in (self.row, self.starts, self.offsets, self.further))

    @cached_property
    def place(self) -> NDArray[np.uint32]:
        """Of each row; made when it is first asked for."""
        place = np.empty_like(self.row)
        place[self.row] = np.arange(len(place), dtype=np.uint32)
        return place


@dataclass(frozen=True)
class Open:
    """How a search reads U by unit: the M^effort units that answer most, of all M; effort = 1 reads everything.

    It goes on to LEAST · effort vectors where those units hold fewer, so that small collections are read whole.
    `units` says outright how many. Each vector is listed with the units of its first `entries` entries, if their
    weights are above 0.
    """

    effort: float = 0.375
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
        """Of codes by row."""
        unit, weight = (part[:, : self.entries] for part in codes.rows())
        row = np.argsort(unit[:, 0], kind="stable").astype(np.uint32)
        listed = weight[row, 1:] > 0
        flat = unit[row, 1:][listed]
        place = np.repeat(np.arange(len(codes), dtype=np.uint32), listed.sum(axis=1))
        return Lists(row, _offsets(unit[:, 0], count), _offsets(flat, count), place[np.argsort(flat, kind="stable")])


def _offsets(units: Array, count: int) -> Ids:
    """Where the list of each of `count` units begins, and the last one ends."""
    return np.concatenate([[0], np.cumsum(np.bincount(units, minlength=count))]).astype(np.int64)

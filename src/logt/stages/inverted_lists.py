"""Inverted lists, U -> lists: the vectors of each unit, so that a search scans only those of a few units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from logt._types import Array, Ids
from logt._validation import check_array, check_float, check_positive
from logt.errors import InvalidInputError
from logt.stages.codes import Codes
from logt.stages.residual import ResidualCodes, code_bytes

MIN_SCANNED = 4096
"""Vectors scanned at least, over all segments, at effort=1."""


@dataclass(frozen=True)
class InvertedLists:
    """Inverted lists: the vectors of each unit, with their residual codes.

    Codes and residual codes are stored in list order; position p holds row[p]. The list of unit j is the positions
    starts[j]:starts[j + 1], whose first entry it is, and further[offsets[j]:offsets[j + 1]], of other vectors.
    """

    row: NDArray[np.uint32]
    starts: Ids
    offsets: Ids
    further: NDArray[np.uint32]
    residuals: ResidualCodes

    @property
    def nbytes(self) -> int:
        """Without the residual codes."""
        cached = self.position.nbytes if "position" in vars(self) else 0
        return cached + sum(part.nbytes for part in (self.row, self.starts, self.offsets, self.further))

    @cached_property
    def position(self) -> NDArray[np.uint32]:
        """The position of each row."""
        position = np.empty_like(self.row)
        position[self.row] = np.arange(len(position), dtype=np.uint32)
        return position

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays to store, apart from those of the residual codes that are stored in a file of their own."""
        return {
            **{name: getattr(self, name) for name in ("row", "starts", "offsets", "further")},
            "factor": self.residuals.factor,
            "bits": np.array([self.residuals.bits], np.uint8),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], units: int, dim: int) -> InvertedLists:
        """Build from stored arrays; raise ValueError if they do not fit together."""
        factor = check_array(arrays["factor"], np.float32, 1)
        bits = int(check_array(arrays["bits"], np.uint8, 1)[0])
        head, tail = (check_array(arrays[name], np.uint8, 2) for name in ("head", "tail"))
        if bits not in (1, 2, 4) or (head.shape[1], tail.shape[1]) != code_bytes(dim, bits):
            raise ValueError("the residual codes do not fit the dimension")
        rows = len(factor)
        if not len(head) == len(tail) == rows:
            raise ValueError("arrays of one segment differ in length")
        row, further = check_array(arrays["row"], np.uint32, 1), check_array(arrays["further"], np.uint32, 1)
        starts, offsets = check_array(arrays["starts"], np.int64, 1), check_array(arrays["offsets"], np.int64, 1)
        for ends, total in ((starts, rows), (offsets, len(further))):
            fits = len(ends) == units + 1 and ends[0] == 0 and ends[-1] == total
            if not fits or (np.diff(ends) < 0).any():
                raise ValueError("the lists do not fit the units")
        if len(row) != rows or row.max(initial=0) >= rows or further.max(initial=0) >= rows:
            raise ValueError("a list holds a vector that does not exist")
        if (np.bincount(row, minlength=rows) != 1).any():
            raise ValueError("the lists hold a vector twice")
        return cls(row, starts, offsets, further, ResidualCodes(head, tail, factor, bits))


@dataclass(frozen=True)
class Probe:
    """Probing: scan the M**effort units with the highest scores, of all M; effort=1 scans everything.

    It continues until MIN_SCANNED · effort vectors are scanned, so that small collections are scanned fully. `nprobe`
    sets the number of units directly. Each vector is listed in the units of its first `entries` entries, if their
    weights are above 0.
    """

    effort: float = 0.375
    entries: int = 2
    nprobe: int | None = None

    def __post_init__(self) -> None:
        check_positive(self, "entries")
        if self.nprobe is not None:
            check_positive(self, "nprobe")
        object.__setattr__(self, "effort", check_float("effort", self.effort))
        if not 0 <= self.effort <= 1:
            raise InvalidInputError(f"effort must be from 0 to 1, got {self.effort!r}")

    def units(self, count: int) -> int:
        """Return how many of `count` units are probed."""
        return self.nprobe or round(count**self.effort)

    @property
    def min_scanned(self) -> int:
        """The number of vectors scanned at least, if there are more units."""
        return 0 if self.nprobe else round(MIN_SCANNED * self.effort)

    def __call__(self, codes: Codes, residuals: ResidualCodes, count: int) -> InvertedLists:
        """Sort residual codes, given by row, into the lists of `count` units."""
        unit, weight = (part[:, : self.entries] for part in codes.matrices())
        row = np.argsort(unit[:, 0], kind="stable").astype(np.uint32)
        listed = weight[row, 1:] > 0
        flat = unit[row, 1:][listed]
        position = np.repeat(np.arange(len(codes), dtype=np.uint32), listed.sum(axis=1))
        further = position[np.argsort(flat, kind="stable")]
        starts, offsets = _offsets(unit[:, 0], count), _offsets(flat, count)
        return InvertedLists(row, starts, offsets, further, residuals.take(row))


def _offsets(units: Array, count: int) -> Ids:
    """Return where the list of each of `count` units starts, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(np.bincount(units, minlength=count))]).astype(np.int64)

"""Cascade, how U is read in two steps: a prefix U⁰ for all vectors, all of U for a shortlist (section 3.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from logt._internal.threads import split_range
from logt._internal.types import Array
from logt._internal.validation import check_fields, check_fraction, check_int
from logt.group_testing.codes import LANES, RANKS, Codes

_KEPT = 8  # prefixes of some codes: making one reads them all


@dataclass(frozen=True)
class Cascade:
    """Rank all vectors by U⁰, which carries the fraction p of each row's energy; re-rank the best R by all of U."""

    p: float = 0.7
    R: int = 1000

    def __post_init__(self) -> None:
        check_fields(self, p=check_fraction, R=check_int)


@dataclass(frozen=True)
class Prefix:
    """U⁰ of some codes.

    lengths: how many entries of each row; an empty array means all. row, starts, unit, weight: if they are few, a
    second copy in the layout that decodes one query fastest: rows by increasing length, sixteen interleaved
    (kernels.hpp).
    """

    lengths: Array
    row: Array
    starts: Array
    unit: Array
    weight: Array

    @classmethod
    def of(cls, codes: Codes, p: float) -> Prefix:
        """Return U⁰ of some codes for the fraction p of the energy; it is kept with the codes."""
        known = codes.cascade_cache.get(p)
        if known is None:
            if len(codes.cascade_cache) >= _KEPT:
                codes.cascade_cache.clear()
            known = codes.cascade_cache[p] = cls.from_lengths(codes, prefix_lengths(codes, p))
        return known

    @classmethod
    def from_lengths(cls, codes: Codes, lengths: Array) -> Prefix:
        """Return U⁰ of some codes; lengths: how many entries of each row."""
        if lengths.mean() > RANKS:
            return replace(FULL, lengths=lengths)
        groups = -(-len(codes) // LANES)
        row = np.zeros(groups * LANES, np.uint32)
        row[: len(codes)] = np.argsort(lengths, kind="stable")
        count = lengths[row].reshape(groups, LANES).astype(np.int64)
        count.ravel()[len(codes) :] = 0
        starts = np.concatenate([[0], np.cumsum(count.max(axis=1))])
        unit, weight = (np.zeros((starts[-1], LANES), matrix.dtype) for matrix in (codes.unit, codes.weight))
        for group in split_range(groups, 1024):
            mine, longest = count[group], count[group].max(axis=1)
            matrices = codes.matrices(row[group.start * LANES : group.stop * LANES])
            for rank in range(int(longest.max(initial=0))):
                here = longest > rank
                for copy, matrix in zip((unit, weight), matrices, strict=True):
                    column = matrix[:, rank].reshape(-1, LANES)[here]
                    copy[starts[:-1][group][here] + rank] = np.where(mine[here] > rank, column, 0)
        return cls(lengths, row, starts, unit.ravel(), weight.ravel())

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in (self.lengths, self.row, self.starts, self.unit, self.weight))


FULL = Prefix(*(np.empty(0, kind) for kind in (np.uint16, np.uint32, np.int64, np.uint16, np.int8)))
"""All of U."""


def prefix_lengths(codes: Codes, p: float) -> Array:
    """Return, for each row of some codes, the fewest entries that carry the fraction p of its energy Σu²."""
    lengths = np.empty(len(codes), np.uint16)
    for block in split_range(len(codes), 4096):
        energy = np.square(codes.matrices(block)[1].astype(np.float32)).cumsum(axis=1, dtype=np.float64)
        enough = energy >= p * energy[:, -1:] * (1 - 1e-12)
        lengths[block] = np.where(energy[:, -1] > 0, enough.argmax(axis=1) + 1, 0)
    return lengths

"""Codes, U by vector, in the order that the kernels read; and its prefixes U⁰."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from logt import _kernels
from logt._threads import spans
from logt._types import Array, Floats

RANKS, HEAD, LANES = 16, 64, 16
"""Codes keeps the ranks below HEAD in blocks of RANKS over all rows, the others row by row (kernels.hpp)."""

_KEPT_PREFIXES = 4  # values of p whose prefixes are remembered


@dataclass(frozen=True)
class Prefix:
    """U⁰ of some codes: how many entries of each row; an empty array stands for all.

    Where those are few, they are kept once more, in the order in which one query is decoded quickest: rows by
    rising length, sixteen side by side (kernels.hpp).
    """

    lengths: Array
    row: Array
    starts: Array
    unit: Array
    weight: Array

    @classmethod
    def of(cls, codes: Codes, lengths: Array) -> Prefix:
        if lengths.mean() > RANKS:
            return replace(ALL, lengths=lengths)
        groups = -(-len(codes) // LANES)
        row = np.zeros(groups * LANES, np.uint32)
        row[: len(codes)] = np.argsort(lengths, kind="stable")
        count = lengths[row].reshape(groups, LANES).astype(np.int64)
        count.ravel()[len(codes) :] = 0
        starts = np.concatenate([[0], np.cumsum(count.max(axis=1))])
        unit, weight = (np.zeros((starts[-1], LANES), matrix.dtype) for matrix in (codes.unit, codes.weight))
        for group in spans(groups, 1024):
            mine, longest = count[group], count[group].max(axis=1)
            matrices = codes.rows(row[group.start * LANES : group.stop * LANES])
            for rank in range(int(longest.max(initial=0))):
                here = longest > rank
                for copy, matrix in zip((unit, weight), matrices, strict=True):
                    column = matrix[:, rank].reshape(-1, LANES)[here]
                    copy[starts[:-1][group][here] + rank] = np.where(mine[here] > rank, column, 0)
        return cls(lengths, row, starts, unit.ravel(), weight.ravel())

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in (self.lengths, self.row, self.starts, self.unit, self.weight))


ALL = Prefix(*(np.empty(0, kind) for kind in (np.uint16, np.uint32, np.int64, np.uint16, np.int8)))
"""All of U."""


@dataclass(frozen=True)
class Codes:
    """U by vector: row i estimates scale_i · Σ_t weight[i, t] · c[unit[i, t]], entries by falling |weight|.

    `unit` and `weight` are flat, in the order that the kernels read (kernels.hpp). Rows with fewer entries than
    others end in zeros. With `inverse`, the measurements c are first solved for (GGᵀ)⁺c; the dense U = G⁺ that
    this stands for is never made.
    """

    unit: Array
    weight: Array
    scale: Floats
    inverse: bool = False
    _read: dict[float, Prefix] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, unit: Array, weight: Array, scale: Floats, *, inverse: bool = False) -> Codes:
        """From plain matrices (N, L)."""
        blocks = _blocks(unit.shape[1])
        units, weights = (np.concatenate([matrix[:, b].ravel() for b in blocks]) for matrix in (unit, weight))
        return cls(units, weights, scale, inverse)

    def __len__(self) -> int:
        return len(self.scale)

    @property
    def width(self) -> int:
        """L, the entries of each row."""
        return len(self.unit) // len(self)

    @property
    def nbytes(self) -> int:
        """With the prefixes in use."""
        prefixes = sum(prefix.nbytes for prefix in self._read.values())
        return self.unit.nbytes + self.weight.nbytes + self.scale.nbytes + prefixes

    def rows(self, rows: Array | slice = slice(None)) -> tuple[Array, Array]:
        """(unit, weight) of some rows as plain matrices."""
        return self._matrix(self.unit, rows), self._matrix(self.weight, rows)

    def _matrix(self, flat: Array, rows: Array | slice) -> Array:
        N = len(self)
        blocks = [flat[b.start * N : b.stop * N].reshape(N, -1) for b in _blocks(self.width)]
        return np.concatenate([block[rows] for block in blocks], axis=1)

    def take(self, rows: Array | slice) -> Codes:
        """Those of some rows."""
        return Codes.of(*self.rows(rows), self.scale[rows], inverse=self.inverse)

    def narrowed(self) -> tuple[Codes, Array]:
        """(the same over only the units that occur in it, numbered anew; which those are)."""
        used, unit = np.unique(self.unit, return_inverse=True)
        return replace(self, unit=unit.astype(self.unit.dtype), _read={}), used

    def prefix(self, p: float) -> Prefix:
        """U⁰: of each row the fewest entries that carry the part p of its energy Σu²; made once for each p."""
        known = self._read.get(p)
        if known is not None:
            return known
        made = Prefix.of(self, self._lengths(p))
        if len(self._read) >= _KEPT_PREFIXES:
            self._read.clear()
        self._read[p] = made
        return made

    def _lengths(self, p: float) -> Array:
        lengths = np.empty(len(self), np.uint16)
        for block in spans(len(self), 4096):
            energy = np.square(self.rows(block)[1].astype(np.float32)).cumsum(axis=1, dtype=np.float64)
            enough = energy >= p * energy[:, -1:] * (1 - 1e-12)
            lengths[block] = np.where(energy[:, -1] > 0, enough.argmax(axis=1) + 1, 0)
        return lengths

    def reconstructed(self, Y: Floats, rows: Array | slice = slice(None)) -> Floats:
        """X̂ = U Ŷ for some rows."""
        part = self.take(rows)
        X = np.empty((len(part), Y.shape[1]), np.float32)
        _kernels.reconstruct(part.unit, part.weight, Y, X)
        X *= part.scale[:, None]
        return X


def unit_type(count: int) -> type[np.uint16] | type[np.uint32]:
    """The smallest type that numbers so many units."""
    return np.uint16 if count <= 1 << 16 else np.uint32


def _blocks(width: int) -> list[slice]:
    """The ranks that lie side by side."""
    return spans(min(width, HEAD), RANKS) + [slice(HEAD, width)] * (width > HEAD)

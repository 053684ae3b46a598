"""Codes, the decoder matrix U by vector, in the memory layout that the kernels read."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from logt import _kernels
from logt._internal.threads import split_range
from logt._internal.types import Array, Floats

RANKS, HEAD, LANES = 16, 64, 16
"""Ranks below HEAD are stored in blocks of RANKS over all rows, the others row by row (kernels.hpp)."""


@dataclass(frozen=True)
class Codes:
    """U by vector: row i estimates scale_i · Σ_t weight[i, t] · c[unit[i, t]], entries by decreasing |weight|.

    unit, weight: flat, in the layout of the kernels; rows with fewer entries than others end in zeros. scale: of each
    row. inverse: the measurements c are first solved for (GGᵀ)⁺c; the dense U = G⁺ is never computed.
    """

    unit: Array
    weight: Array
    scale: Floats
    inverse: bool = False

    @classmethod
    def from_matrices(cls, unit: Array, weight: Array, scale: Floats, *, inverse: bool = False) -> Codes:
        """Build from plain (N, L) matrices."""
        blocks = _rank_blocks(unit.shape[1])
        units, weights = (np.concatenate([matrix[:, b].ravel() for b in blocks]) for matrix in (unit, weight))
        return cls(units, weights, scale, inverse)

    def __len__(self) -> int:
        return len(self.scale)

    @cached_property
    def cascade_cache(self) -> dict[float, Any]:
        """The prefixes U⁰ that searches have used, by the fraction of the energy (cascade.py)."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # without what is cached

    @property
    def width(self) -> int:
        """L, the entries of each row."""
        return len(self.unit) // len(self)

    @property
    def nbytes(self) -> int:
        return self.unit.nbytes + self.weight.nbytes + self.scale.nbytes

    def matrices(self, rows: Array | slice = slice(None)) -> tuple[Array, Array]:
        """Return (unit, weight) of some rows as plain matrices."""
        return self._matrix(self.unit, rows), self._matrix(self.weight, rows)

    def _matrix(self, flat: Array, rows: Array | slice) -> Array:
        N = len(self)
        blocks = [flat[b.start * N : b.stop * N].reshape(N, -1) for b in _rank_blocks(self.width)]
        return np.concatenate([block[rows] for block in blocks], axis=1)

    def take(self, rows: Array | slice) -> Codes:
        """Return the codes of some rows."""
        return Codes.from_matrices(*self.matrices(rows), self.scale[rows], inverse=self.inverse)

    def renumbered(self) -> tuple[Codes, Array]:
        """Return (codes over only the units that occur in them, the old numbers of those units)."""
        used, unit = np.unique(self.unit, return_inverse=True)
        return replace(self, unit=unit.astype(self.unit.dtype)), used

    def reconstruct(self, Y: Floats, rows: Array | slice = slice(None)) -> Floats:
        """Return X̂ = U Ŷ for some rows; Y: the memory vectors Ŷ."""
        part = self.take(rows)
        X = np.empty((len(part), Y.shape[1]), np.float32)
        _kernels.reconstruct(part.unit, part.weight, Y, X)
        X *= part.scale[:, None]
        return X


def _rank_blocks(width: int) -> list[slice]:
    """Return the ranks that are stored together."""
    return split_range(min(width, HEAD), RANKS) + [slice(HEAD, width)] * (width > HEAD)

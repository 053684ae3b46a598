"""The sparse codes of vectors, Z -> (units, weights): the nearest memory vector, then orthogonal matching pursuit."""

import numpy as np
from numpy.typing import NDArray

from logt import _kernels
from logt._internal.nearest import UnitFinder
from logt._internal.threads import Workers
from logt._internal.types import Array, Floats

_CANDIDATES = 32  # memory vectors that entries are chosen from, at least
_GRAM_BYTES = 1 << 28  # of the memory vectors' products, up to which they are computed once for a large batch


class NearestPursuit:
    """Encodes rotated vectors. Y: the memory vectors. finder: finds those near a vector. rows: how many follow."""

    def __init__(self, Y: Floats, finder: UnitFinder, entries: int, rows: int, workers: Workers):
        self._Y, self._entries = Y, entries
        self._finder, norms = finder.grouped(rows, workers), finder.norm
        self._rescale = (1 / np.where(norms > 0, norms, 1)).astype(np.float32)
        self._capacity = max(_CANDIDATES, 4 * entries)
        bulk = rows >= len(Y) // 4 and 4 * len(Y) ** 2 <= _GRAM_BYTES
        self._gram = self._gram_of(slice(None)) if bulk else None

    def _gram_of(self, units: Array | slice) -> Floats:
        """Return the inner products of some memory vectors, scaled to norm 1."""
        gram: Floats = (atoms := self._Y[units] * self._rescale[units][:, None]) @ atoms.T
        return gram

    def __call__(self, Z: Floats) -> tuple[NDArray[np.int64], Floats]:
        """Return (units, weights), (rows, entries) each; the first is the nearest in Euclidean distance."""
        found = self._finder.find(Z, self._capacity)
        unit = np.zeros((len(Z), self._entries), np.uint32)
        weight = np.zeros(unit.shape, np.float32)
        lengths = np.array([self._entries], np.int32)
        support, first = found.unit.astype(np.int32), found.nearest.astype(np.int32)
        if self._gram is not None:
            _kernels.omp_path(
                *(self._gram, found.product, support, found.counts, first, self._rescale, lengths, unit, weight)
            )
            return unit.astype(np.int64), weight
        every = np.arange(support.shape[1], dtype=np.int32)[None]
        for i, mine in enumerate(support):
            one = slice(i, i + 1)
            position = np.flatnonzero(mine == first[i])[:1].astype(np.int32)
            gram, rescale = self._gram_of(mine), self._rescale[mine]
            _kernels.omp_path(
                *(
                    gram,
                    found.product[one],
                    every,
                    found.counts[one],
                    position,
                    rescale,
                    lengths,
                    unit[one],
                    weight[one],
                )
            )
            unit[i] = mine[unit[i]]
        return unit.astype(np.int64), weight

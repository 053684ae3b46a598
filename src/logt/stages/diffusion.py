"""Diffusion, (graph, scores of a query) -> ranking: vectors near good results rise, as in Iscen et al. (2017).

A score spreads along the edges of the neighbor graph: f = y + α S f, where y are the scores of the plain search and S
the weights of the edges, normalized by degree. What counts as similar comes from the data: the background b is what
the last stored neighbor of a vector typically has, and only the part of a similarity above it is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logt import _kernels
from logt._types import Array, Floats, Ids, Mask
from logt._validation import check_float, check_int
from logt.errors import InvalidInputError

EXPONENT = 3
"""Similarities above the background are raised to it, as usual for diffusion and query expansion."""

DUPLICATE = 0.95
"""Vectors at least this similar are copies."""

_STEPS = 200  # of conjugate gradients, at most
_PRECISION = 1e-6  # of the residual, relative to y
_LEAST_SCALE = 0.1  # of 1 - b: the smallest local scale


class Transition(NamedTuple):
    """S as CSR, and the background b that it was made with.

    starts: the edges of row i are starts[i]:starts[i + 1]. columns: the other end of each edge. weights: of the
    edges. background: b.
    """

    starts: Ids
    columns: NDArray[np.int32]
    weights: Floats
    background: float


def background(neighbors: Array, similarity: Floats) -> float:
    """Return the median similarity of the last neighbor of each vector, from 0 to 1; 0 if there are none.

    Vectors with short lists, or with duplicates only, are left out: they tell nothing about unrelated vectors.
    neighbors, similarity: (N, k), nearest first, -1 for no neighbor.
    """
    counts = np.count_nonzero(neighbors >= 0, axis=1)
    rows = np.flatnonzero((counts > 0) & (4 * counts >= 3 * counts.max(initial=0)))
    last = similarity[rows, counts[rows] - 1]
    last = last[last < DUPLICATE]
    return max(float(np.median(last)), 0.0) if len(last) else 0.0


def transition(neighbors: NDArray[np.int32], similarity: Floats, first: int) -> Transition:
    """Return S: the edges of pairs that are among the first neighbors of each other, weighted and normalized.

    An edge weighs ((s_ij − b) / √(r_i r_j))³. The local scale r_i is that of the nearest neighbor of i, s − b. A
    vector whose neighbors are all little above the background has a degree below 1; it counts as 1, so that such a
    vector takes little from its neighbors, and the plain score decides.
    neighbors: (N, k), nearest first, -1 for none. similarity: (N, k). first: neighbors per vector that are used.
    """
    b = background(neighbors, similarity)
    lists = np.ascontiguousarray(neighbors[:, :first]), np.ascontiguousarray(similarity[:, :first])
    starts = np.zeros(len(neighbors) + 1, np.int64)
    _kernels.count_mutual(*lists, b, starts[1:])
    np.cumsum(starts, out=starts)
    columns, weights = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)
    _kernels.fill_mutual(*lists, b, _LEAST_SCALE * (1 - b), starts, columns, weights)
    return Transition(starts, columns, weights, b)


@dataclass(frozen=True)
class Diffusion:
    """Re-rank by diffusion on the neighbor graph of the index.

    candidates: results of the plain search that the diffusion starts from. alpha: how much of a score spreads, from 0
    (the plain ranking) to below 1. neighbors: an edge connects two vectors that are among this many nearest neighbors
    of each other. hops: how many edges away from a candidate vectors can be found. nodes: the most vectors that one
    query spreads to.
    """

    candidates: int = 50
    alpha: float = 0.9
    neighbors: int = 30
    hops: int = 2
    nodes: int = 2000

    def __post_init__(self) -> None:
        for name in ("candidates", "neighbors", "nodes"):
            object.__setattr__(self, name, check_int(name, getattr(self, name)))
        object.__setattr__(self, "hops", check_int("hops", self.hops, least=0))
        alpha = check_float("alpha", self.alpha)
        if not 0 <= alpha < 1:
            raise InvalidInputError(f"alpha must be from 0 to below 1, got {self.alpha!r}")
        object.__setattr__(self, "alpha", alpha)

    def results(self, k: int) -> int:
        """Return how many results of the plain search k results need."""
        return max(k, self.candidates) if self.alpha else k

    def __call__(
        self, S: Transition, rows: Ids, scores: Floats, visible: Mask | None = None
    ) -> tuple[Ids, NDArray[np.float64]]:
        """Return (vectors, their scores f), for one query; the first vectors are the given ones.

        rows: the results of the plain search, best first; -1 for vectors that are not in the graph. scores: their
        cosines. visible: the rows that can be found, all by default.
        """
        above = np.maximum(scores.astype(np.float64) - S.background, 0) / (1 - S.background)
        y = above**EXPONENT
        inside = np.flatnonzero((rows >= 0) & (y > 0))
        f = y.copy()
        if not len(inside) or not self.alpha:
            return rows, f
        near, spread = self._spread(S, rows[inside], y[inside], visible)
        f[inside] = spread[: len(inside)]
        outside = np.flatnonzero((rows < 0) & (y > 0))
        if len(outside):  # they gain as much as the linked result with the nearest score
            closest = np.abs(scores[outside, None] - scores[None, inside]).argmin(axis=1)
            f[outside] *= f[inside][closest] / y[inside][closest]
        found, gained = near[len(inside) :], spread[len(inside) :]
        late = np.flatnonzero((rows >= 0) & (y == 0))  # results below the background; some were reached
        _, at, which = np.intersect1d(rows[late], found, return_indices=True)
        f[late[at]] = gained[which]
        return np.concatenate([rows, np.delete(found, which)]), np.concatenate([f, np.delete(gained, which)])

    def _spread(
        self, S: Transition, rows: Ids, y: NDArray[np.float64], visible: Mask | None
    ) -> tuple[Ids, NDArray[np.float64]]:
        """Return f = (I − α S)⁻¹ y on the rows and those that are near them: (rows, those of y first; f)."""
        most = max(self.nodes, len(rows))
        near, f = np.empty(most, np.int64), np.empty(most)
        seen = np.empty(0, bool) if visible is None else visible
        how = self.alpha, self.hops, self.nodes, _STEPS, _PRECISION
        count = _kernels.spread(S.starts, S.columns, S.weights, rows, y, seen, *how, near, f)
        return near[:count], f[:count]

"""Diffusion, (graph, scores of a query) -> ranking: vectors near good results rise, as in Iscen et al. (2017).

A score spreads along the edges of the neighbor graph: f = y + α S f, where y are the scores of the plain search and S
the weights of the edges, normalized by degree. What counts as similar comes from the data: the background b is what
the last stored neighbor of a vector typically has, and only the part of a similarity above it is used.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logt import _kernels
from logt._internal.types import Floats, Ids, Mask
from logt._internal.validation import check_count, check_fields, check_float, check_int
from logt.errors import InvalidInputError
from logt.graph.stored_graph import StoredGraph

EXPONENT = 3
"""Similarities above the background are raised to it, as usual for diffusion and query expansion."""

DUPLICATE = 0.95
"""Vectors at least this similar are copies."""

STEPS = 200
"""Steps of conjugate gradients, at most."""

PRECISION = 1e-6
"""Of their residual, relative to y."""

_LEAST_SCALE = 0.1  # of 1 - b: the smallest local scale


class Transition(NamedTuple):
    """S, as the edges of a graph and what their weights are made of; and the background b.

    mutual: (N, bytes), bit a of a row is set if there is an edge to its a-th neighbor. gain: of each row. cube:
    (s − b)³ of each level of similarity; S_ij = (s_ij − b)³ gain_i gain_j, with the smaller s of the two lists.
    """

    graph: StoredGraph
    mutual: NDArray[np.uint8]
    gain: Floats
    cube: NDArray[np.float64]
    background: float

    @property
    def nbytes(self) -> int:
        """The bytes beyond those of the graph."""
        return self.mutual.nbytes + self.gain.nbytes


def background(graph: StoredGraph) -> float:
    """Return the median similarity of the last neighbor of each vector, from 0 to 1; 0 if there are none.

    Vectors with short lists, or with duplicates only, are left out: they tell nothing about unrelated vectors.
    """
    counts = graph.counts
    rows = np.flatnonzero((counts > 0) & (4 * counts >= 3 * counts.max(initial=0)))
    last = graph.values[graph.level[rows, counts[rows] - 1]]
    last = last[last < DUPLICATE]
    return max(float(np.median(last)), 0.0) if len(last) else 0.0


def transition(graph: StoredGraph, first: int) -> Transition:
    """Return S: the edges of pairs that are among the first neighbors of each other, weighted and normalized.

    An edge weighs ((s_ij − b) / √(r_i r_j))³. The local scale r_i is that of the nearest neighbor of i, s − b. A
    vector whose neighbors are all little above the background has a degree below 1; it counts as 1, so that such a
    vector takes little from its neighbors, and the plain score decides. S is kept with the graph.
    graph: with all neighbors; the background comes from the last ones. first: neighbors per vector that are used.
    """
    first = min(first, graph.k)
    known: Transition | None = graph.transitions.get(first)
    if known is None:
        b = background(graph)
        above = graph.values.astype(np.float64) - b
        mutual, gain = np.empty((len(graph), -(-first // 8)), np.uint8), np.empty(len(graph), np.float32)
        stored = graph.low, graph.high, graph.level
        _kernels.find_mutual(*stored, first, above, _LEAST_SCALE * (1 - b), mutual, gain)
        known = graph.transitions[first] = Transition(graph, mutual, gain, above**EXPONENT, b)
    return known


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
        check_fields(self, candidates=check_int, neighbors=check_int, nodes=check_int)
        check_fields(self, hops=check_count, alpha=check_float)
        if not 0 <= self.alpha < 1:
            raise InvalidInputError(f"alpha must be from 0 to below 1, got {self.alpha!r}")

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
        if not len(late):
            return np.concatenate([rows, found]), np.concatenate([f, gained])
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
        how = self.alpha, self.hops, self.nodes, STEPS, PRECISION
        edges = S.graph.low, S.graph.high, S.graph.level, S.mutual, S.gain, S.cube
        count = _kernels.spread(*edges, rows, y, seen, *how, near, f)
        return near[:count], f[:count]

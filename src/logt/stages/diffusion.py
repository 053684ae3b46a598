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

    Vectors with duplicates only are left out: they say nothing about unrelated vectors. neighbors, similarity:
    (N, k), nearest first, -1 for no neighbor.
    """
    if not neighbors.shape[1]:
        return 0.0
    last = similarity[(neighbors[:, -1] >= 0) & (similarity[:, -1] < DUPLICATE), -1]
    return max(float(np.median(last)), 0.0) if len(last) else 0.0


def transition(neighbors: NDArray[np.int32], similarity: Floats, first: int) -> Transition:
    """Return S: the edges of pairs that are among the first neighbors of each other, weighted and normalized.

    An edge weighs ((s_ij − b) / √(r_i r_j))³. The local scale r_i is that of the nearest neighbor of i, s − b. A
    vector whose neighbors are all little above the background has a degree below 1; it counts as 1, so that such a
    vector takes little from its neighbors, and the plain score decides.
    neighbors: (N, k), nearest first, -1 for none. similarity: (N, k). first: neighbors per vector that are used.
    """
    N, b = len(neighbors), background(neighbors, similarity)
    nearest = neighbors[:, :first]
    above = np.maximum(similarity[:, :first] - np.float32(b), 0)
    used = (nearest >= 0) & (above > 0)
    row = np.repeat(np.arange(N, dtype=np.int64), used.sum(axis=1))
    column, value = nearest[used].astype(np.int64), above[used].astype(np.float64)
    row, column, value = _mutual(row, column, value, N)
    scale = np.maximum(above[:, :1].max(axis=1, initial=0), _LEAST_SCALE * (1 - b))
    weight = (value / np.sqrt(scale[row] * scale[column])) ** EXPONENT
    degree = np.bincount(row, weight, minlength=N)
    root = np.sqrt(np.maximum(degree, 1))
    starts = np.searchsorted(row, np.arange(N + 1)).astype(np.int64)
    normalized = (weight / (root[row] * root[column])).astype(np.float32)
    return Transition(starts, column.astype(np.int32), normalized, b)


def _mutual(row: Array, column: Array, value: Array, N: int) -> tuple[Array, Array, Array]:
    """Return the edges whose reverse is there too, by row and column, with the smaller of the two values."""
    key, reverse = row * N + column, column * N + row
    order, back = np.argsort(key, kind="stable"), np.argsort(reverse, kind="stable")
    key, there = key[order], reverse[back]
    at = np.minimum(np.searchsorted(there, key), max(len(there) - 1, 0))
    both = there[at] == key if len(there) else np.zeros(0, bool)
    smaller = np.minimum(value[order], value[back][at]) if len(there) else value
    return key[both] // N, key[both] % N, smaller[both]


@dataclass(frozen=True)
class Diffusion:
    """Re-rank by diffusion on the neighbor graph of the index.

    candidates: results of the plain search that the diffusion starts from. alpha: how much of a score spreads, from 0
    (the plain ranking) to below 1. neighbors: an edge connects two vectors that are among this many nearest neighbors
    of each other. hops: how many edges away from a candidate vectors can be found. nodes: the most vectors that one
    query spreads to.
    """

    candidates: int = 200
    alpha: float = 0.9
    neighbors: int = 30
    hops: int = 2
    nodes: int = 3000

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
        near = self._reach(S, rows[inside], visible)
        start = np.zeros(len(near))
        start[: len(inside)] = y[inside]
        spread = _solve(_edges(S, near), start, self.alpha)
        f[inside] = spread[: len(inside)]
        outside = np.flatnonzero((rows < 0) & (y > 0))
        if len(outside):  # they gain as much as the linked result with the nearest score
            closest = np.abs(scores[outside, None] - scores[None, inside]).argmin(axis=1)
            f[outside] *= f[inside][closest] / y[inside][closest]
        late = {int(row): at for at, row in enumerate(rows) if row >= 0 and not y[at]}
        found = near[len(inside) :]
        new = np.ones(len(found), bool)
        for at, row in enumerate(found.tolist()):
            if row in late:  # a result below the background, which was reached
                f[late[row]], new[at] = spread[len(inside) + at], False
        return np.concatenate([rows, found[new]]), np.concatenate([f, spread[len(inside) :][new]])

    def _reach(self, S: Transition, rows: Ids, visible: Mask | None) -> Ids:
        """Return the rows, and those that are at most `hops` edges away from them, nearest first."""
        near = front = rows
        for _ in range(self.hops):
            edges = _gather(S, front)[0]
            fresh, which = np.unique(S.columns[edges].astype(np.int64), return_inverse=True)
            strength = np.bincount(which, S.weights[edges], minlength=len(fresh))
            keep = ~np.isin(fresh, near) if visible is None else ~np.isin(fresh, near) & visible[fresh]
            fresh, strength = fresh[keep], strength[keep]
            room = max(0, self.nodes - len(near))
            front = fresh if len(fresh) <= room else fresh[np.argsort(-strength, kind="stable")[:room]]
            if not len(front):
                break
            near = np.concatenate([near, front])
        return near


def _gather(S: Transition, rows: Ids) -> tuple[Ids, Ids]:
    """Return (the positions of the edges of some rows, how many edges each has)."""
    first = S.starts[rows]
    counts = S.starts[rows + 1] - first
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(first - ends + counts, counts), counts


class _Edges(NamedTuple):
    """Edges among a few nodes."""

    row: Ids
    column: Ids
    weight: NDArray[np.float64]
    nodes: int

    def __matmul__(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        sums = np.bincount(self.row, self.weight * x[self.column], minlength=self.nodes)
        return sums.astype(np.float64, copy=False)  # without edges, bincount returns integers


def _edges(S: Transition, nodes: Ids) -> _Edges:
    """Return the edges of S whose ends are both among the nodes."""
    at, counts = _gather(S, nodes)
    order = np.argsort(nodes)
    sorted_nodes, columns = nodes[order], S.columns[at]
    place = np.minimum(np.searchsorted(sorted_nodes, columns), len(nodes) - 1)
    inside = sorted_nodes[place] == columns
    row = np.repeat(np.arange(len(nodes)), counts)[inside]
    return _Edges(row, order[place[inside]], S.weights[at[inside]].astype(np.float64), len(nodes))


def _solve(S: _Edges, y: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    """Return f = (I − α S)⁻¹ y by conjugate gradients; S is symmetric and its eigenvalues are at most 1."""
    f, r = np.zeros_like(y), y.copy()
    p, square = r.copy(), float(r @ r)
    enough = _PRECISION**2 * square
    for _ in range(_STEPS):
        if square <= enough:
            break
        Ap = p - alpha * (S @ p)
        step = square / float(p @ Ap)
        f += step * p
        r -= step * Ap
        before, square = square, float(r @ r)
        p = r + square / before * p
    return np.maximum(f, 0)

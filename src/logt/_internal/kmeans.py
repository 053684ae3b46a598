"""K-means, X -> (the nearest of M centroids of each row, the means of these rows): spherical or Euclidean.

A row is compared with all centroids in some rounds, more of them at first, when centroids move most. In between, it
is compared with those that were near.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from logt._internal.nearest import UnitFinder
from logt._internal.threads import SERIAL, Workers, split_range
from logt._internal.types import Array, Floats, Ids, Ints

_ROWS = 1024  # vectors compared with centroids together
_SEARCHED = (0, 1, 3, 6)  # rounds in which a vector is compared with all centroids: some have moved far, or are new
_NEAR = 32  # centroids that it is compared with in other rounds


def kmeans(
    X: Floats,
    M: int,
    rng: np.random.Generator,
    workers: Workers = SERIAL,
    *,
    rounds: int = 8,
    sample: int = 32,
    spherical: bool = True,
) -> Ints:
    """Return the nearest of M centroids of each row; they are trained on a random sample.

    rounds: of training. sample: vectors per centroid that it is trained on. spherical: compare directions, with
    centroids of norm 1.
    """
    N = len(X)
    S = X if sample * M >= N else X[np.sort(rng.choice(N, sample * M, replace=False))]
    centroids = S[rng.choice(len(S), M, replace=False)]
    silent = Workers(workers.threads)  # progress is reported per round
    near = np.empty((len(S), min(_NEAR, M)), np.uint32)
    for done in range(rounds + 1):
        finder = UnitFinder(centroids, unit_norm=spherical)
        label, similarity = _nearest(S, finder, near, silent, search=done in _SEARCHED)
        if done == rounds:
            break
        centroids = group_means(S, label, M, silent, normalize=spherical)
        empty = np.flatnonzero(np.bincount(label, minlength=M) == 0)
        centroids[empty] = S[np.argsort(similarity, kind="stable")[: len(empty)]]  # the worst represented
        workers.report("k-means", done + 1, rounds)
    return label if S is X else _nearest(X, finder, None, workers, search=True)[0]


def _nearest(
    X: Floats, finder: UnitFinder, near: Array | None, workers: Workers, *, search: bool
) -> tuple[Ints, Floats]:
    """Return (the nearest centroid of each row, how similar it is).

    near: centroids near each row, (rows, k). With `search`, they are searched for; otherwise only they are compared.
    """
    nearest, similarity = np.empty(len(X), np.int32), np.empty(len(X), np.float32)
    searched = finder.grouped(len(X), workers) if search else finder

    def fill(rows: slice) -> None:
        V = X[rows]
        if near is None:
            found = searched.find(V)
        elif search:
            found = searched.find(V, near.shape[1])
            near[rows] = found.unit
        else:
            found = finder.find_among(V, near[rows])
        nearest[rows], similarity[rows] = found.nearest, found.value
        if not finder.unit_norm:
            similarity[rows] -= np.square(V).sum(axis=1) / 2

    workers.map(fill, split_range(len(X), _ROWS))
    return nearest, similarity


def members(groups: Ints, count: int) -> tuple[Ids, Ints]:
    """Return (offsets, rows): group j holds rows[offsets[j]:offsets[j + 1]], in increasing order.

    groups: (rows, m), the groups of each row. count: of groups.
    """
    flat = groups.ravel()
    by_group = np.argsort(flat, kind="stable")
    sizes = np.bincount(flat, minlength=count)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return offsets, (by_group // groups.shape[1]).astype(np.int32)


def group_means(X: Floats, label: Ints, count: int, workers: Workers = SERIAL, *, normalize: bool) -> Floats:
    """Return the mean of the rows with each label, of norm 1 if `normalize`; 0 if there are none."""
    return for_each_group(
        normalized_sum if normalize else _mean, X, *members(label[:, None], count), workers, "memory vectors"
    )


def for_each_group(
    function: Callable[[Floats], Array], X: Floats, offsets: Ids, rows: Ints, workers: Workers, what: Any = None
) -> Floats:
    """Return one vector per group: `function` of its members. offsets, rows: as `members` returns them."""
    Y = np.empty((len(offsets) - 1, X.shape[1]), np.float32)

    def fill(block: slice) -> None:
        for j in range(block.start, block.stop):
            Y[j] = function(X[rows[offsets[j] : offsets[j + 1]]])

    workers.map(fill, split_range(len(Y), 64), what)
    return Y


def normalized_sum(V: Floats) -> Array:
    """Return the sum of the rows, divided by its norm."""
    total: Array = V.sum(axis=0, dtype=np.float64)
    total /= max(float(np.linalg.norm(total)), 1e-12)
    return total


def _mean(V: Floats) -> Array:
    total: Array = V.sum(axis=0, dtype=np.float64)
    return total / max(len(V), 1)

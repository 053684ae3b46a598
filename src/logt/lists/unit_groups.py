"""Groups of units: a search compares a query with the groups first, and then with the units of the best ones.

A group is to its units what a unit is to its vectors: it has a memory vector, which is their mean.
"""

import numpy as np

from logt._internal.kmeans import kmeans
from logt._internal.types import Floats, Ids

MIN_GROUPED = 256
"""Of fewer units, a search compares a query with all."""

_BEST, _FOUND = 4, 0.98  # lists that should be found, and the fraction of them that is


def group_units(Y: Floats) -> tuple[Ids, Ids]:
    """Return (an order of memory vectors by group, where each group starts in it); no groups of few units."""
    units = len(Y)
    if units < MIN_GROUPED:
        return np.arange(units), np.zeros(1, np.int64)
    label = kmeans(Y, round(2 * units**0.5), np.random.default_rng(0))
    sizes = np.bincount(label)
    return np.argsort(label, kind="stable"), np.concatenate([[0], np.cumsum(sizes[sizes > 0])])


def units_to_compare(lists: Floats, groups: Floats, starts: Ids) -> int:
    """Return how many units of the best groups hold the best lists, nearly always.

    lists, groups: scores of all lists and of all groups, one row per query.
    """
    best = np.argpartition(lists, -_BEST, axis=1)[:, -_BEST:]
    order = np.argsort(-groups, axis=1)
    compared = np.empty_like(order)
    np.put_along_axis(compared, order, np.cumsum(np.diff(starts)[order], axis=1), axis=1)
    needed = np.take_along_axis(compared, np.searchsorted(starts, best, side="right") - 1, axis=1)
    return int(np.quantile(needed, _FOUND))


def group_vectors(means: Floats, bias: Floats, starts: Ids) -> tuple[Floats, Floats]:
    """Return (the mean of each group, its bias).

    means, bias: of the units, so that 2·q·μ + bias is the score of a list. The same sum for a group is its mean over
    the units, plus half of the mean squared distance of their μ from that of the group: about that of the best.
    """
    sizes = np.diff(starts).astype(np.float32)
    groups = np.add.reduceat(means, starts[:-1], axis=0) / sizes[:, None]
    spread = np.add.reduceat(bias + np.square(means).sum(axis=1) / 2, starts[:-1]) / sizes
    return groups.astype(np.float32), (spread - np.square(groups).sum(axis=1) / 2).astype(np.float32)

"""Groups of units: a search compares a query with the groups first, and then with the units of the best ones.

A group is to its units what a unit is to its vectors: it has a memory vector, which is their mean.
"""

from __future__ import annotations

import numpy as np

from logt._internal.kmeans import kmeans
from logt._internal.types import Floats, Ids

MIN_GROUPED = 256
"""Of fewer units, a search compares a query with all."""


def group_units(Y: Floats) -> tuple[Ids, Ids]:
    """Return (an order of memory vectors by group, where each group starts in it); no groups of few units."""
    units = len(Y)
    if units < MIN_GROUPED:
        return np.arange(units), np.zeros(1, np.int64)
    label = kmeans(Y, round(2 * units**0.5), np.random.default_rng(0))
    sizes = np.bincount(label)
    return np.argsort(label, kind="stable"), np.concatenate([[0], np.cumsum(sizes[sizes > 0])])


def group_vectors(means: Floats, bias: Floats, starts: Ids) -> tuple[Floats, Floats]:
    """Return (the mean of each group, its bias).

    means, bias: of the units, so that 2·q·μ + bias is the score of a list. The same sum for a group is its mean over
    the units, plus half of the mean squared distance of their μ from that of the group: about that of the best.
    """
    sizes = np.diff(starts).astype(np.float32)
    groups = np.add.reduceat(means, starts[:-1], axis=0) / sizes[:, None]
    spread = np.add.reduceat(bias + np.square(means).sum(axis=1) / 2, starts[:-1]) / sizes
    return groups.astype(np.float32), (spread - np.square(groups).sum(axis=1) / 2).astype(np.float32)

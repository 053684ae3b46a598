"""Regions, segments -> lists that are near each other: the vectors of each region are linked by one worker.

Next to the lists of a region, a worker reads the nearest of the others, so that vectors at the border of a region
have their neighbors on both sides.
"""

from collections.abc import Sequence

import numpy as np

from logt._internal.types import Floats, Ids, Mask
from logt._internal.validation import normalize_rows, row_norms
from logt.lists.codec import Codec
from logt.lists.segment import ListSegment, merge_segments

BORDER = 1.0
"""Vectors of other lists that are read with those of a region, at most, as a part of these."""

_STEPS = 16  # in which two halves settle


def read_region(segments: Sequence[ListSegment], number: int, count: int) -> tuple[ListSegment, Mask]:
    """Return (one segment of what is read to link a region, which of its rows are in the region).

    segments: all of one codec, without removals. number: of the region, among `count` of about as many vectors each.
    """
    codec = segments[0].codec
    lists = [_lists_of(segment) for segment in segments]
    sizes: Ids = np.sum([np.bincount(mine, minlength=codec.units) for mine in lists], axis=0)
    used = np.flatnonzero(sizes)
    regions = _split(codec.memory_vectors[used], sizes[used].astype(np.float64), min(count, len(used)))
    own = np.zeros(codec.units, bool)
    if number < len(regions):  # otherwise there are fewer lists
        own[used[regions[number]]] = True
    read = own | _border(codec, sizes, own)
    part = merge_segments(segments, [np.flatnonzero(read[mine]) for mine in lists])
    return part, own[_lists_of(part)]


def _lists_of(segment: ListSegment) -> Ids:
    """Return the list of each row; in a small segment, the one that it would be in."""
    lists: Ids = np.empty(len(segment), np.int64)
    sizes = np.diff(segment.starts)
    lists[segment.row] = segment.unit[0] if segment.flat else np.repeat(np.arange(len(sizes)), sizes)
    return lists


def _border(codec: Codec, sizes: Ids, own: Mask) -> Mask:
    """Return the lists that are nearest to some others. sizes: the vectors of each list."""
    border = np.zeros(codec.units, bool)
    if own.any():
        Y = normalize_rows(codec.memory_vectors, row_norms(codec.memory_vectors))
        others = np.flatnonzero(~own & (sizes > 0))
        others = others[np.argsort(-(Y[others] @ Y[own].T).max(axis=1), kind="stable")]
        border[others[np.cumsum(sizes[others]) <= BORDER * sizes[own].sum()]] = True
    return border


def _split(Y: Floats, weight: Floats, count: int) -> list[Ids]:
    """Return the rows of Y of each of `count` regions, of about equal weight."""
    if count < 2:
        return [np.arange(len(Y))]
    first = count // 2
    low, high = _halves(Y, weight, first / count, first, count - first)
    return [
        *(low[part] for part in _split(Y[low], weight[low], first)),
        *(high[part] for part in _split(Y[high], weight[high], count - first)),
    ]


def _halves(Y: Floats, weight: Floats, share: float, least: int, least_other: int) -> tuple[Ids, Ids]:
    """Divide rows along the direction from one half to the other. share: of the weight, in the first half.

    least, least_other: rows of each half, at least.
    """
    V = Y - np.average(Y, axis=0, weights=weight)
    along = V[np.argmax(np.square(V).sum(axis=1))]
    for _ in range(_STEPS):
        order = np.argsort(V @ along, kind="stable")
        total = np.cumsum(weight[order])
        cut = int(np.clip(np.searchsorted(total, share * total[-1]), least, len(order) - least_other))
        low, high = order[:cut], order[cut:]
        along = np.average(V[high], axis=0, weights=weight[high]) - np.average(V[low], axis=0, weights=weight[low])
    return low, high

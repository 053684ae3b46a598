"""The nearest neighbors of every vector, snapshot -> (ids, neighbors, similarities), from the codes alone.

The decoded vectors are kept as int8, list by list. Each vector is compared with those of the lists it is nearest to.
Vectors of one block are neighbors themselves and share most of these lists, so that this is a product of two small
matrices per list.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logt import _kernels
from logt._threads import Workers, split_range
from logt._types import Array, Floats, Ids
from logt._validation import normalize_rows, row_norms
from logt.engine.list_segment import ListSegment
from logt.engine.neighbor_graph import Neighbors
from logt.engine.snapshot import Snapshot
from logt.stages.kmeans import KMeans

EXHAUSTIVE = 4096
"""Up to this many vectors, all pairs are compared; each vector is compared with about as many at least."""

_ROWS = 1024  # vectors decoded together
_BLOCK = 1 << 20  # vectors times lists: so many are compared together
_FIRST = 4  # lists that are read first; of the others, only what is nearer than their best k
_PROBE = 0.75  # of M lists, each vector is compared with those of M**0.75


def nearest_neighbors(snapshot: Snapshot, dim: int, k: int, workers: Workers) -> Neighbors:
    """Return the k nearest neighbors of each live vector, by the cosine of the decoded vectors."""
    return _by_id(*_compare_all(snapshot, dim, k, workers))


def _compare_all(snapshot: Snapshot, dim: int, k: int, workers: Workers) -> tuple[Ids, NDArray[np.int32], Floats]:
    """Return (ids, neighbors, similarities) in list order. The decoded vectors are freed when this returns."""
    vectors = _Vectors.decode(snapshot, dim, workers)
    count = len(vectors.ids)
    k = min(k, max(count - 1, 0))
    found = np.full((count, k), -1, np.int32)
    similarity = np.zeros((count, k), np.float32)
    if k:
        centers = vectors.centers(workers)

        def fill(rows: slice) -> None:
            vectors.compare(rows, centers, found[rows], similarity[rows])

        workers.map(fill, split_range(count, max(128, _BLOCK // len(centers))), "linking")
    return vectors.ids, found, similarity


@dataclass(frozen=True, eq=False)
class _Vectors:
    """Unit vectors as int8, in list order; list j is starts[j]:starts[j + 1]."""

    ids: Ids
    codes: NDArray[np.int8]
    scale: Floats
    starts: Ids

    @classmethod
    def decode(cls, snapshot: Snapshot, dim: int, workers: Workers) -> _Vectors:
        count = len(snapshot)
        codes, scale = np.empty((count, dim), np.int8), np.empty(count, np.float32)
        ids, sizes, first = [np.empty(0, np.int64)], [np.zeros(1, np.int64)], 0
        for segment in snapshot.segments:
            rows, lists = _in_list_order(segment, count)
            mine = slice(first, first + len(rows))
            _decode(segment, rows, codes[mine], scale[mine], workers)
            if lists is None:
                order, lists = _cluster(codes[mine], scale[mine], workers)
                codes[mine], scale[mine], rows = codes[mine][order], scale[mine][order], rows[order]
            ids.append(segment.ids[rows])
            sizes.append(lists)
            first = mine.stop
        together = np.concatenate(sizes) if count > EXHAUSTIVE else np.array([0, count])
        together = np.concatenate([[0], together[together > 0]])
        return cls(np.concatenate(ids), codes, scale, np.cumsum(together))

    def centers(self, workers: Workers) -> Floats:
        """Return the direction from the mean of all vectors to the mean of each list."""
        means = np.stack(workers.map(self._mean, range(len(self.starts) - 1)))
        sizes = np.diff(self.starts)
        means -= (sizes @ means / sizes.sum()).astype(np.float32)
        return normalize_rows(means, np.maximum(row_norms(means), 1e-30))

    def _rows(self, rows: Any) -> Floats:
        decoded: Floats = self.codes[rows] * self.scale[rows, None]
        return decoded

    def _mean(self, j: int) -> Floats:
        mean: Floats = self._rows(slice(self.starts[j], self.starts[j + 1])).mean(axis=0)
        return mean

    def compare(self, rows: slice, centers: Floats, found: NDArray[np.int32], similarity: Floats) -> None:
        """Write the nearest neighbors of some vectors among those of the lists that each is nearest to."""
        M, count = len(centers), rows.stop - rows.start
        wanted = min(M, int(np.ceil(max(M**_PROBE, EXHAUSTIVE * M / len(self.ids)))))
        probes = self._probes(rows, centers, wanted)
        least = np.full(count, -np.inf, np.float32)
        row, other, value = _best_of_each(*self._products(rows, probes[:, :_FIRST], least), count, found.shape[1])
        counts = np.bincount(row, minlength=count)
        full = counts == found.shape[1]
        least[full] = value[np.cumsum(counts)[full] - 1]
        more = self._products(rows, probes[:, _FIRST:], least)
        row, other = np.concatenate([row, more[0]]), np.concatenate([other, more[1]])
        row, other, value = _best_of_each(row, other, np.concatenate([value, more[2]]), count, found.shape[1])
        rank = np.arange(len(row)) - np.searchsorted(row, row)
        found[row, rank] = other
        similarity[row, rank] = np.clip(value * self.scale[rows][row], -1, 1)

    def _products(self, rows: slice, probes: Ids, least: Floats) -> tuple[Array, Array, Floats]:
        """Return (row, other, product) of the vectors of the probed lists that are above the least of the row."""
        import numkong

        order = np.argsort(probes.ravel(), kind="stable")
        who, lists = order // max(probes.shape[1], 1), probes.ravel()[order]
        bounds = np.flatnonzero(np.diff(lists, prepend=-1, append=-1))
        out = [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))]
        i, j, value = _room(0)
        for start, stop in itertools.pairwise(bounds):
            mine, (first, last) = who[start:stop], self.starts[lists[start] : lists[start] + 2]
            packed = numkong.dots_pack(self.codes[first:last])
            products = np.asarray(numkong.dots_packed(self.codes[rows.start + mine], packed))
            if products.size > len(value):
                i, j, value = _room(2 * products.size)
            found = _kernels.find_above(products, self.scale[first:last], least[mine], i, j, value)
            row, other = mine[i[:found]], j[:found] + first
            apart = other != row + rows.start  # not itself
            out.append((row[apart], other[apart], value[:found][apart]))
        row, other, value = (np.concatenate(part) for part in zip(*out, strict=True))
        return row, other, value

    def _probes(self, rows: slice, centers: Floats, wanted: int) -> Ids:
        """Return the lists that each vector is nearest to, its own first."""
        products = self._rows(rows) @ centers.T
        own = np.searchsorted(self.starts, np.arange(rows.start, rows.stop), side="right") - 1
        products[np.arange(len(own)), own] = np.inf
        nearest = np.argpartition(-products, wanted - 1, axis=1)[:, :wanted]
        order = np.argsort(-np.take_along_axis(products, nearest, axis=1), axis=1, kind="stable")
        return np.take_along_axis(nearest, order, axis=1)


def _room(size: int) -> tuple[Array, Array, Floats]:
    return np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.float32)


def _by_id(ids: Ids, found: NDArray[np.int32], similarity: Floats) -> Neighbors:
    """Return the neighbors by increasing id; both arrays are overwritten."""
    order = np.argsort(ids)
    row = np.full(len(order) + 1, -1, np.int32)  # the last is for -1
    row[order] = np.arange(len(order), dtype=np.int32)
    for part in split_range(len(order), 1 << 16):
        found[part] = row[found[part]]
    return Neighbors(ids[order], found[order], similarity[order])


def _best_of_each(row: Array, other: Array, value: Floats, count: int, k: int) -> tuple[Array, Array, Floats]:
    """Return the k entries of each row with the largest values, by row, largest first."""
    span = 2 * float(np.abs(value).max(initial=0)) + 1
    order = np.argsort(row * span - value, kind="stable")  # as lexsort((-value, row)), but faster
    starts = np.searchsorted(row[order], np.arange(count))
    order = order[np.arange(len(order)) - starts[row[order]] < k]
    return row[order], other[order], value[order]


def _in_list_order(segment: Any, count: int) -> tuple[Ids, Ids | None]:
    """Return (the live rows of a segment, list by list; the sizes of the lists, None if there are none yet)."""
    if isinstance(segment, ListSegment) and not segment.flat:
        live = segment.live[segment.row]
        ends = np.concatenate([[0], np.cumsum(live)])[segment.starts]
        return segment.row[live].astype(np.int64), np.diff(ends)
    rows = np.flatnonzero(segment.live)
    whole = len(rows) <= _ROWS or count <= EXHAUSTIVE
    return rows, np.array([len(rows)]) if whole else None


def _decode(segment: Any, rows: Ids, codes: NDArray[np.int8], scale: Floats, workers: Workers) -> None:
    def fill(part: slice) -> None:
        X = segment.reconstruct(rows[part])
        unit = normalize_rows(X, np.maximum(row_norms(X), 1e-30))
        _kernels.to_int8(unit, codes[part], scale[part])

    workers.map(fill, split_range(len(rows), _ROWS), "decoding")


def _cluster(codes: NDArray[np.int8], scale: Floats, workers: Workers) -> tuple[Ids, Ids]:
    """Return (an order of the vectors by cluster, the sizes of the clusters)."""
    V = codes * scale[:, None]
    units = KMeans()(V, np.random.default_rng(0), Workers(workers.threads))
    label = units.assignment[:, 0]
    return np.argsort(label, kind="stable"), np.bincount(label)

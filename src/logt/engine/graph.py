"""The nearest neighbors of every vector, snapshot -> (ids, neighbors, similarities), from the codes alone.

The decoded vectors are kept as int8, list by list. Each vector is compared with those of the lists it is nearest to.
Vectors of one block are neighbors themselves and share most of these lists, so that this is a product of two small
matrices per list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logt import _kernels
from logt._threads import Workers, split_range
from logt._types import Floats, Ids
from logt._validation import normalize_rows, row_norms
from logt.engine.list_segment import ListSegment
from logt.engine.neighbor_graph import Neighbors
from logt.engine.snapshot import Snapshot
from logt.stages.kmeans import KMeans

EXHAUSTIVE = 4096
"""Up to this many vectors, all pairs are compared; each vector is compared with about as many at least."""

_ROWS = 1024  # vectors decoded together
_BLOCK = 2048  # vectors compared with others together, at most
_PRODUCTS = 1 << 20  # of vectors and lists that are computed together
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

        rows = min(_BLOCK, max(_ROWS // 4, count // (4 * workers.threads)))
        workers.map(fill, split_range(count, rows), "linking")
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
        import numkong

        starts, mine = self._probing(rows, centers)
        value = np.full(found.shape, -np.inf, np.float32)
        for j in np.flatnonzero(np.diff(starts)).tolist():
            who, (first, last) = mine[starts[j] : starts[j + 1]], self.starts[j : j + 2].tolist()
            packed = numkong.dots_pack(self.codes[first:last])
            products = np.asarray(numkong.dots_packed(self.codes[rows.start + who], packed))
            _kernels.keep_best(products, self.scale[first:last], who, first, rows.start, found, value)
        known = found >= 0
        similarity[known] = np.clip(value * self.scale[rows, None], -1, 1)[known]

    def _probing(self, rows: slice, centers: Floats) -> tuple[Ids, NDArray[np.uint32]]:
        """Return the vectors that are compared with each list: those of list j are starts[j]:starts[j + 1]."""
        M, count = len(centers), rows.stop - rows.start
        wanted = min(M, int(np.ceil(max(M**_PROBE, EXHAUSTIVE * M / len(self.ids)))))
        probes = np.empty((count, wanted), np.uint32)
        for part in split_range(count, max(1, _PRODUCTS // M)):
            probes[part] = self._nearest_lists(
                slice(rows.start + part.start, rows.start + part.stop), centers, wanted
            )
        starts, mine = np.empty(M + 1, np.int64), np.empty(probes.size, np.uint32)
        _kernels.group_rows(probes, starts, mine)
        return starts, mine

    def _nearest_lists(self, rows: slice, centers: Floats, wanted: int) -> Ids:
        """Return the lists that each vector is nearest to, its own included."""
        products = self._rows(rows) @ centers.T
        own = np.searchsorted(self.starts, np.arange(rows.start, rows.stop), side="right") - 1
        products[np.arange(len(own)), own] = np.inf
        return np.argpartition(products, -wanted, axis=1)[:, -wanted:]


def _by_id(ids: Ids, found: NDArray[np.int32], similarity: Floats) -> Neighbors:
    """Return the neighbors by increasing id; both arrays are overwritten."""
    order = np.argsort(ids)
    row = np.full(len(order) + 1, -1, np.int32)  # the last is for -1
    row[order] = np.arange(len(order), dtype=np.int32)
    for part in split_range(len(order), 1 << 16):
        found[part] = row[found[part]]
    return Neighbors(ids[order], found[order], similarity[order])


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

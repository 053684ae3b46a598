"""The nearest neighbors of every vector, segments -> (ids, neighbors, similarities), from the codes alone.

The decoded vectors are kept as int8, list by list. Each vector is first compared with those of the lists it is
nearest to. Vectors of one block are neighbors themselves and share most of these lists, so that this is a product of
two small matrices per list; each product counts for both vectors. Then each is compared with the neighbors of its
neighbors, until that finds few (nearest neighbor descent: Dong, Moses and Li, Efficient k-nearest neighbor graph
construction for generic similarity measures, 2011).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from logt import _kernels
from logt._internal.int8 import Bytes, byte_products, to_int8
from logt._internal.kmeans import kmeans
from logt._internal.segment import Segment
from logt._internal.threads import Workers, split_range
from logt._internal.types import Floats, Ids
from logt._internal.validation import normalize_rows, row_norms

EXHAUSTIVE = 4096
"""Up to this many vectors, all pairs are compared; each vector is compared with about as many at least."""

_ROWS = 1024  # vectors decoded together
_BLOCK = 2048  # vectors compared with others together, at most
_PRODUCTS = 1 << 18  # that are computed together
_PROBE = 0.6  # of M lists, each vector is compared with those of M**0.6,
_ENOUGH = 6144  # or with this many vectors, if that is less,
_PROBE_LEAST = 0.45  # but with those of M**0.45 at least: joins find the others
_LEAST = 30  # neighbors that are found, even if fewer are wanted: more of them have more neighbors
_FORWARD, _REVERSE = 30, 20  # neighbors of a vector whose neighbors are read, and vectors that it is a neighbor of
_JOINS = 4  # times that neighbors of neighbors are compared, at most
_SETTLED = 0.04  # of the neighbors of a sample: if fewer would be new, the graph is good
_SAMPLE = 16  # one of so many blocks is in the sample
_NONE, _NEW = np.uint32(0xFFFFFFFF), np.uint32(0x80000000)  # as in kernels.hpp

Rows = NDArray[np.uint32]


Neighbors = tuple[Ids, NDArray[np.int32], Floats]
"""(ids, neighbors, similarities): ids increase; neighbors are rows of ids, (N, k), nearest first, -1 where there are
fewer than k; similarities are their cosines.
"""

FindNeighbors = Callable[[Any, int, int, Workers], Neighbors]
"""From segments, their dimension and k to the neighbors of all vectors."""


def nearest_neighbors(segments: Sequence[Segment], dim: int, k: int, workers: Workers) -> Neighbors:
    """Return the k nearest neighbors of each live vector, by the cosine of the decoded vectors."""
    return _by_id(*_compare_all(segments, dim, k, workers))


def _compare_all(segments: Sequence[Segment], dim: int, k: int, workers: Workers) -> Neighbors:
    """Return the neighbors in list order. The decoded vectors are freed when this returns."""
    vectors = _Vectors.decode(segments, dim, workers)
    count = len(vectors.ids)
    k = min(k, max(count - 1, 0))
    found = np.full((count, min(max(k, _LEAST), max(count - 1, 0))), _NONE, np.uint32)
    if k and not vectors.compare_lists(found, workers):
        for _ in range(_JOINS):
            if not vectors.join(found, workers):
                break
    found = np.ascontiguousarray(found[:, :k])
    similarity = np.zeros((count, k), np.float32)

    def fill(rows: slice) -> None:
        _kernels.similarities(vectors.codes, vectors.scale, rows.start, found[rows], similarity[rows])

    workers.map(fill, split_range(count, _ROWS))
    return vectors.ids, found.view(np.int32), similarity


@dataclass(frozen=True, eq=False)
class _Vectors:
    """Unit vectors as int8, in list order; list j is starts[j]:starts[j + 1]."""

    ids: Ids
    codes: Bytes
    scale: Floats
    starts: Ids

    @classmethod
    def decode(cls, segments: Sequence[Segment], dim: int, workers: Workers) -> Self:
        count = sum(segment.count for segment in segments)
        ids, codes, scale = np.empty(count, np.int64), np.empty((count, dim), np.int8), np.empty(count, np.float32)
        sizes, first = [np.zeros(1, np.int64)], 0
        for together in _with_same_lists(segments):
            live = [segment.list_order() for segment in together]
            lists = np.stack([counts for _, counts in live])  # (segments, lists)
            ends = np.cumsum(lists.T).reshape(lists.shape[::-1]).T  # of the vectors of a segment in a list
            for segment, (rows, counts), begin in zip(together, live, first + ends - lists, strict=True):
                position = np.repeat(begin - (np.cumsum(counts) - counts), counts) + np.arange(len(rows))
                ids[position] = segment.ids[rows]
                _decode(segment, rows, position, codes, scale, workers)
            mine = slice(first, first + int(lists.sum()))
            if lists.shape[1] == 1 and count > EXHAUSTIVE and lists.sum() > _ROWS:
                order, lists = _cluster(codes[mine], scale[mine], workers)
                ids[mine], codes[mine], scale[mine] = ids[mine][order], codes[mine][order], scale[mine][order]
            sizes.append(lists.sum(axis=0))
            first = mine.stop
        sizes = sizes if count > EXHAUSTIVE else [np.array([0, count])]
        lengths = np.concatenate(sizes)
        return cls(ids, codes, scale, np.cumsum(np.concatenate([[0], lengths[lengths > 0]])))

    def compare_lists(self, found: Rows, workers: Workers) -> bool:
        """Find the nearest neighbors of all vectors in the lists each is nearest to.

        Return whether these are all lists, so that the neighbors are exact.
        """
        count, M = len(self.ids), len(self.starts) - 1
        wanted = _lists_to_compare(M, count)
        centers = self._centers(workers)
        value, lock = np.full(found.shape, -np.inf, np.float32), np.zeros(count, np.uint8)

        def fill(rows: slice) -> None:
            # its own lists first: they are near
            own = int(np.searchsorted(self.starts, rows.start, side="right")) - 1
            probing = self._probing(rows, centers, wanted)
            _kernels.compare_lists(self.codes, self.scale, self.starts, *probing, rows.start, own, found, value, lock)

        rows = min(_BLOCK, max(_ROWS // 4, count // (8 * workers.threads)))
        workers.map(fill, split_range(count, rows), "linking")
        found |= _NEW  # _NONE stays what it is
        return wanted == M

    def join(self, found: Rows, workers: Workers) -> bool:
        """Compare vectors with the neighbors of their neighbors.

        Return False if that finds few for a sample: then only the sample was improved.
        """
        forward = min(_FORWARD, found.shape[1])
        adjacent = np.empty((len(found), forward + _REVERSE), np.uint32)
        _kernels.adjacent_rows(found, forward, adjacent)

        def fill(rows: slice) -> int:
            return _kernels.join_rows(self.codes, self.scale, adjacent, rows.start, found[rows])

        parts = split_range(len(found), _ROWS // _SAMPLE)
        sample = parts[::_SAMPLE]
        size = sum(part.stop - part.start for part in sample) * found.shape[1]
        if sum(workers.map(fill, sample)) < _SETTLED * size:
            return False
        rest = [part for number, part in enumerate(parts) if number % _SAMPLE]
        workers.map(fill, rest, "linking neighbors of neighbors")
        return True

    def _centers(self, workers: Workers) -> tuple[Bytes, Floats]:
        """Return the direction from the mean of all vectors to the mean of each list, as int8."""
        means = np.stack(workers.map(self._mean, range(len(self.starts) - 1)))
        sizes = np.diff(self.starts)
        means -= (sizes @ means / sizes.sum()).astype(np.float32)
        return to_int8(normalize_rows(means, row_norms(means)))

    def _mean(self, j: int) -> Floats:
        first, last = self.starts[j : j + 2].tolist()
        total = np.zeros(self.codes.shape[1], np.float32)
        for part in split_range(last - first, _ROWS):
            rows = slice(first + part.start, first + part.stop)
            total += self.scale[rows] @ self.codes[rows].astype(np.float32)
        return total / np.float32(last - first)

    def _probing(self, rows: slice, centers: tuple[Bytes, Floats], wanted: int) -> tuple[Ids, Rows]:
        """Return the vectors that are compared with each list: those of list j are starts[j]:starts[j + 1]."""
        M, count = len(centers[0]), rows.stop - rows.start
        probes = np.empty((count, wanted), np.uint32)
        own = np.searchsorted(self.starts, np.arange(rows.start, rows.stop), side="right") - 1
        for part in split_range(count, max(1, _PRODUCTS // M)):
            products = byte_products(self.codes[rows][part], *centers)
            products[np.arange(len(products)), own[part]] = np.inf
            probes[part] = np.argpartition(products, -wanted, axis=1)[:, -wanted:]
        starts, mine = np.empty(M + 1, np.int64), np.empty(probes.size, np.uint32)
        _kernels.group_rows(probes, starts, mine)
        return starts, mine


def _lists_to_compare(M: int, count: int) -> int:
    """Return the number of lists that each of `count` vectors in M lists is compared with."""
    per_list = count / M
    lists = max(min(M**_PROBE, _ENOUGH / per_list), M**_PROBE_LEAST, EXHAUSTIVE / per_list)
    return min(M, int(np.ceil(lists)))


def _by_id(ids: Ids, found: NDArray[np.int32], similarity: Floats) -> Neighbors:
    """Return the neighbors by increasing id; both arrays are overwritten."""
    order = np.argsort(ids)
    row = np.full(len(order) + 1, -1, np.int32)  # the last is for -1
    row[order] = np.arange(len(order), dtype=np.int32)
    for part in split_range(len(order), 1 << 16):
        found[part] = row[found[part]]
    return ids[order], found[order], similarity[order]


def _with_same_lists(segments: Sequence[Segment]) -> list[list[Segment]]:
    """Return the segments; those of one model with as many lists, which are the same lists, are together."""
    groups: dict[tuple[int, int], list[Segment]] = {}
    for segment in segments:
        lists = len(segment.list_order()[1])
        key = (id(segment.model), lists) if lists > 1 else (id(segment), 1)
        groups.setdefault(key, []).append(segment)
    return list(groups.values())


def _decode(segment: Segment, rows: Ids, position: Ids, codes: Bytes, scale: Floats, workers: Workers) -> None:
    def fill(part: slice) -> None:
        X = segment.reconstruct(rows[part])
        unit = normalize_rows(X, row_norms(X))
        codes[position[part]], scale[position[part]] = to_int8(unit)

    workers.map(fill, split_range(len(rows), _ROWS), "decoding")


def _cluster(codes: Bytes, scale: Floats, workers: Workers) -> tuple[Ids, Ids]:
    """Return (an order of the vectors by cluster, the sizes of the clusters as a row)."""
    V = codes * scale[:, None]
    label = kmeans(V, round(4 * len(V) ** 0.5), np.random.default_rng(0), Workers(workers.threads))
    return np.argsort(label, kind="stable"), np.bincount(label)[None]

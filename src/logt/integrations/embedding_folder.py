"""Named embeddings in a folder: an `Index` that is locked only while it changes, searched by distance."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from logt._internal.types import Array, Floats, Ids
from logt._internal.validation import check_choice
from logt.engine.protocols import Method
from logt.errors import InvalidInputError
from logt.index import Index

METRICS: dict[str, Literal["cosine", "ip", "l2"]] = {"cosine": "cosine", "dotproduct": "ip", "euclidean": "l2"}
"""Names of distances, and the metric of an index for each: 1 - cosine, minus the inner product, and the L2 norm."""

_BLOCK = 1024  # rows whose neighbors are in memory at a time


class Near(NamedTuple):
    """The rows near one query, nearest first, and their distances."""

    rows: Ids
    distances: Floats


_NOTHING = Near(np.empty(0, np.int64), np.empty(0, np.float32))


class EmbeddingFolder:
    """Embeddings under names. Rows are positions in `names`; `among` restricts searches to some rows.

    path: the folder, which need not exist yet. distance: one of `METRICS`. method: of a new index.
    """

    def __init__(self, path: Path, distance: str, method: Method | None = None):
        check_choice("metric", distance, tuple(METRICS))
        self.path, self.distance, self._method = path, distance, method
        self.index: Index | None = None  # until the first embedding, which gives the dimension
        self.names: list[str] = []
        self.rows: dict[str, int] = {}
        self.refresh()

    # ------------------------------------------------------------------------------------------------- changes

    def refresh(self) -> None:
        """Move to the newest state of the folder, if it exists."""
        if self.index is not None:
            self.index.refresh()
        elif self.path.exists():
            self.index = Index.open(self.path)
        self._read_names()

    def upsert(self, embeddings: Floats, names: Sequence[str]) -> None:
        if self.index is not None:
            with self._changing() as index:
                index.upsert(embeddings, names)
            return
        new = Index(np.shape(embeddings)[1], metric=METRICS[self.distance], method=self._method)
        new.add(embeddings, names)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new.save(self.path)
        self.refresh()

    def remove(self, names: Sequence[str]) -> None:
        with self._changing() as index:
            index.remove(names)

    def delete(self) -> None:
        self.index = None
        shutil.rmtree(self.path, ignore_errors=True)
        self._read_names()

    @contextmanager
    def _changing(self) -> Iterator[Index]:
        """Lock the folder, and save the changes that are made meanwhile."""
        index = self._index()
        index.lock()
        try:
            yield index
            index.save()
        finally:
            index.close()
            self._read_names()

    def _read_names(self) -> None:
        self.names = [] if self.index is None else self.index.ids.tolist()
        self.rows = {name: row for row, name in enumerate(self.names)}

    # -------------------------------------------------------------------------------------------------- search

    def vectors(self, rows: Sequence[int] | Ids) -> Floats:
        if not len(rows):
            return np.empty((0, 0 if self.index is None else self.index.dim), np.float32)
        return self._index().reconstruct([self.names[row] for row in rows])

    def search(
        self, Q: Floats, k: int | None = None, *, among: Ids | None = None, farthest: bool = False
    ) -> list[Near]:
        """Return the k nearest rows, or all by default, of each row of Q; `farthest` returns the last ones first."""
        count = len(self._rows(among))
        if not count:
            return [_NOTHING] * len(Q)
        k = count if k is None else min(k, count)
        wanted, effort, order = (count, 1.0, slice(None, None, -1)) if farthest else (k, None, slice(None))
        scores, ids = self._index().search(Q, wanted, filter=self._mask(among), effort=effort)
        scores, ids = scores[:, order][:, :k], ids[:, order][:, :k]
        known = np.isfinite(scores)
        return [self._near(ids[q][known[q]], scores[q][known[q]]) for q in range(len(Q))]

    def within(self, Q: Floats, distance: float, *, among: Ids | None = None) -> list[Near]:
        if not len(Q) or self.index is None:
            return [_NOTHING] * len(Q)
        result = self.index.range_search(Q, self._to_score(distance), filter=self._mask(among))
        parts = (np.split(values, result.limits[1:-1]) for values in (result.ids, result.scores))
        return [self._near(ids, scores) for ids, scores in zip(*parts, strict=True)]

    def neighbors(self, k: int | None = None, *, among: Ids | None = None) -> Iterator[Near]:
        """Yield the k nearest other rows, or all by default, of each row of the folder or of `among`."""
        others = len(self._rows(among)) - 1
        k = max(0, others if k is None else min(k, others))
        for near in self._others(lambda Q: self.search(Q, k + 1, among=among), among):
            yield Near(near.rows[:k], near.distances[:k])

    def neighbors_within(self, distance: float, *, among: Ids | None = None) -> Iterator[Near]:
        """Yield all other rows at most this far from each row of the folder or of `among`."""
        yield from self._others(lambda Q: self.within(Q, distance, among=among), among)

    def unique(self, distance: float, *, among: Ids | None = None) -> Ids:
        """Return the rows that are farther than `distance` from all rows kept before them, in their order.

        Neighbors are read only of rows that are kept, so a large distance takes few searches.
        """
        rows = self._rows(among)
        place = np.full(len(self.names), -1)
        place[rows] = np.arange(len(rows))
        kept = np.ones(len(rows), bool)
        start, size = 0, 1
        while len(block := start + np.flatnonzero(kept[start:])[:size]):
            for at, near in zip(block, self.within(self.vectors(rows[block]), distance, among=among), strict=True):
                if kept[at]:
                    others = place[near.rows]
                    kept[others[others > at]] = False
            start, size = int(block[-1]) + 1, min(2 * size, _BLOCK)
        return rows[kept]

    # ------------------------------------------------------------------------------------------------- details

    def _rows(self, among: Ids | None) -> Ids:
        return np.arange(len(self.names)) if among is None else among

    def _others(self, search: Callable[[Floats], list[Near]], among: Ids | None) -> Iterator[Near]:
        """Yield what a search finds with each row, without this row."""
        rows = self._rows(among)
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            for row, near in zip(block, search(self.vectors(block)), strict=True):
                yield Near(*(values[near.rows != row] for values in near))

    def _index(self) -> Index:
        if self.index is None:
            raise InvalidInputError(f"{self.path} holds no embeddings yet")
        return self.index

    def _near(self, names: Array, scores: Floats) -> Near:
        return Near(np.fromiter((self.rows[name] for name in names), np.int64), self._to_distance(scores))

    def _mask(self, among: Ids | None) -> Array | None:
        if among is None:
            return None
        mask = np.zeros(len(self.names), bool)
        mask[among] = True
        return mask

    def _to_distance(self, scores: Floats) -> Floats:
        if self.distance == "euclidean":
            return np.sqrt(np.maximum(scores, 0))
        return np.maximum(1 - scores, 0) if self.distance == "cosine" else -scores

    def _to_score(self, distance: float) -> float:
        if self.distance == "euclidean":
            return distance * abs(distance)
        return 1 - distance if self.distance == "cosine" else -distance

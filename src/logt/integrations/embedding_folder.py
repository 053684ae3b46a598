"""Named embeddings in a folder: an `Index` that is locked only while it changes, searched by distance."""

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

_BLOCK = 1024  # embeddings whose neighbors are in memory at a time


class Near(NamedTuple):
    """The names near one query, nearest first, and their distances."""

    names: Array
    distances: Floats


_NOTHING = Near(np.empty(0, object), np.empty(0, np.float32))


class EmbeddingFolder:
    """Embeddings under names. `among` restricts searches to some positions in `names`.

    path: the folder, which need not exist yet. distance: one of `METRICS`. method: of a new index.
    """

    def __init__(self, path: Path, distance: str, method: Method | None = None):
        check_choice("metric", distance, tuple(METRICS))
        self.path, self.distance, self._method = path, distance, method
        self.index: Index | None = None  # until the first embedding, which gives the dimension
        self.names: list[str] = []
        self.refresh()

    def __contains__(self, name: str) -> bool:
        return self.index is not None and name in self.index

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
        if self.index is None:
            raise InvalidInputError(f"{self.path} holds no embeddings yet")
        self.index.lock()
        try:
            yield self.index
            self.index.save()
        finally:
            self.index.close()
            self._read_names()

    def _read_names(self) -> None:
        self.names = [] if self.index is None else self.index.ids.tolist()

    # -------------------------------------------------------------------------------------------------- search

    def vectors(self, names: Sequence[str]) -> Floats:
        return np.empty((0, 0), np.float32) if self.index is None else self.index.reconstruct(names)

    def names_among(self, among: Ids | None) -> list[str]:
        return self.names if among is None else [self.names[at] for at in among]

    def search(
        self, Q: Floats, k: int | None = None, *, among: Ids | None = None, farthest: bool = False
    ) -> list[Near]:
        """Return the k nearest, or all by default, of each row of Q; `farthest` returns the last ones first."""
        count = len(self.names if among is None else among)
        if self.index is None or not count:
            return [_NOTHING] * len(Q)
        k = count if k is None else min(k, count)
        wanted, effort, order = (count, 1.0, slice(None, None, -1)) if farthest else (k, None, slice(None))
        scores, names = self.index.search(Q, wanted, filter=self._mask(among), effort=effort)
        scores, names = scores[:, order][:, :k], names[:, order][:, :k]
        known = np.isfinite(scores)
        return [Near(names[q][known[q]], self._to_distance(scores[q][known[q]])) for q in range(len(Q))]

    def within(self, Q: Floats, distance: float, *, among: Ids | None = None) -> list[Near]:
        """Return all that are at most this far from each row of Q."""
        if not len(Q) or self.index is None:
            return [_NOTHING] * len(Q)
        result = self.index.range_search(Q, self._to_score(distance), filter=self._mask(among))
        parts = (np.split(values, result.limits[1:-1]) for values in (result.ids, self._to_distance(result.scores)))
        return [Near(names, distances) for names, distances in zip(*parts, strict=True)]

    def others(self, search: Callable[[Floats], list[Near]], *, among: Ids | None = None) -> Iterator[Near]:
        """Yield what a search finds with each embedding of the folder or of `among`, without this embedding."""
        names = self.names_among(among)
        for start in range(0, len(names), _BLOCK):
            block = names[start : start + _BLOCK]
            for name, near in zip(block, search(self.vectors(block)), strict=True):
                yield Near(*(values[near.names != name] for values in near))

    def unique(self, distance: float, *, among: Ids | None = None) -> list[str]:
        """Return the names that are farther than `distance` from all that are kept before them, in their order.

        Neighbors are read only of those that are kept, so a large distance takes few searches.
        """
        names = self.names_among(among)
        position = {name: at for at, name in enumerate(names)}
        kept = np.ones(len(names), bool)
        start, size = 0, 1
        while len(block := start + np.flatnonzero(kept[start:])[:size]):
            vectors = self.vectors([names[at] for at in block])
            for at, near in zip(block, self.within(vectors, distance, among=among), strict=True):
                if kept[at]:
                    others = np.array([position[name] for name in near.names], np.int64)
                    kept[others[others > at]] = False
            start, size = int(block[-1]) + 1, min(2 * size, _BLOCK)
        return [name for name, keep in zip(names, kept, strict=True) if keep]

    def _mask(self, among: Ids | None) -> Array | None:
        return None if among is None else np.isin(np.arange(len(self.names)), among)

    def _to_distance(self, scores: Floats) -> Floats:
        if self.distance == "euclidean":
            return np.sqrt(np.maximum(scores, 0))
        return np.maximum(1 - scores, 0) if self.distance == "cosine" else -scores

    def _to_score(self, distance: float) -> float:
        if self.distance == "euclidean":
            return distance * abs(distance)
        return 1 - distance if self.distance == "cosine" else -distance

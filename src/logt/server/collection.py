"""The index as the service holds it: read by all requests at once, opened for writing only while changes come."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from logt._types import Floats
from logt.errors import InvalidInputError
from logt.index import Index
from logt.results import Report, SearchResult
from logt.server.refusals import RefusedError, not_found

if TYPE_CHECKING:
    from PIL.Image import Image

Id = int | str
Answer = TypeVar("Answer")
Box = tuple[float, float, float, float]
"""Left, top, right, bottom, as parts (0 to 1) of the upright picture."""

QUIET = 2.0
"""Seconds without a change after which the folder is free for another writer."""
_JOIN_AFTER = 64  # adds, each of which made a segment; small segments are joined


class Pictures(Protocol):
    """What the service needs of `logt.photos.Photos`."""

    @property
    def folder(self) -> Path: ...

    def describe(self, image: Image, box: Any = None) -> Floats: ...

    def picture(self, id: str) -> Path: ...

    def refresh(self) -> Any: ...


@dataclass(frozen=True)
class Hit:
    """One result."""

    id: Id
    score: float


class Collection:
    """Vectors, and where there are some the pictures that they describe.

    Searches never wait: they read the state that is there when they begin. One change at a time opens the folder for
    writing, and holds it until no change came for a while; another process may write at all other times, and its
    saved states are picked up by `poll`.
    """

    def __init__(self, folder: Path, pictures: Pictures | None = None):
        self.pictures = pictures
        self.trouble: str | None = None
        self._folder = folder
        self._index = Index.open(folder)
        self._writing = False
        self._changed = 0.0
        self._adds = 0
        self._changing = threading.Lock()
        self._report: tuple[int | None, Report] | None = None
        self._sample: tuple[int | None, int, list[Id]] | None = None

    @property
    def index(self) -> Index:
        return self._index

    @property
    def title(self) -> str:
        return (self.pictures.folder if self.pictures else self._folder).resolve().name

    def search(self, Q: Any, k: int, effort: float | None = None) -> list[list[Hit]]:
        """The k best of each row of Q, fewer where there are fewer; on one thread, as requests come side by side."""
        return _hits(self._index.search(Q, k, effort=effort, threads=1))

    def search_ids(self, ids: list[Id], k: int, effort: float | None = None) -> list[list[Hit]]:
        """The k best for each vector of the index, given by id; the vector itself is not among them."""
        index = self._index
        for one in ids:
            if one not in index:
                raise not_found(one)
        found = _hits(index.search(index.reconstruct(ids), k + 1, effort=effort, threads=1))
        return [[hit for hit in hits if hit.id != one][:k] for one, hits in zip(ids, found, strict=True)]

    def describe(self, image: Image, box: Box | None = None) -> Floats:
        """The descriptor of a picture, or of a region of it."""
        return self.with_pictures.describe(image, None if box is None else _pixels(box, image.size))

    def picture(self, id: Id) -> Path:
        """The file of a picture of the index."""
        pictures = self.with_pictures
        if not isinstance(id, str) or id not in self._index:
            raise not_found(id)
        return pictures.picture(id)

    @property
    def with_pictures(self) -> Pictures:
        if self.pictures is None:
            raise RefusedError(
                409, "no_pictures", "this index holds vectors without pictures; search by vector or by id"
            )
        return self.pictures

    def add(self, X: Any, ids: list[Id] | None, *, replace: bool = False) -> list[Id]:
        """Add vectors and save; with `replace`, in place of those that have the ids."""

        def change(index: Index) -> list[Id]:
            given = index.upsert(X, ids) if replace else index.add(X, ids)
            self._adds += 1
            if self._adds % _JOIN_AFTER == 0:
                index.compact()
            return list(given.tolist())

        return self._change(change)

    def remove(self, ids: list[Id]) -> int:
        """Remove vectors and save; say how many there were."""
        return self._change(lambda index: index.remove(ids))

    def poll(self) -> None:
        """Pick up what others saved, and give up the folder once changes have stopped; what fails is `trouble`."""
        with self._changing:
            if self._writing and time.monotonic() - self._changed > QUIET:
                self.release()
            try:
                self._index.refresh()
                if self.pictures is not None:
                    self.pictures.refresh()
                self.trouble = None
            except (OSError, ValueError) as error:
                self.trouble = str(error)

    def release(self) -> None:
        """Let other processes write."""
        self._index.close()
        self._writing = False

    def report(self) -> Report:
        """`Index.report` of the state that is served; counted once per state."""
        index = self._index
        if self._report is None or self._report[0] != index.generation:
            self._report = (index.generation, index.report())
        return self._report[1]

    def sample(self, count: int) -> list[Id]:
        """Some ids, spread over the whole index."""
        index = self._index
        if self._sample is None or self._sample[:2] != (index.generation, count):
            ids = index.ids
            step = max(1, len(ids) // count)
            self._sample = (index.generation, count, ids[::step][:count].tolist())
        return self._sample[2]

    def _change(self, change: Callable[[Index], Answer]) -> Answer:
        with self._changing:
            if not self._writing:
                self._index, self._writing = Index.open(self._folder, "a"), True
            self._changed = time.monotonic()
            try:
                answer = change(self._index)
                self._index.save()
            except InvalidInputError:
                raise  # nothing was changed
            except BaseException:
                self.release()
                self._index = Index.open(self._folder)
                raise
            return answer


def opened(path: Path) -> Collection:
    """The collection in a folder made by `logt images index`, or by `logt build` or `Index.save`."""
    if (path / "vectors").is_dir():
        from logt.photos import Photos

        return Collection(path / "vectors", Photos.open(path))
    return Collection(path)


def _hits(found: SearchResult) -> list[list[Hit]]:
    rows = zip(found.ids.tolist(), found.scores.tolist(), found.counts.tolist(), strict=True)
    return [[Hit(*hit) for hit in zip(ids[:count], scores[:count], strict=True)] for ids, scores, count in rows]


def _pixels(box: Box, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The box in pixels, at least one wide and high."""
    (width, height), (left, top, right, bottom) = size, box
    x0, y0 = min(int(left * width), width - 1), min(int(top * height), height - 1)
    return x0, y0, max(x0 + 1, round(right * width)), max(y0 + 1, round(bottom * height))

"""The index as the service holds it: read by all requests at once, opened for writing only while changes come."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from logt.errors import InvalidInputError
from logt.index import Index
from logt.results import Report, SearchResult
from logt.server.errors import id_not_found
from logt.server.hits import Hit, Id

Answer = TypeVar("Answer")
QUIET = 2.0
"""Seconds without a change after which the folder is free for another writer."""
JOIN_AFTER = 64
"""Adds, each of which made a segment, after which small segments are joined."""


class BaseCollection(ABC):
    """What is served. Searches never wait: they read the state that is there when they begin."""

    pictures = False
    uploads = False

    def __init__(self) -> None:
        self.trouble: str | None = None
        self._reported: tuple[object, Report] | None = None
        self._sampled: tuple[object, list[Id]] | None = None

    @property
    @abstractmethod
    def index(self) -> Index: ...

    @property
    @abstractmethod
    def title(self) -> str: ...

    @abstractmethod
    def add(self, X: Any, ids: list[Id] | None, *, replace: bool = False) -> list[Id]:
        """Add vectors and save; with `replace`, in place of those that have the ids."""

    @abstractmethod
    def remove(self, ids: list[Id]) -> int:
        """Remove what has these ids and save; say how many there were."""

    @abstractmethod
    def poll(self) -> None:
        """Pick up what others saved."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Let other processes write."""

    def watch(self) -> None:
        """`poll`; what fails is kept as `trouble`, and the state of before is served."""
        try:
            self.poll()
            self.trouble = None
        except (OSError, ValueError) as error:
            self.trouble = str(error)

    def search(self, Q: Any, k: int, effort: float | None = None) -> list[list[Hit]]:
        """The k best of each row of Q, fewer where there are fewer; on one thread, as requests come side by side."""
        return _hits(self.index.search(Q, k, effort=effort, threads=1))

    def search_ids(self, ids: list[Id], k: int, effort: float | None = None) -> list[list[Hit]]:
        """The k best for each vector of the index, given by id; the vector itself is not among them."""
        index = self.index
        for one in ids:
            if one not in index:
                raise id_not_found(one)
        found = _hits(index.search(index.reconstruct(ids), k + 1, effort=effort, threads=1))
        return [[hit for hit in hits if hit.id != one][:k] for one, hits in zip(ids, found, strict=True)]

    def report(self) -> Report:
        """`Index.report` of the state that is served; counted once per state."""
        index = self.index
        if self._reported is None or self._reported[0] != (id(index), index.generation):
            self._reported = ((id(index), index.generation), index.report())
        return self._reported[1]

    def sample(self, count: int) -> list[Id]:
        """Some ids, spread over the whole index; looked up once per state."""
        index = self.index
        state = (id(index), index.generation, count)
        if self._sampled is None or self._sampled[0] != state:
            ids = index.ids
            self._sampled = (state, ids[:: max(1, len(ids) // count)][:count].tolist())
        return self._sampled[1]


class VectorCollection(BaseCollection):
    """An index of vectors without pictures.

    One change at a time opens the folder for writing, and holds it until no change came for a while; another process
    may write at all other times.
    """

    def __init__(self, folder: Path):
        super().__init__()
        self._folder = folder.resolve()
        self._index = Index.open(folder)
        self._writing = False
        self._changed = 0.0
        self._adds = 0
        self._changing = threading.Lock()

    @property
    def index(self) -> Index:
        return self._index

    @property
    def title(self) -> str:
        return self._folder.name

    def add(self, X: Any, ids: list[Id] | None, *, replace: bool = False) -> list[Id]:
        def change(index: Index) -> list[Id]:
            given = index.upsert(X, ids) if replace else index.add(X, ids)
            self._adds += 1
            if self._adds % JOIN_AFTER == 0:
                index.compact()
            return list(given.tolist())

        return self._change(change)

    def remove(self, ids: list[Id]) -> int:
        return self._change(lambda index: index.remove(ids))

    def poll(self) -> None:
        with self._changing:
            if self._writing and time.monotonic() - self._changed > QUIET:
                self.close()
            self._index.refresh()

    def close(self) -> None:
        self._index.close()
        self._writing = False

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
                self.close()
                self._index = Index.open(self._folder)
                raise
            return answer


def _hits(found: SearchResult) -> list[list[Hit]]:
    rows = zip(found.ids.tolist(), found.scores.tolist(), found.counts.tolist(), strict=True)
    return [[Hit(*hit) for hit in zip(ids[:count], scores[:count], strict=True)] for ids, scores, count in rows]

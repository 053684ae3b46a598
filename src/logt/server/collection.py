"""The index that a server works on: searches run in parallel, changes one at a time."""

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

T = TypeVar("T")
UNLOCK_AFTER = 2.0
"""Seconds without a change after which the folder is unlocked for other writers."""


class BaseCollection(ABC):
    """A served index. A search never waits: it uses the state that is current when it starts."""

    has_photos = False
    allows_uploads = False

    def __init__(self) -> None:
        self.refresh_error: str | None = None
        self._cached_report: tuple[object, Report] | None = None
        self._cached_sample: tuple[object, list[Id]] | None = None

    @property
    @abstractmethod
    def index(self) -> Index: ...

    @property
    @abstractmethod
    def title(self) -> str: ...

    @abstractmethod
    def add(self, X: Any, ids: list[Id] | None, *, replace: bool = False) -> list[Id]:
        """Add vectors, save the index and return the ids; `replace` overwrites vectors with the same ids."""

    @abstractmethod
    def remove(self, ids: list[Id]) -> int:
        """Remove vectors by id, save the index and return how many were removed."""

    @abstractmethod
    def refresh(self) -> None:
        """Load what other processes have saved."""

    def close(self) -> None:  # noqa: B027 - only some collections hold a lock
        """Unlock the folder for other writers."""

    def try_refresh(self) -> None:
        """Call `refresh`; if it fails, keep the current state and store the message in `refresh_error`."""
        try:
            self.refresh()
            self.refresh_error = None
        except (OSError, ValueError) as error:
            self.refresh_error = str(error)

    def search(self, Q: Any, k: int, effort: float | None = None) -> list[list[Hit]]:
        """Return the k best hits of each row of Q; uses one thread because requests already run in parallel."""
        return _to_hits(self.index.search(Q, k, effort=effort, threads=1))

    def search_ids(self, ids: list[Id], k: int, effort: float | None = None) -> list[list[Hit]]:
        """Return the k best hits of each indexed vector, without the vector itself."""
        index = self.index
        for query_id in ids:
            if query_id not in index:
                raise id_not_found(query_id)
        hits = _to_hits(index.search(index.reconstruct(ids), k + 1, effort=effort, threads=1))
        return [[hit for hit in row if hit.id != query_id][:k] for query_id, row in zip(ids, hits, strict=True)]

    def report(self) -> Report:
        """Return `Index.report`, computed once per state of the index."""
        index = self.index
        if self._cached_report is None or self._cached_report[0] != (id(index), index.generation):
            self._cached_report = ((id(index), index.generation), index.report())
        return self._cached_report[1]

    def sample_ids(self, count: int) -> list[Id]:
        """Return some ids, evenly spaced over the index, computed once per state of the index."""
        index = self.index
        state = (id(index), index.generation, count)
        if self._cached_sample is None or self._cached_sample[0] != state:
            ids = index.ids
            self._cached_sample = (state, ids[:: max(1, len(ids) // count)][:count].tolist())
        return self._cached_sample[1]


class VectorCollection(BaseCollection):
    """An index of vectors without photos.

    The first change opens the folder for writing. It stays locked until no change has arrived for a while; at all
    other times other processes can write.
    """

    def __init__(self, folder: Path):
        super().__init__()
        self._folder = folder.resolve()
        self._index = Index.open(folder)
        self._writable = False
        self._last_change = 0.0
        self._change_lock = threading.Lock()

    @property
    def index(self) -> Index:
        return self._index

    @property
    def title(self) -> str:
        return self._folder.name

    def add(self, X: Any, ids: list[Id] | None, *, replace: bool = False) -> list[Id]:
        def add_to(index: Index) -> list[Id]:
            new_ids = index.upsert(X, ids) if replace else index.add(X, ids)
            return list(new_ids.tolist())

        return self._change(add_to)

    def remove(self, ids: list[Id]) -> int:
        return self._change(lambda index: index.remove(ids))

    def refresh(self) -> None:
        with self._change_lock:
            if self._writable and time.monotonic() - self._last_change > UNLOCK_AFTER:
                self.close()
            self._index.refresh()

    def close(self) -> None:
        self._index.close()
        self._writable = False

    def _change(self, change: Callable[[Index], T]) -> T:
        with self._change_lock:
            if not self._writable:
                self._index, self._writable = Index.open(self._folder, "a"), True
            self._last_change = time.monotonic()
            try:
                result = change(self._index)
                self._index.save()
            except InvalidInputError:
                raise  # the index is unchanged
            except BaseException:
                self.close()
                self._index = Index.open(self._folder)
                raise
            return result


def _to_hits(result: SearchResult) -> list[list[Hit]]:
    rows = zip(result.ids.tolist(), result.scores.tolist(), result.counts.tolist(), strict=True)
    return [[Hit(*pair) for pair in zip(ids[:count], scores[:count], strict=True)] for ids, scores, count in rows]

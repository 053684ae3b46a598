"""Searches that arrive at the same time as one: a device compares many queries in about the time of one."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from logt._internal.types import Floats
from logt.results import SearchResult

WAIT = 0.001
"""Seconds that a search waits for others, at most."""

MOST = 256
"""Queries that are searched for together."""


class _Batch:
    """Searches with the same settings that wait for each other."""

    def __init__(self) -> None:
        self.parts: list[Floats] = []
        self.rows = 0
        self.full, self.done = threading.Event(), threading.Event()
        self.result: SearchResult | None = None
        self.error: BaseException | None = None


class GatheredSearches:
    """Calls `search(Q, k, **settings)` with the queries of all that call this at about the same time."""

    def __init__(self, search: Callable[..., SearchResult], wait: float = WAIT):
        self._search, self._wait = search, wait
        self._lock = threading.Lock()
        self._open: dict[tuple[Any, ...], _Batch] = {}

    def search(self, Q: Floats, k: int, **settings: Any) -> SearchResult:
        """Return the results of Q. The first of a batch searches for all of them."""
        key = (k, *sorted(settings.items()))
        with self._lock:
            batch = self._open.get(key)
            first = batch is None or batch.rows + len(Q) > MOST
            if batch is None or first:
                batch = self._open[key] = _Batch()
            start = batch.rows
            batch.parts.append(Q)
            batch.rows += len(Q)
            if batch.rows >= MOST:
                batch.full.set()
        if first:
            self._run(batch, key, k, settings)
        else:
            batch.done.wait()
        if batch.error is not None or batch.result is None:
            return self._search(Q, k, **settings)
        mine = SearchResult(*(part[start : start + len(Q)] for part in batch.result))
        return mine if mine.counts.all() else self._search(Q, k, **settings)  # one that is not valid fails alone

    def _run(self, batch: _Batch, key: tuple[Any, ...], k: int, settings: dict[str, Any]) -> None:
        try:
            batch.full.wait(self._wait)
            with self._lock:
                if self._open.get(key) is batch:
                    del self._open[key]
            batch.result = self._search(np.concatenate(batch.parts), k, on_invalid="ignore", **settings)
        except BaseException as error:
            batch.error = error
        finally:
            batch.done.set()

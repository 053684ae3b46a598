"""Photos that were searched with, kept in memory for a while, so that their results have a URL."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field

from logt._internal.types import Floats
from logt.index import Index
from logt.server.errors import HTTPError
from logt.server.photo_collection import Region

_MAX_REGIONS = 16


@dataclass(frozen=True)
class StoredQuery:
    """A photo from a client: its file name, a JPEG of it, and the vectors of the regions that were searched with."""

    name: str
    jpeg: bytes
    created: float = field(default_factory=time.monotonic)
    _vectors: dict[Region | None, tuple[Index, Floats]] = field(default_factory=dict)
    _describe_ms: list[float] = field(default_factory=list)

    def vector(self, region: Region | None, index: Index) -> Floats | None:
        """Return the vector of a region that was described for this index; None if it has to be described."""
        found = self._vectors.get(region)
        return None if found is None or found[0] is not index else found[1]

    def remember(self, region: Region | None, index: Index, vector: Floats) -> None:
        """Keep the vector of a region."""
        if len(self._vectors) < _MAX_REGIONS or region in self._vectors:
            self._vectors[region] = index, vector

    def add_time(self, milliseconds: float) -> None:
        """Keep the time that its descriptor took, for the first page that shows its results."""
        self._describe_ms.append(milliseconds)

    def take_time(self) -> float | None:
        """Return that time once, and None after that."""
        return self._describe_ms.pop() if self._describe_ms else None


class QueryStore:
    """Stored queries by a key that cannot be guessed; the oldest are dropped after a time, or if they take too much.

    seconds: the time that a query is kept. max_bytes: the size of all of them.
    """

    def __init__(self, seconds: float, max_bytes: int):
        self._seconds, self._max_bytes, self._nbytes = seconds, max_bytes, 0
        self._queries: OrderedDict[str, StoredQuery] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, query: StoredQuery) -> str:
        """Keep a query, and return its key."""
        key = secrets.token_urlsafe(16)
        with self._lock:
            self._queries[key] = query
            self._nbytes += len(query.jpeg)
            self._drop_old()
        return key

    def get(self, key: str) -> StoredQuery:
        """Return a query; raise a 404 error if it was dropped."""
        with self._lock:
            self._drop_old()
            query = self._queries.get(key)
        if query is None:
            raise HTTPError(404, "expired", "this search has expired; choose the photo again")
        return query

    def _drop_old(self) -> None:
        oldest = time.monotonic() - self._seconds
        while self._queries:
            query = next(iter(self._queries.values()))
            if query.created > oldest and self._nbytes <= self._max_bytes:
                return
            self._queries.popitem(last=False)
            self._nbytes -= len(query.jpeg)

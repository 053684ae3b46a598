"""A cache of values by key, limited by their size in bytes."""

import threading
import time
from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class SizedCache(Generic[T]):
    """Values by key; threads may share it.

    max_bytes: if the values take more, those that were not used for longest are dropped.
    seconds: the time after which a value is dropped in any case.
    """

    def __init__(self, max_bytes: int, seconds: float = float("inf")):
        self._max_bytes, self._seconds, self.nbytes = max_bytes, seconds, 0
        self._entries: OrderedDict[str, tuple[T, int, float]] = OrderedDict()  # value, bytes, when it was added
        self._lock = threading.Lock()

    def get(self, key: str) -> T | None:
        with self._lock:
            if key not in self._entries:
                return None
            value, _, added = self._entries[key]
            if time.monotonic() - added > self._seconds:
                self._drop(key)
                return None
            self._entries.move_to_end(key)
            return value

    def put(self, key: str, value: T, nbytes: int) -> None:
        with self._lock:
            if key in self._entries:
                self._drop(key)
            self._entries[key] = value, nbytes, time.monotonic()
            self.nbytes += nbytes
            while self.nbytes > self._max_bytes:
                self._drop(next(iter(self._entries)))

    def _drop(self, key: str) -> None:
        self.nbytes -= self._entries.pop(key)[1]

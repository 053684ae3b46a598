"""JPEG previews of the photos in the index, and a cache of them."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from pathlib import Path

from logt.server.errors import photo_file_missing

SIZES = {"thumb": 480, "large": 2048}
"""Length of the longer side in pixels."""


class ByteCache:
    """Least-recently-used cache of byte strings, limited by their total size; safe to share between threads."""

    def __init__(self, max_bytes: int):
        self._max_bytes, self._nbytes = max_bytes, 0
        self._values: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def get(self, key: str) -> bytes | None:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: str, value: bytes) -> None:
        with self._lock:
            self._nbytes += len(value) - len(self._values.pop(key, b""))
            self._values[key] = value
            while self._nbytes > self._max_bytes:
                self._nbytes -= len(self._values.popitem(last=False)[1])


def thumbnail_key(path: Path, size: str) -> str:
    """Return a key for the preview of a file; it changes when the file changes."""
    try:
        status = path.stat()
    except OSError:
        raise photo_file_missing() from None
    key = f"{path}\0{status.st_mtime_ns}\0{status.st_size}\0{size}"
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:32]

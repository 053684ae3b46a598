"""Pictures of the folder -> small JPEGs for the page; nothing else of a file leaves the service."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from io import BytesIO
from pathlib import Path

from logt.server.errors import HTTPError
from logt.server.photo_collection import read

SIZES = {"thumb": 480, "large": 2048}
"""The longer side in pixels."""


class Cache:
    """The latest used values, up to a number of bytes."""

    def __init__(self, most: int):
        self._most, self._bytes = most, 0
        self._values: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        return self._bytes

    def get(self, key: str) -> bytes | None:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: str, value: bytes) -> None:
        with self._lock:
            self._bytes += len(value) - len(self._values.pop(key, b""))
            self._values[key] = value
            while self._bytes > self._most:
                self._bytes -= len(self._values.popitem(last=False)[1])


def version(path: Path, size: str) -> str:
    """A name of what a picture looks like now; it changes when the file does."""
    try:
        about = path.stat()
    except OSError:
        raise HTTPError(410, "gone", "the file of this picture is gone; index the folder again") from None
    text = f"{path}\0{about.st_mtime_ns}\0{about.st_size}\0{size}"
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def jpeg(path: Path, size: str) -> bytes:
    """The picture, upright, as JPEG without any of its metadata."""
    from PIL.Image import Resampling

    image = read(path, SIZES[size] // 2)
    image.thumbnail((SIZES[size], SIZES[size]), Resampling.LANCZOS)
    image.info.clear()
    out = BytesIO()
    image.save(out, "JPEG", quality=85, optimize=True, progressive=True)
    return out.getvalue()

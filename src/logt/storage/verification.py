"""Checksums of the files of an index: of small files when it is opened, of large ones in the background."""

import hashlib
import math
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal

from logt._internal.types import Array
from logt.errors import CorruptIndexError

Verify = Literal["sizes", "all"]

AT_ONCE = 64 << 20
"""Bytes that are checked before an index is open, which takes about a tenth of a second."""

_PIECE = 16 << 20  # bytes after which a check can be stopped


class Verification:
    """Checks mapped files: none of their bytes ("sizes"), or all of them.

    at_once: bytes that are checked as files are added. Files that do not fit into what is left of them are checked by
    `start` and `finish`.
    """

    def __init__(self, verify: Verify = "all", at_once: float = math.inf):
        self._verify, self._at_once, self._limit = verify, at_once, at_once
        self._waiting: dict[str, tuple[Array, str]] = {}
        self._stopped = False
        self.damage: CorruptIndexError | None = None

    def add(self, path: object, data: Array, about: Mapping[str, Any]) -> None:
        """Check a mapped file, or keep it for later; raise CorruptIndexError if it is damaged.

        about: "bytes" and "checksum" of the file.
        """
        if self._verify == "sizes":
            return
        if len(data) > self._at_once:
            self._waiting[str(path)] = data, about["checksum"]
        else:
            self._at_once -= len(data)
            self._check(str(path), data, about["checksum"])
            self.raise_damage()

    def start(self) -> None:
        if self._waiting:
            threading.Thread(target=self._check_waiting, name="logt-verification", daemon=True).start()

    def finish(self) -> None:
        """Check what is left; raise CorruptIndexError if a file is damaged."""
        self._check_waiting()  # also what the thread has begun: a forked child does not have it
        self.raise_damage()

    def raise_damage(self) -> None:
        """Raise CorruptIndexError if a damaged file was found so far."""
        if self.damage is not None:
            raise self.damage

    def restarted(self) -> "Verification":
        """Return a new one for files that are read again."""
        return Verification(self._verify, self._limit)

    def stop(self) -> None:
        self._stopped = True

    def _check_waiting(self) -> None:
        while self._waiting and self.damage is None and not self._stopped:
            with suppress(StopIteration, RuntimeError):  # another thread has finished a file at this moment
                path = next(iter(self._waiting))
                self._check(path, *self._waiting.get(path, (b"", "")))
                self._waiting.pop(path, None)

    def _check(self, path: str, data: Any, checksum: str) -> None:
        digest = hashlib.blake2b(digest_size=32)
        for start in range(0, len(data), _PIECE):
            if self._stopped:
                return
            digest.update(data[start : start + _PIECE])
        if checksum and digest.hexdigest() != checksum:
            self.damage = CorruptIndexError(f"{path} is damaged: its checksum does not match the manifest")

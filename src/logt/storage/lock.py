"""The folder of an index: the files in it, and the lock of its writer."""

from __future__ import annotations

import fcntl
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from logt.errors import InvalidInputError, LockedError

MANIFEST = "manifest.json"
LOCK = ".lock"
_ARRAYS = r"(memory|segment|sketch|removed|names)-[0-9a-f]{16}\.safetensors"
INDEX_FILE = re.compile(rf"\.lock|{_ARRAYS}|\.(manifest\.json|{_ARRAYS})\.\d+\.tmp")
"""The names of all files of an index but the manifest."""


class Lock:
    """The right to write to one folder; the system releases it when the process ends, however it ends."""

    def __init__(self, folder: Path):
        self._owner, self._file = os.getpid(), -1
        self._file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise LockedError(
                f"another process is writing to {folder}; wait for it, or read with mode='r'"
            ) from error

    def close(self) -> None:
        if self._file >= 0:
            if self._owner == os.getpid():
                fcntl.flock(self._file, fcntl.LOCK_UN)  # a forked child has the file open too
            os.close(self._file)
            self._file = -1

    @property
    def held(self) -> bool:
        return self._file >= 0 and self._owner == os.getpid()

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


@dataclass(frozen=True)
class OpenFolder:
    """Where an index was opened, the generation that was read, and the lock if it may write there."""

    folder: Path
    generation: int
    lock: Lock | None

    @property
    def writable(self) -> bool:
        return self.lock is not None and self.lock.held

    def close(self) -> None:
        if self.lock:
            self.lock.close()


def lock_folder(folder: Path) -> Lock:
    """Lock a folder that is an index or can become one."""
    if folder.exists() and not _is_index(folder):
        raise InvalidInputError(f"{folder} exists and is not an index; choose another path")
    folder.mkdir(parents=True, exist_ok=True)
    return Lock(folder)


def _is_index(folder: Path) -> bool:
    """Return whether a folder is an index, or holds only what a writer of one left."""
    if not folder.is_dir():
        return False
    others = [path.name for path in folder.iterdir() if not INDEX_FILE.fullmatch(path.name)]
    if others == [MANIFEST]:
        return True
    try:
        return not others or "manifest" in json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError, TypeError, RecursionError):
        return False

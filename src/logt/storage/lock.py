"""The lock of the writer of a folder."""

from __future__ import annotations

import os
import weakref
from pathlib import Path

from logt.errors import LockedError
from logt.storage.files import open_here

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
_held: weakref.WeakSet[Lock] = weakref.WeakSet()


class Lock:
    """The right to write to one folder; the system releases it when the process ends, however it ends."""

    def __init__(self, folder: Path):
        self._path, self._owner, self._file = folder / LOCK, os.getpid(), -1
        if fcntl is None:
            raise OSError(f"cannot write to {folder}: this system has no file locks; indexes can only be read here")
        self._file = open_here(self._path, os.O_RDWR)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise LockedError(
                f"another writer, of this process or another, has locked {folder}; wait for it, or read with mode='r'"
            ) from error
        _held.add(self)

    def close(self) -> None:
        if self._file >= 0:
            if self._owner == os.getpid() and fcntl is not None:
                fcntl.flock(self._file, fcntl.LOCK_UN)
            os.close(self._file)
            self._file = -1

    @property
    def held(self) -> bool:
        return self._file >= 0  # not in a forked child: see `_drop_after_fork`

    @property
    def in_place(self) -> bool:
        """Whether the lock file is still the one in the folder: it may have been deleted, or the folder replaced."""
        try:
            return os.path.samestat(os.fstat(self._file), os.stat(self._path))
        except OSError:
            return False

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class NoLock:
    """The right to write to an object store, which has no locks, until it is closed."""

    in_place = True

    def __init__(self) -> None:
        self.held = True

    def close(self) -> None:
        self.held = False


def _drop_after_fork() -> None:
    """Close the files in a forked child, which does not write: with them open, a lock would outlive its parent."""
    for lock in list(_held):
        lock.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_after_fork)

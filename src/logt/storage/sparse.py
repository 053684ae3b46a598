"""Files that are fetched block by block: a local file with holes, which is mapped as if it were whole.

A block that was fetched is noted by its digest, in the same file after the data, so that later processes use it, and
blocks that a crash has damaged are fetched again. A process that has the lock of the file may make holes again; one
that does not get the lock uses a temporary file of its own.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from logt._internal.types import Array, Ids, Mask
from logt.errors import CorruptIndexError
from logt.storage.cache import cache_folder, cache_limit, make_room
from logt.storage.files import checksum, make_folder
from logt.storage.holes import can_punch, punch_hole
from logt.storage.places import RemotePlace

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

BLOCK = 1 << 16
"""Bytes of a block."""

FINE_BLOCK = 1 << 14
"""Bytes of a block of a supplement, of which single rows are read."""

_NEAR = 2  # blocks between two missing ones, up to which all are fetched in one request
_REQUEST = 1 << 23  # bytes of a request, at most
_PAGE = 1 << 16  # the pages of all systems divide it: a hole in the data leaves the digests

Check = Callable[[int, int], None]
"""Raises ValueError unless the bytes from, to are values that can be used."""


class SparseFile:
    """A file of an index by URL, of which some blocks are here; in `data`, the others are 0.

    place: the URL of the index. Blocks are not checked by the checksum of the file, so indexes do not share them.
    """

    def __init__(self, place: str, name: str, about: Mapping[str, Any], block: int):
        self.name, self.size, self.checksum, self.block = name, int(about["bytes"]), str(about["checksum"]), block
        self.checks: list[Check] = []
        self.kept = False  # whole, checked, and never dropped
        self.forked = False  # a child may read what this process would drop
        count = -(-self.size // block)
        self.here: Mask = np.zeros(count, bool)
        self.used: Ids = np.zeros(count, np.int64)  # when each block was requested last
        self.came: Ids = np.zeros(count, np.int64)  # when each block was fetched
        self._end = -(-self.size // _PAGE) * _PAGE  # where the digests start
        self.path = cache_folder() / f"{checksum(place.encode())[:16]}-{self.checksum}-{name}.{block}"
        self._file, self.owned = _open_locked(self.path, self._end + 8 * count)
        weakref.finalize(self, os.close, self._file)
        self.data: Array = np.frombuffer(mmap.mmap(self._file, self.size, access=mmap.ACCESS_READ), np.uint8)
        self._digests: Array = np.frombuffer(os.pread(self._file, 8 * count, self._end), np.uint64).copy()

    def missing(self, wanted: Mask) -> Mask:
        """Return the wanted blocks that have to be fetched; those that an earlier process left are checked."""
        for number in np.flatnonzero(wanted & ~self.here & (self._digests != 0)).tolist():
            if self._digest(number) == self._digests[number]:
                with suppress(ValueError):  # it is fetched again
                    self._accept(number, number + 1)
        return wanted & ~self.here

    def blocks(self, ranges: Ids) -> Mask:
        """Return which blocks have some of these bytes."""
        steps = np.zeros(len(self.here) + 1, np.int64)
        used = ranges[ranges[:, 0] < ranges[:, 1]]
        np.add.at(steps, used[:, 0] // self.block, 1)
        np.add.at(steps, (used[:, 1] - 1) // self.block + 1, -1)
        return np.cumsum(steps[:-1]) > 0

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Return the bytes of the blocks first to last - 1."""
        return first * self.block, min(last * self.block, self.size)

    def write(self, first: int, last: int, data: bytes) -> None:
        """Keep the bytes of the blocks first to last - 1."""
        _write_at(self._file, data, first * self.block)
        self._accept(first, last)
        self._note(first, [self._digest(number) for number in range(first, last)])

    def drop(self, first: int, last: int) -> None:
        """Make a hole of the blocks first to last - 1."""
        self.here[first:last] = False
        self._note(first, [np.uint64(0)] * (last - first))
        start, stop = self.span(first, last)
        punch_hole(self._file, start, stop - start)

    @property
    def nbytes(self) -> int:
        """The bytes that are here, as far as this process knows."""
        return int(np.count_nonzero(self.here)) * self.block

    def _accept(self, first: int, last: int) -> None:
        for check in self.checks:
            check(*self.span(first, last))
        self.here[first:last] = True

    def _note(self, first: int, digests: Sequence[np.uint64]) -> None:
        """Keep the digests of some blocks."""
        self._digests[first : first + len(digests)] = digests
        _write_at(self._file, np.array(digests, np.uint64).tobytes(), self._end + 8 * first)

    def _digest(self, number: int) -> np.uint64:
        start, stop = self.span(number, number + 1)
        digest = hashlib.blake2b(self.data[start:stop].tobytes(), digest_size=8).digest()
        return np.uint64(int.from_bytes(digest) or 1)


def _write_at(file: int, data: bytes, start: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(file, memoryview(data)[done:], start + done)


def _open_locked(path: Path, length: int) -> tuple[int, bool]:
    """Return (an open file of some length, whether it is the one at a path and locked by this process)."""
    make_folder(path.parent)
    file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
    try:
        if fcntl is None:
            raise OSError("this system has no file locks")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file).st_size != length:
            os.ftruncate(file, 0)
            os.ftruncate(file, length)
        os.utime(file)
        return file, True
    except OSError:
        os.close(file)
    with tempfile.TemporaryFile(dir=path.parent) as own:
        os.ftruncate(own.fileno(), length)
        return os.dup(own.fileno()), False


# --------------------------------------------------------------------------------------------------- fetching


class _Blocks:
    """All sparse files of this process, which share the limit of the cache."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.files: weakref.WeakValueDictionary[tuple[Any, ...], SparseFile] = weakref.WeakValueDictionary()
        self.clock = 0
        self.readers: list[int] = []  # when each started

    def tick(self) -> int:
        """Return a new time."""
        self.clock += 1
        return self.clock

    def open(self, place: str, name: str, about: Mapping[str, Any], block: int, key: object) -> SparseFile:
        """Return the file of a place with this content. key: of the checks that its blocks pass."""
        whole_key = (cache_folder(), place, about["checksum"], about["bytes"], name, block, key)
        with self.lock:
            known = self.files.get(whole_key)
            if known is None:
                known = self.files[whole_key] = SparseFile(place, name, about, block)
            return known

    @contextmanager
    def pinned(self) -> Iterator[int]:
        with self.lock:
            start = self.tick()
            self.readers.append(start)
        try:
            yield start
        finally:
            with self.lock, suppress(ValueError):  # unless this is a fork
                self.readers.remove(start)

    def make_room(self, more: int) -> None:
        """Drop what no reader uses and what was used longest ago, until `more` bytes fit the limit."""
        with self.lock:
            files = [file for file in self.files.values() if file.path.parent == cache_folder()]
            hidden = sum(file.nbytes for file in files if not file.owned or not file.path.exists())
            used = make_room(cache_folder(), more + hidden, keep={file.path for file in files if file.owned})
            over = used + hidden + more - cache_limit()
            if over <= 0 or not can_punch():
                return
            oldest = min(self.readers, default=self.clock + 1)
            old = []
            for file in files:
                if not file.kept and not file.forked:
                    idle = np.flatnonzero(file.here & (file.used < oldest)).tolist()
                    old += [(int(file.used[number]), number, file) for number in idle]
            for _, number, file in sorted(old, key=lambda entry: entry[:2]):
                if over <= 0:
                    return
                file.drop(number, number + 1)
                over -= file.block


_blocks = _Blocks()


def _note_fork() -> None:
    for file in list(_blocks.files.values()):
        file.forked = True


def _reset_after_fork() -> None:
    _blocks.lock = threading.RLock()
    _blocks.readers.clear()  # they are threads of the other process


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_note_fork, after_in_child=_reset_after_fork)


class BlockFetcher:
    """Fetches blocks of the files of one place, by range reads."""

    def __init__(self, place: RemotePlace):
        self._place = place
        self.versions = place.versions()

    def open(self, name: str, about: Mapping[str, Any], block: int, key: object) -> SparseFile:
        """Return a file of which nothing has to be here. key: of the checks that its blocks pass."""
        return _blocks.open(self._place.name, name, about, block, key)

    @contextmanager
    def pinned(self) -> Iterator[int]:
        with _blocks.pinned() as start:
            yield start

    def fetch(self, wanted: Sequence[tuple[SparseFile, Ids]], since: int = 0) -> bool:
        together: dict[int, tuple[SparseFile, Mask]] = {}
        for file, ranges in wanted:
            mask = together.setdefault(id(file), (file, np.zeros(len(file.here), bool)))[1]
            mask |= file.blocks(ranges)
        fetched = self._fetch(list(together.values()))
        with _blocks.lock:  # another search may have fetched some meanwhile
            return fetched or any((file.came[mask] > since).any() for file, mask in together.values())

    def _fetch(self, wanted: Sequence[tuple[SparseFile, Mask]]) -> bool:
        requests: list[tuple[SparseFile, int, int]] = []
        with _blocks.lock:
            for file, mask in wanted:
                file.used[mask] = _blocks.clock
                requests += [(file, *run) for run in _runs(file.missing(mask), max(1, _REQUEST // file.block))]
        if not requests:
            return False
        _blocks.make_room(sum((last - first) * file.block for file, first, last in requests))
        spans = [(file.name, *file.span(first, last)) for file, first, last in requests]
        parts = self.read_ranges(spans)
        with _blocks.lock:
            now = _blocks.tick()
            for (file, first, last), data in zip(requests, parts, strict=True):
                try:
                    file.write(first, last, data)
                except ValueError as error:
                    raise self._damaged(file, error) from error
                file.used[first:last] = file.came[first:last] = now
        return True

    def have_all(self, files: Sequence[SparseFile]) -> bool:
        with _blocks.lock:
            if not all(file.here.all() for file in files):
                return False
            for file in files:
                file.used[:] = _blocks.clock
            return True

    def fetch_whole(self, files: Sequence[SparseFile]) -> None:
        with self.pinned():
            self._fetch([(file, np.ones(len(file.here), bool)) for file in files if not file.kept])
            for file in files:
                if not file.kept and checksum(file.data) != file.checksum:
                    with _blocks.lock:
                        file.drop(0, len(file.here))
                    raise CorruptIndexError(
                        f"{self._place.name}/{file.name} is damaged: its checksum does not match the manifest"
                    )
                file.kept = True

    def read(self, file: SparseFile, start: int, stop: int) -> bytes:
        return self.read_ranges([(file.name, start, stop)])[0]

    def read_ranges(self, ranges: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """Return the bytes of some ranges (file, from, to) of files, without keeping them."""
        failure: Exception | None = None
        parts: list[bytes] = []
        try:
            parts = self._place.read_ranges(ranges)
        except Exception as error:  # of the store's own kinds, if a file is missing or too short
            failure = error
        now = self._place.versions()
        for name in dict.fromkeys(name for name, _, _ in ranges):
            if now.get(name) != self.versions.get(name):
                what = "was changed" if name in now else "was removed"
                raise CorruptIndexError(
                    f"{self._place.name}/{name} {what} since it was opened; "
                    "if another has saved the index meanwhile, call refresh()"
                ) from failure
        if failure is not None:
            raise failure
        for (name, start, stop), data in zip(ranges, parts, strict=True):
            if len(data) != stop - start:
                raise CorruptIndexError(
                    f"{self._place.name}/{name} is damaged: it ends at byte {start + len(data):,}"
                )
        return parts

    def _damaged(self, file: SparseFile, error: ValueError) -> CorruptIndexError:
        return CorruptIndexError(f"{self._place.name}/{file.name} is damaged: {error}")


def _runs(mask: Mask, most: int) -> list[tuple[int, int]]:
    """Return runs (from, to) of at most `most` blocks that have all that are set; short gaps are included."""
    at = np.flatnonzero(mask)
    if not len(at):
        return []
    cuts = np.flatnonzero(np.diff(at) > _NEAR) + 1
    runs = []
    for part in np.split(at, cuts):
        first, last = int(part[0]), int(part[-1]) + 1
        runs += [(start, min(start + most, last)) for start in range(first, last, most)]
    return runs

"""The files of an index at one location: a manifest, segments, and a write-ahead log of changes since it was written.

Array files are named by their checksum and never changed. A new generation is either new files and then a new
manifest, or one record that is appended to the log. So there is the old state or the new one, whatever is
interrupted. Readers map the files of the generation they opened, and keep them when a writer removes them. There is
no log at a URL. See docs/reference/format.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from logt._internal.memory import memory_bytes
from logt._internal.types import Array
from logt.errors import ConflictError, CorruptIndexError
from logt.storage import changes
from logt.storage.changes import Change, Position, log_path, start_of_log
from logt.storage.locations import Location, is_url, local_path, location_at
from logt.storage.lock import Lock, NoLock
from logt.storage.manifest import FORMAT, misfit_is_corruption, stage_to_json, state_of
from logt.storage.reading import ManifestReader
from logt.storage.verification import Verification
from logt.storage.writing import FileNames, StoredIndex, Writer

T = TypeVar("T")


class Store:
    """The files of an index, open for reading, or for writing with a lock."""

    def __init__(self, location: Location, lock: Lock | NoLock | None = None):
        self.location, self.name, self._lock = location, location.name, lock
        self._state: str | None = None  # of the manifest that was read or written last
        self.position = Position(0, 0, b"")  # what was found, read or written last
        self.replaces_index = False  # there was an index, even a damaged one, when this store was created
        self._files: Mapping[str, dict[str, Any]] = {}
        self._names = FileNames()
        self._loaded: dict[str, Mapping[str, Array]] = {}  # the mapped files of that manifest, by checksum
        self._attempt: tuple[Mapping[str, Any], FileNames] | None = None  # may or may not have been committed
        self.verification = Verification()

    # -------------------------------------------------------------------------------------- opening and closing

    @classmethod
    def create(cls, path: object) -> Store:
        """Prepare to write an index to a path or URL; what it holds will be replaced."""
        location = location_at(path)
        store = cls(location, location.lock(create=True))
        try:
            store.replaces_index = location.holds_index()
            store.position = last_position(location)
        except (CorruptIndexError, FileNotFoundError):
            store.position = Position(0, location.newest_generation(), b"")
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def open(cls, path: object, *, write: bool) -> Store:
        """Open the index at a path or URL."""
        location = location_at(path)
        location.read_manifest()  # do not leave a lock file where there is no index
        return cls(location, location.lock() if write else None)

    def is_at(self, path: object) -> bool:
        """Return whether a path or URL is that of this store."""
        return (str(path).rstrip("/") if is_url(path) else str(local_path(path))) == self.name

    @property
    def writable(self) -> bool:
        return self._lock is not None and self._lock.held

    @property
    def generation(self) -> int:
        """The number of the state that was read or written last; it increases with each save."""
        return self.position.generation

    def close(self) -> None:
        if self._lock:
            self._lock.close()

    def forget(self) -> None:
        """Forget which state was read last, so that the next read reads everything."""
        self._state, self._loaded = None, {}
        self.verification.stop()
        self.verification = self.verification.restarted()

    def stop_verification(self) -> None:
        self.verification.stop()

    @contextmanager
    def locking(self, *, reread: bool) -> Iterator[None]:
        """Lock a store that is open for reading, and keep the lock unless the body raises.

        reread: forget which state was read last, so that the body reads everything.
        """
        lock = self.location.lock()
        try:
            if reread:
                self.forget()
            yield
        except BaseException:
            lock.close()
            raise
        self._lock = lock

    # -------------------------------------------------------------------------------------------------- reading

    def read(self) -> tuple[StoredIndex, list[Change]]:
        """Return what the manifest holds, and the changes since; any byte that is not as written raises an error."""

        def read_files(manifest: Any) -> tuple[FileNames, StoredIndex, list[Change], Position]:
            with misfit_is_corruption(self.name):
                reader = self.reader(manifest)
                return reader.names, reader.index(), *read_log(self.location, manifest, locked=self.writable)

        manifest, (names, stored, log, end) = read_one_state(self.location, read_files)
        self._note(manifest, names, end)
        return stored, self._with_models(log)

    def reader(self, manifest: Mapping[str, Any]) -> ManifestReader:
        files = manifest["files"]
        fits = _fit_in_memory(files)

        def load(name: str) -> Mapping[str, Array]:
            about = files[name]
            if about["checksum"] not in self._loaded:
                large_pages = fits and name.startswith(("segment-", "graph-"))  # of which a search reads much
                self._loaded[about["checksum"]] = self.location.read_arrays(
                    name, about, large_pages=large_pages, verification=self.verification
                )
            return self._loaded[about["checksum"]]

        return ManifestReader(manifest, load)

    def read_changes(self) -> list[Change] | None:
        """Return the changes since the last read, or None if everything must be read again.

        That is so if the manifest was replaced, or a record that was read could not be flushed and was removed.
        """
        if not self._is_current():
            return None
        if self.location.folder is None:
            return []
        path = log_path(self.location.folder, self._state)
        log, end, wrong = changes.read(path, self.position, locked=self.writable)
        if wrong is not None or not self._is_current():
            return None
        self.position = end
        return self._with_models(log)

    def _with_models(self, log: Sequence[Change]) -> list[Change]:
        """Return changes of the log with the models whose files they name."""
        with misfit_is_corruption(self.name):
            models = {name: self._names.of(name) for name in {change.model for change in log} - {None}}
        return [replace(change, model=models[change.model]) if change.model else change for change in log]

    def _is_current(self) -> bool:
        """Whether the present manifest is still the one that was read or written last."""
        return bool(self.location.read_manifest()["state"] == self._state)

    # -------------------------------------------------------------------------------------------------- writing

    def append(self, pending: Sequence[Change]) -> bool:
        """Add changes to the write-ahead log as one generation; they are on disk when this returns True.

        Return False if only new files can hold them: there is no log, it would grow too large, or its end is lost.
        """
        folder = self.location.folder
        named = [replace(change, model=self._names.find(change.model)) for change in pending]
        unknown = any(change.kind == "add" and change.model is None for change in named)
        if self._state is None or folder is None or unknown:
            return not pending and self._state is not None
        if pending:
            path = log_path(folder, self._state)
            if not changes.is_whole(path, self.position):
                return False
            self._check_unchanged()
            end = changes.append(path, self.position, named, changes.limit_of_log(self._files))
            if end is None:
                return False
            self.position = end
        return True

    def write(self, stored: StoredIndex) -> None:
        """Write a new manifest and the files that it needs. Files that did not change are not read or written.

        Files of older generations, or of a writer that died, are removed at the end.
        """
        json.dumps([dict(stored.settings), stage_to_json(stored.method)])  # refused before anything is written
        self._check_unchanged()
        writer = Writer(self.location.write, self._files, self._names, self.location.salt)
        manifest = writer.manifest(stored, self.generation + 1)
        self._commit(manifest, writer.names, new=manifest["files"].keys() - self._files.keys())

    def write_entries(self, contents: Mapping[str, Any], files: Mapping[str, dict[str, Any]]) -> None:
        """Write a new manifest for files that are there already.

        contents: settings, method, models, segments and strings. files: length and checksum of each file.
        """
        self._check_unchanged()
        manifest = {"format": FORMAT, "generation": self.generation + 1, **contents, "files": dict(files)}
        self._commit(manifest, FileNames())

    def _commit(self, manifest: dict[str, Any], names: FileNames, new: Iterable[str] = ()) -> None:
        manifest = {**manifest, "state": state_of(manifest)}
        self._attempt = manifest, names
        try:
            self.location.commit(manifest, new)
        except ConflictError:
            self._files, self._names = {}, FileNames()  # the next attempt writes all files again
            raise
        self._note(manifest, names, start_of_log(manifest))

    def _note(self, manifest: Mapping[str, Any], names: FileNames, end: Position) -> None:
        self._state, self._files, self._names, self.position = manifest["state"], manifest["files"], names, end
        present = {about["checksum"] for about in self._files.values()}
        self._loaded = {key: arrays for key, arrays in self._loaded.items() if key in present}
        self._attempt = None

    def _check_unchanged(self) -> None:
        """Raise unless the location still holds what this writer read or wrote last, and its lock."""
        if self._lock is None or not self._lock.in_place:
            raise ConflictError(
                f"{self.name} was replaced, or its lock was deleted, since it was opened; nothing was written. "
                "Save to another path, or open it again"
            )
        try:
            state = self.location.read_manifest()["state"]
        except (FileNotFoundError, CorruptIndexError):
            state = None
        if self._attempt is not None and state == self._attempt[0]["state"]:
            self._note(*self._attempt, start_of_log(self._attempt[0]))  # written, though something failed after that
        if self._state is not None and state != self._state:
            raise ConflictError(
                f"{self.name} was written by another since it was opened; nothing was written. "
                "Save to another path, or open it again"
            )


def read_one_state(location: Location, read: Callable[[Any], T]) -> tuple[Any, T]:
    """Return a manifest and what `read(manifest)` returns; read again if a writer replaces the manifest meanwhile."""
    while True:
        manifest = location.read_manifest()
        try:
            found = read(manifest)
        except CorruptIndexError:
            if location.read_manifest() == manifest:
                raise
            continue  # the writer has removed files of the old generation
        if location.read_manifest() == manifest:
            return manifest, found


def read_log(
    location: Location, manifest: Mapping[str, Any], *, locked: bool = False
) -> tuple[list[Change], Position]:
    """Return the changes since a manifest was written, and where they end. locked: as in `changes.read`."""
    start = start_of_log(manifest)
    if location.folder is None:
        return [], start
    log, end, wrong = changes.read(log_path(location.folder, manifest["state"]), start, locked=locked)
    if wrong is not None:
        raise CorruptIndexError(wrong)
    return log, end


def last_position(location: Location) -> Position:
    """Return the present state of a location; without the log, if that is damaged."""
    manifest = location.read_manifest()
    try:
        return read_log(location, manifest)[1]
    except CorruptIndexError:
        return start_of_log(manifest)


def _fit_in_memory(files: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether the files that stay in memory take at most half of it."""
    needed = sum(about["bytes"] for name, about in files.items() if not name.startswith("refinement-"))
    return bool(needed <= (memory_bytes() or 0) // 2)

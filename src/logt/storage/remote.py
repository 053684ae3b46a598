"""An index in an object store, by URL: the files of a folder, and one manifest per generation.

Array files are named by their checksum and never change. A new generation is new files and then a new object
manifest-GENERATION.json, which is created only if there is none: of two writers, one gets a ConflictError. Readers
use the manifest with the highest number. The files of the generation before are kept, for those who still read it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from logt._internal.types import Array
from logt.errors import ConflictError, CorruptIndexError, InvalidInputError
from logt.storage import changes
from logt.storage.cache import cached_file
from logt.storage.changes import Change
from logt.storage.files import checksum, read_array_file
from logt.storage.manifest import (
    manifest_bytes,
    parse_manifest,
    state_of,
)
from logt.storage.places import RemotePlace
from logt.storage.store import INDEX_FILE, Store
from logt.storage.writing import StoredIndex, Writer

_MANIFEST = re.compile(r"manifest-(\d{12})\.json")

_ATTEMPTS = 3  # to read a file from the cache, which other processes use too

ORPHAN_SECONDS = 7 * 24 * 3600
"""After this time, files that no manifest names are removed by the next commit: no build takes as long."""


class RemoteStore(Store):
    """An index by URL. There is no lock: a commit fails if another writer has committed since the index was read."""

    def __init__(self, url: str, *, write: bool):
        self.place = RemotePlace(url)
        super().__init__(Path(), None)
        self.name, self._write_mode = self.place.name, write
        self._manifest: Any = None

    @classmethod
    def create(cls, folder: Any) -> RemoteStore:
        """Prepare to write to a URL; what it holds will be replaced."""
        store = cls(str(folder), write=True)
        generation = max(store._generations(), default=0)
        store._end = changes.start_of_log("", generation)
        return store

    @classmethod
    def open(cls, folder: Any, *, write: bool) -> RemoteStore:
        """Open the index at a URL."""
        store = cls(str(folder), write=write)
        store._read_newest()
        return store

    @property
    def writable(self) -> bool:
        return self._write_mode

    def close(self) -> None:
        self._write_mode = False

    @contextmanager
    def locking(self, *, reread: bool) -> Iterator[None]:
        if reread:
            self.forget()
        yield
        self._write_mode = True

    # -------------------------------------------------------------------------------------------------- reading

    def _generations(self) -> list[int]:
        return [int(found[1]) for name in self.place.names() if (found := _MANIFEST.fullmatch(name))]

    def _read_newest(self) -> Any:
        """Return the manifest of the newest generation."""
        while generation := max(self._generations(), default=0):
            name = f"manifest-{generation:012d}.json"
            try:
                return parse_manifest(self.place.read(name), f"{self.name}/{name}")
            except FileNotFoundError:
                continue  # two commits since it was listed
        raise FileNotFoundError(f"{self.name} holds no index: it has no manifest")

    def current_manifest(self) -> Any:
        return self._read_newest()

    def has_log(self, manifest: Any) -> bool:
        return False

    def read(self) -> tuple[StoredIndex, list[Change]]:
        while True:
            manifest = self._read_newest()
            try:
                stored = self._read_manifest(manifest)
            except (CorruptIndexError, FileNotFoundError):
                if self._read_newest() == manifest:
                    raise
                continue  # a writer has removed the files meanwhile
            self._state, self._end = manifest["state"], changes.start_of_log("", manifest["generation"])
            self._files, self._manifest = dict(manifest["files"]), manifest
            return stored, []

    def read_changes(self) -> list[Change] | None:
        return [] if max(self._generations(), default=0) == self.generation and self._state is not None else None

    def _load(self, name: str, about: Mapping[str, Any]) -> dict[str, Array]:
        for attempt in range(_ATTEMPTS):
            path = cached_file(self.place, name, about)
            try:
                return read_array_file(path, about, large_pages=self._large_pages(name))
            except CorruptIndexError:  # damaged in the cache, or removed from it meanwhile
                path.unlink(missing_ok=True)
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError

    # -------------------------------------------------------------------------------------------------- writing

    def has_room(self, nbytes: int, count: int) -> bool:
        """Return whether nothing is to be written: there is no log of changes."""
        return not count

    def append(self, pending: Sequence[Change]) -> None:
        raise InvalidInputError(f"{self.name} has no log of changes")

    def _check_unchanged(self) -> None:
        """Do nothing: a commit fails if another writer has committed."""

    def _writer(self) -> Writer:
        return Writer(self._put, self._files, self._names)

    def _put(self, name: str, data: bytes) -> None:
        """Write a file, unless it is there: the name is that of its content."""
        if self.place.size(name) != len(data):
            self.place.write(name, data)

    def _commit(self, manifest: dict[str, Any], writer: Writer) -> None:
        state = state_of(manifest)
        generation = manifest["generation"]
        try:
            self.place.create(f"manifest-{generation:012d}.json", manifest_bytes({**manifest, "state": state}))
        except FileExistsError:
            raise ConflictError(
                f"{self.name} was written by another since it was opened; nothing was changed. "
                "Open it again, or save to another URL"
            ) from None
        self._state, self._end = state, changes.start_of_log("", generation)
        self._files, self._names = writer.files, writer.names
        self._collect(generation)

    def _collect(self, generation: int) -> None:
        """Remove the files of generations before the last one, and old files that no manifest names."""
        kept, old = set(), set()
        for number in self._generations():
            name = f"manifest-{number:012d}.json"
            try:
                named = set(parse_manifest(self.place.read(name), name)["files"])
            except (FileNotFoundError, CorruptIndexError):
                continue
            if number >= generation - 1:
                kept |= named
            else:
                old |= named
                self.place.remove(name)
        for name, age in self.place.ages().items():
            if INDEX_FILE.fullmatch(name) and name not in kept and (name in old or age > ORPHAN_SECONDS):
                self.place.remove(name)


def check_files(url: str) -> None:
    """Read all files of the index at a URL, past the cache; raise CorruptIndexError if one is damaged."""
    store = RemoteStore.open(url, write=False)
    for name, about in store.current_manifest()["files"].items():
        try:
            data = store.place.read(name)
        except FileNotFoundError:
            raise CorruptIndexError(f"{url}/{name} is missing") from None
        if len(data) != about["bytes"] or checksum(data) != about["checksum"]:
            raise CorruptIndexError(f"{url}/{name} is damaged: its checksum does not match the manifest")


def stored_bytes(url: str) -> int:
    """Return the bytes of all files at a URL."""
    return sum(size for size, _ in RemotePlace(url).versions().values())

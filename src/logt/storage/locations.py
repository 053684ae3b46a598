"""Locations of indexes and other files: a local folder, or anything that fsspec opens by URL (s3://, gs://, ...).

In a folder, a new manifest replaces the old one, and a writer has a lock. In an object store there is no lock. Each
generation has its own object manifest-GENERATION.json, which is created only if there is none: of two writers, one
gets a ConflictError. Readers use the manifest with the highest number. The files of the generation before are kept,
for those who still read it.
"""

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from logt._internal.extras import needs_extra
from logt._internal.types import Array
from logt.errors import ConflictError, CorruptIndexError, InvalidInputError
from logt.storage.cache import read_cached
from logt.storage.files import (
    checksum,
    file_size,
    flush_folder,
    make_folder,
    open_here,
    read_array_file,
    read_bytes,
    replace_file,
)
from logt.storage.lock import LOCK, Lock, NoLock
from logt.storage.manifest import (
    ARRAY_FILE,
    INDEX_FILE,
    MANIFEST,
    MAX_MANIFEST,
    UNFINISHED,
    manifest_bytes,
    parse_manifest,
)

ORPHAN_SECONDS = 7 * 24 * 3600
"""After this time, files at a URL that no manifest names are removed by the next commit: no build takes as long."""

MANIFEST_NAME = re.compile(r"manifest(-\d{12})?\.json")
"""The names of manifests, in a folder and by URL."""

_SUPERSEDED = re.compile(rb"superseded ([0-9a-f]{32})\n")  # takes the place of an old manifest at a URL; its state
_SUPERSEDED_SIZE = len(b"superseded \n") + 32
_TIMES = ("LastModified", "last_modified", "mtime", "created")  # what stores call the time of writing


def is_url(path: object) -> bool:
    """Return whether a path is a URL, such as s3://bucket/index; file:// URLs are local paths."""
    return "://" in str(path) and not str(path).startswith("file://")


def local_path(path: object) -> Path:
    """Return a local path, or the path of a file:// URL."""
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(name, str):
        raise InvalidInputError(f"a path must be a string or a Path, got {path!r}")
    name = name.removeprefix("file://")
    if not name or "\0" in name:
        raise InvalidInputError(f"{name!r} is not a path")
    return Path(name).resolve()


def file_system(url: str) -> tuple[Any, str]:
    """Return (the file system of fsspec for a URL or local path, the path in it)."""
    try:
        with needs_extra("cloud", f"{url} needs more packages"):  # fsspec, or what it needs for this kind of URL
            import fsspec

            return fsspec.core.url_to_fs(str(url))  # type: ignore[no-any-return]
    except ValueError as error:
        raise InvalidInputError(f"{url} cannot be opened: {error}") from error


class LocalLocation:
    """A folder on a disk of this machine, or one that all machines share.

    salt: goes into the names of new files. At a URL, no two writers write the same name: a file that one of them
    removes is not one that the other is about to commit.
    """

    def __init__(self, folder: Path):
        self.folder, self.name, self.salt = folder, str(folder), ""
        self._manifest: tuple[bytes, Any] = b"", None  # what was read last, and what it means

    def read(self, name: str) -> bytes:
        """Return the bytes of a file; raise FileNotFoundError if there is none."""
        return (self.folder / name).read_bytes()

    def read_arrays(self, name: str, about: Mapping[str, Any], **options: Any) -> dict[str, Array]:
        """Return the arrays of a file of an index, mapped. options: those of `read_array_file`."""
        return read_array_file(self.folder / name, about, **options)

    def write(self, name: str, data: bytes) -> None:
        """Write a file, so that it is there as a whole or not at all."""
        replace_file(self.folder / name, data)

    def names(self) -> list[str]:
        return [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []

    def size(self, name: str) -> int | None:
        """Return the bytes of a file, None if there is none."""
        return file_size(self.folder / name)

    def remove(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def lock(self, *, create: bool = False) -> Lock:
        """Return the right to write an index; raise LockedError if another writer has it.

        create: make the folder, if there is none; raise InvalidInputError if there is something else.
        """
        if create:
            if self.folder.exists() and not _is_index(self.folder):
                raise InvalidInputError(f"{self.folder} exists and is not an index; choose another path")
            make_folder(self.folder)
        lock = Lock(self.folder)
        try:
            self._clean()
            flush_folder(self.folder)  # the names that a writer that was killed could not flush
            if create and not self.holds_index():
                os.close(open_here(self.folder / UNFINISHED, os.O_WRONLY))
        except BaseException:
            lock.close()
            raise
        return lock

    def _clean(self) -> None:
        """Remove what a writer that was killed has left."""
        for left in self.folder.glob(".*.tmp"):
            if INDEX_FILE.fullmatch(left.name):
                left.unlink(missing_ok=True)
        if (self.folder / MANIFEST).exists():
            self.remove(UNFINISHED)

    def holds_index(self) -> bool:
        """Return whether there is an index, even a damaged one, and not only what a killed first save has left."""
        names = self.names()
        return MANIFEST in names or (UNFINISHED not in names and any(re.fullmatch(ARRAY_FILE, n) for n in names))

    def read_manifest(self) -> Any:
        """Return the present manifest; raise FileNotFoundError if there is no index."""
        path = self.folder / MANIFEST
        try:
            text = read_bytes(path, MAX_MANIFEST)
            if text != self._manifest[0]:
                self._manifest = text, parse_manifest(text, path)
            return self._manifest[1]
        except (FileNotFoundError, NotADirectoryError):
            if self.folder.is_dir():
                reason = f"it has no {MANIFEST}"
            else:
                reason = "it is a file" if self.folder.exists() else "this path does not exist"
            raise FileNotFoundError(f"{self.folder} holds no index: {reason}") from None

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Replace the manifest, and remove nothing."""
        self.write(MANIFEST, manifest_bytes(manifest))

    def newest_generation(self) -> int:
        """Return the generation of the present manifest, even of a damaged one; 0 if that is not known."""
        return 0

    def commit(self, manifest: Mapping[str, Any], new: Iterable[str] = ()) -> None:
        """Write a manifest whose files are there, and remove files that are not needed any more.

        new: files that no other manifest names. At a URL, they are removed if another writer was first.
        """
        self.write_manifest(manifest)
        remove_other_files(self.folder, manifest["files"])


def _is_index(folder: Path) -> bool:
    """Return whether a folder is an index, even a damaged one, or holds only what a writer of one left.

    A folder with nothing but a manifest.json that another program wrote is not an index.
    """
    if not folder.is_dir():
        return False
    names = [path.name for path in folder.iterdir()]
    ours = [name for name in names if INDEX_FILE.fullmatch(name)]
    if MANIFEST not in names:
        return len(ours) == len(names)
    if ours:
        return True
    path = folder / MANIFEST
    return path.is_file() and b'"generation"' in path.read_bytes() and b'"segments"' in path.read_bytes()


def remove_other_files(folder: Path, names: Iterable[str]) -> None:
    """Remove the files of an index that its present state does not have."""
    kept = {*names, LOCK}
    for path in folder.iterdir():
        if INDEX_FILE.fullmatch(path.name) and path.name not in kept:
            path.unlink(missing_ok=True)


class RemoteLocation:
    """A prefix in an object store, by URL; `LocalLocation` describes the methods that both have."""

    folder = None

    def __init__(self, url: str):
        self.name = url.rstrip("/")
        self.salt = os.urandom(16).hex()
        self._files, self._path = file_system(self.name)

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"

    def read(self, name: str) -> bytes:
        return bytes(self._files.cat_file(self._at(name)))

    def read_checked(self, name: str, about: Mapping[str, Any]) -> bytes:
        """Return the bytes of a file of an index; raise CorruptIndexError if they are not as written."""
        try:
            data = self.read(name)
        except FileNotFoundError:
            raise CorruptIndexError(f"{self.name}/{name} is missing") from None
        if len(data) != about["bytes"] or checksum(data) != about["checksum"]:
            raise CorruptIndexError(f"{self.name}/{name} is damaged: its checksum does not match the manifest")
        return data

    def read_arrays(
        self, name: str, about: Mapping[str, Any], *, large_pages: bool = False, verification: object = None
    ) -> dict[str, Array]:
        """Return the arrays of a file, checked at once: one that is damaged in the cache is fetched again."""
        return read_cached(name, about, lambda: self.read_checked(name, about), large_pages=large_pages)

    def write(self, name: str, data: bytes) -> None:
        self._files.pipe_file(self._at(name), data)  # also if it is there: another writer may be about to remove it

    def create(self, name: str, data: bytes) -> None:
        """Write a new file; raise FileExistsError if there is one, even if it is written at the same moment.

        A store without conditional writes checks first, and two writers at the same moment are not noticed.
        """
        try:
            self._files.pipe_file(self._at(name), data, mode="create")
        except (NotImplementedError, TypeError):
            if self.size(name) is not None:
                raise FileExistsError(self._at(name)) from None
            self.write(name, data)

    def names(self) -> list[str]:
        return list(self._list())

    def _list(self) -> dict[str, Mapping[str, Any]]:
        """Return what the store reports of each file, by its name."""
        self._files.invalidate_cache(self._path)
        try:
            found = self._files.ls(self._path, detail=True)
        except FileNotFoundError:
            return {}
        return {about["name"].rsplit("/", 1)[-1]: about for about in found if about["type"] == "file"}

    def size(self, name: str) -> int | None:
        self._files.invalidate_cache(self._path)
        try:
            return int(self._files.info(self._at(name))["size"])
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._files.rm_file(self._at(name))

    @property
    def nbytes(self) -> int:
        return sum(int(about["size"] or 0) for about in self._list().values())

    def check_files(self) -> None:
        """Read all files of the index, past the cache; raise CorruptIndexError if one is damaged."""
        for name, about in self.read_manifest()["files"].items():
            self.read_checked(name, about)

    def lock(self, *, create: bool = False) -> NoLock:
        return NoLock()

    def holds_index(self) -> bool:
        return self.newest_generation() > 0

    def read_manifest(self) -> Any:
        before = 0
        while generation := self.newest_generation():
            name = _manifest_name(generation)
            with suppress(FileNotFoundError):
                data = self.read(name)
                if not _SUPERSEDED.fullmatch(data):
                    return parse_manifest(data, f"{self.name}/{name}")
            if generation == before:  # otherwise two commits may have superseded it since it was listed
                raise CorruptIndexError(
                    f"{self.name}/{name} was superseded, but there is no newer manifest; "
                    "restore that, or save another index here with overwrite=True"
                )
            before = generation
        raise FileNotFoundError(f"{self.name} holds no index: it has no manifest")

    def newest_generation(self) -> int:
        return max(self._generations(), default=0)

    def _generations(self) -> list[int]:
        found = (MANIFEST_NAME.fullmatch(name) for name in self.names())
        return [int(name[1][1:]) for name in found if name and name[1]]

    def commit(self, manifest: Mapping[str, Any], new: Iterable[str] = ()) -> None:
        missing = manifest["files"].keys() - self._list().keys()
        if missing:
            self._remove_all(new)
            raise ConflictError(
                f"{self.name}: another writer has removed {min(missing)} and {len(missing) - 1} other files; "
                "nothing was changed. Save or build again"
            )
        self.salt = os.urandom(16).hex()  # what is sent may arrive later: no other manifest names the same files
        name = _manifest_name(manifest["generation"])
        try:
            self.create(name, manifest_bytes(manifest))
        except FileExistsError:
            stored = self._stored_state(name)
            if stored != manifest["state"]:  # otherwise the manifest was sent twice
                self._remove_all(new if stored else ())
                outcome = "nothing was changed" if stored else "it is not known whether this save is stored"
                raise ConflictError(
                    f"{self.name} was written by another since it was opened; {outcome}. "
                    "Open it again, or save to another URL"
                ) from None
        self._collect(manifest["generation"])

    def _remove_all(self, names: Iterable[str]) -> None:
        for name in names:
            self.remove(name)

    def _stored_state(self, name: str) -> str | None:
        """Return the state of the manifest that got a name, even if it is superseded; None if that is not known."""
        try:
            data = self.read(name)
            superseded = _SUPERSEDED.fullmatch(data)
            return superseded[1].decode() if superseded else str(parse_manifest(data, name)["state"])
        except (FileNotFoundError, CorruptIndexError):
            return None

    def _collect(self, generation: int) -> None:
        """Remove the files of generations before the last one, and old files that no manifest names.

        A file that was written again since may be of a save that is not committed yet. The name of a manifest stays
        for as long, so that a save that began before it existed cannot use it. Times are those of the store.
        """
        files = self._list()
        kept: set[str] = set()
        old: set[str] = set()
        for number in self._generations():
            name = _manifest_name(number)
            if files.get(name, {}).get("size") == _SUPERSEDED_SIZE:
                continue
            try:
                manifest = parse_manifest(self.read(name), name)
            except (FileNotFoundError, CorruptIndexError):
                continue
            if number >= generation - 1:
                kept |= manifest["files"].keys()
            else:
                old |= manifest["files"].keys()
                self.write(name, f"superseded {manifest['state']}\n".encode())
        now, before = (_written(files.get(_manifest_name(number), {})) for number in (generation, generation - 1))
        for name, about in files.items():
            left = MANIFEST_NAME.fullmatch(name) and about["size"] == _SUPERSEDED_SIZE
            if name in kept or not (left or INDEX_FILE.fullmatch(name)):
                continue
            written = _written(about)
            superseded = name in old and written <= before
            if superseded or now - written > ORPHAN_SECONDS:
                self.remove(name)


def _manifest_name(generation: int) -> str:
    return f"manifest-{generation:012d}.json"


def _written(about: Mapping[str, Any]) -> float:
    """Return when a file was written, in seconds, from what a store reports of it; 0 if it does not know."""
    written = next((about[key] for key in _TIMES if about.get(key)), None)
    if not isinstance(written, datetime):
        return 0.0
    return (written if written.tzinfo else written.replace(tzinfo=UTC)).timestamp()


Location = LocalLocation | RemoteLocation


def location_at(path: object) -> Location:
    """Return the location at a path or URL."""
    return RemoteLocation(str(path)) if is_url(path) else LocalLocation(local_path(path))

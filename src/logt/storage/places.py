"""Places that files are kept in: a local folder, or anything that fsspec opens by URL (s3://, gs://, ...)."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from logt.errors import InvalidInputError, MissingExtraError
from logt.storage.files import replace_file

_CONTENT = ("ETag", "etag", "md5Hash", "content_md5", "generation")  # of stores that have them
_TIMES = ("LastModified", "last_modified", "mtime", "created")


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
        import fsspec

        return fsspec.core.url_to_fs(str(url))  # type: ignore[no-any-return]
    except ImportError as error:  # fsspec itself, or what it needs for this kind of URL
        raise MissingExtraError(f'{url} needs more packages: pip install "logt-search[cloud]" ({error})') from error
    except ValueError as error:
        raise InvalidInputError(f"{url} cannot be opened: {error}") from error


class Place(ABC):
    """A folder of immutable files. `name` is its path or URL."""

    name: str

    @abstractmethod
    def read(self, name: str, start: int | None = None, stop: int | None = None) -> bytes:
        """Return the bytes of a file, or of a range of it; raise FileNotFoundError if there is none."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Write a file, so that it is there as a whole or not at all."""

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of all files."""

    @abstractmethod
    def size(self, name: str) -> int | None:
        """Return the bytes of a file, None if there is none."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file, if there is one."""


class LocalPlace(Place):
    """A folder on a disk of this machine, or one that all machines share."""

    def __init__(self, folder: Path):
        self.folder, self.name = folder, str(folder)

    def read(self, name: str, start: int | None = None, stop: int | None = None) -> bytes:
        with open(self.folder / name, "rb") as file:
            file.seek(start or 0)
            return file.read(-1 if stop is None else stop - (start or 0))

    def write(self, name: str, data: bytes) -> None:
        replace_file(self.folder / name, data)

    def names(self) -> list[str]:
        return [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []

    def size(self, name: str) -> int | None:
        path = self.folder / name
        return path.stat().st_size if path.is_file() else None

    def remove(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)


class RemotePlace(Place):
    """A prefix in an object store, by URL."""

    def __init__(self, url: str):
        self.name = url.rstrip("/")
        self._files, self._path = file_system(self.name)

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"

    def read(self, name: str, start: int | None = None, stop: int | None = None) -> bytes:
        return bytes(self._files.cat_file(self._at(name), start=start, end=stop))

    def write(self, name: str, data: bytes) -> None:
        self._files.pipe_file(self._at(name), data)

    def create(self, name: str, data: bytes) -> None:
        """Write a new file; raise FileExistsError if there is one, even if it is written at the same moment.

        A store without conditional writes checks first, and two writers at the same moment are not noticed.
        """
        try:
            self._files.pipe_file(self._at(name), data, mode="create")
        except FileExistsError:
            raise
        except (NotImplementedError, TypeError):
            if self._files.exists(self._at(name), refresh=True):
                raise FileExistsError(self._at(name)) from None
            self._files.pipe_file(self._at(name), data)

    def names(self) -> list[str]:
        return list(self._list())

    def versions(self) -> dict[str, tuple[int, str]]:
        """Return the bytes of all files, and what changes if a file is written again."""
        found = {}
        for name, about in self._list().items():
            marks = [about[key] for key in _CONTENT if about.get(key)] or [about.get(key) for key in _TIMES]
            found[name] = int(about["size"] or 0), repr(marks)
        return found

    def _list(self) -> dict[str, Any]:
        """Return what the store knows of each file, by name."""
        self._files.invalidate_cache(self._path)
        try:
            found = self._files.ls(self._path, detail=True)
        except FileNotFoundError:
            return {}
        return {about["name"].rsplit("/", 1)[-1]: about for about in found if about["type"] == "file"}

    def ages(self) -> dict[str, float]:
        """Return the seconds since each file was written; 0 where the store does not know."""
        now = datetime.now(UTC)
        found = {}
        for name, about in self._list().items():
            written = next((about[key] for key in _TIMES if about.get(key)), None)
            if isinstance(written, datetime):
                written = written if written.tzinfo else written.replace(tzinfo=UTC)
                found[name] = (now - written).total_seconds()
            else:
                found[name] = 0.0
        return found

    def size(self, name: str) -> int | None:
        self._files.invalidate_cache(self._path)
        try:
            return int(self._files.info(self._at(name))["size"])
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        try:
            self._files.rm_file(self._at(name))
        except FileNotFoundError:
            return


def place_at(path: object) -> Place:
    """Return the place at a path or URL."""
    return RemotePlace(str(path)) if is_url(path) else LocalPlace(local_path(path))

"""The local cache of files that are stored by URL: named by their content, within a limit of bytes."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Set
from contextlib import suppress
from pathlib import Path
from typing import Any

from logt.errors import CorruptIndexError, InvalidInputError
from logt.storage.files import checksum, make_folder, replace_file
from logt.storage.places import Place

_WRITING = 3600 * 10**9  # ns: a temporary file that is younger is being written

FOLDER_VARIABLE, LIMIT_VARIABLE = "LOGT_CACHE", "LOGT_CACHE_GB"


def cache_folder() -> Path:
    """Return the folder of the cache: LOGT_CACHE, or logt in the user's folder for caches."""
    given = os.environ.get(FOLDER_VARIABLE)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given).resolve() if given else Path(base) / "logt"


def cache_limit() -> int:
    """Return the bytes that the cache may have: LOGT_CACHE_GB, 50 by default."""
    given = os.environ.get(LIMIT_VARIABLE, "50")
    try:
        limit = float(given)
    except ValueError:
        limit = -1
    if not 0 <= limit < 1e9:
        raise InvalidInputError(f"{LIMIT_VARIABLE} must be a number of gigabytes, got {given!r}")
    return int(limit * 1e9)


def cached_file(place: Place, name: str, about: Mapping[str, Any]) -> Path:
    """Return the local copy of a file; it is fetched and checked if there is none."""
    folder = cache_folder()
    path = folder / f"{about['checksum']}-{name}"
    with suppress(FileNotFoundError):
        if path.stat().st_size == about["bytes"]:
            os.utime(path)  # the time of its last use
            return path
    try:
        data = place.read(name)
    except FileNotFoundError:
        raise CorruptIndexError(f"{place.name}/{name} is missing") from None
    if len(data) != about["bytes"] or checksum(data) != about["checksum"]:
        raise CorruptIndexError(f"{place.name}/{name} is damaged: its checksum does not match the manifest")
    make_folder(folder)
    make_room(folder, len(data))
    replace_file(path, data)
    return path


def make_room(folder: Path, more: int, keep: Set[Path] = frozenset()) -> int:
    """Remove the files that were used longest ago until `more` bytes fit the limit, and return what the others take.

    Mapped files stay readable. keep: files that are not removed.
    """
    limit = cache_limit()
    files = []
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # another process has removed it
            about = path.stat()
            size = about.st_blocks * 512 if hasattr(about, "st_blocks") else about.st_size  # without holes
            files.append((about.st_mtime_ns, size, path))
    total = sum(size for _, size, _ in files)
    for used, size, path in sorted(files):
        if total + more <= limit:
            break
        if path not in keep and not (path.name.startswith(".") and time.time_ns() - used < _WRITING):
            total -= size
            path.unlink(missing_ok=True)
    return total

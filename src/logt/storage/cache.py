"""The local cache of files that are stored by URL: named by their content, within a limit of bytes."""

import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from logt._internal.types import Array
from logt.errors import CorruptIndexError, InvalidInputError
from logt.storage.files import make_folder, parse_arrays, read_array_file, replace_file
from logt.storage.manifest import ARRAY_FILE

_CACHED = re.compile(rf"\.?[0-9a-f]{{64}}-{ARRAY_FILE}(\.\d+\.tmp)?")
_WRITING = 3600 * 10**9  # ns: a temporary file that is younger is being written


def cache_folder() -> Path:
    """Return the folder of the cache: LOGT_CACHE, or logt in the user's folder for caches."""
    given = os.environ.get("LOGT_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given).resolve() if given else Path(base) / "logt"


def cache_limit() -> int:
    """Return the bytes that the cache may have: LOGT_CACHE_GB, 50 by default."""
    given = os.environ.get("LOGT_CACHE_GB", "50")
    try:
        limit = float(given)
    except ValueError:
        limit = -1
    if not 0 <= limit < 1e9:
        raise InvalidInputError(f"LOGT_CACHE_GB must be a number of gigabytes, got {given!r}")
    return int(limit * 1e9)


def read_cached(name: str, about: Mapping[str, Any], fetch: Callable[[], bytes], **options: Any) -> dict[str, Array]:
    """Return the arrays of a file from the cache; it is fetched if it is not there, or damaged.

    name, about: of the file in its manifest. fetch: returns its checked bytes. options: those of `read_array_file`.
    """
    folder = cache_folder()
    path = folder / f"{about['checksum']}-{name}"
    with suppress(CorruptIndexError):
        arrays = read_array_file(path, about, **options)
        with suppress(FileNotFoundError):
            os.utime(path)  # the time of its last use
        return arrays
    data = fetch()
    make_folder(folder)
    make_room(folder, len(data))
    replace_file(path, data)
    try:
        return read_array_file(path, about, **options)
    except CorruptIndexError:  # another process has removed it to make room
        return parse_arrays(np.frombuffer(data, np.uint8))[0]


def make_room(folder: Path, more: int) -> None:
    """Remove the files that were used longest ago until `more` bytes fit the limit. Mapped files stay readable.

    Other files in the folder are neither counted nor removed.
    """
    limit = cache_limit()
    files = []
    for path in filter(lambda path: _CACHED.fullmatch(path.name), folder.iterdir()):
        with suppress(FileNotFoundError):  # another process has removed it
            about = path.stat()
            files.append((about.st_mtime_ns, about.st_size, path))
    total = sum(size for _, size, _ in files)
    for used, size, path in sorted(files):
        if total + more <= limit:
            break
        if not (path.name.startswith(".") and time.time_ns() - used < _WRITING):
            total -= size
            path.unlink(missing_ok=True)

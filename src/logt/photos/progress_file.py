"""The progress of a run, in a small file of the index, so that a server can show it while the run goes on."""

import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from logt._internal.threads import Progress
from logt.errors import CorruptIndexError
from logt.storage.files import open_regular

PROGRESS_FILE = "progress.json"
_SECONDS = 0.5  # between two writes
_MAX_AGE = 120.0  # seconds after which a file is taken for that of a run that was killed
_MAX_BYTES = 4096


class IndexingProgress(NamedTuple):
    """What a run is doing, how many photos are done, and how many there are."""

    what: str
    done: int
    total: int


@contextmanager
def published_progress(index_path: Path, progress: Progress | None) -> Iterator[Progress]:
    """Return a callback that calls `progress` and writes what it reports to the index; remove the file at the end.

    An error while writing it is ignored.
    """
    file = index_path / PROGRESS_FILE
    last = 0.0

    def report(what: str, done: int, total: int) -> None:
        nonlocal last
        if progress:
            progress(what, done, total)
        if time.monotonic() - last >= _SECONDS:
            last = time.monotonic()
            values = {"what": what, "done": done, "total": total, "host": platform.node(), "pid": os.getpid()}
            temporary = file.with_name(f".{PROGRESS_FILE}.tmp")
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
                with temporary.open("x") as stream:  # does not follow a link
                    stream.write(json.dumps(values))
                temporary.replace(file)

    try:
        yield report
    finally:
        if last:  # otherwise it may be that of another run
            with suppress(OSError):
                file.unlink()


def read_progress(index_path: Path) -> IndexingProgress | None:
    """Return the progress of the run that updates an index now; None if there is none, or the file is damaged."""
    try:
        with open_regular(index_path / PROGRESS_FILE) as file:
            if time.time() - os.fstat(file).st_mtime > _MAX_AGE:
                return None
            values = json.loads(os.read(file, _MAX_BYTES))
        progress = IndexingProgress(values["what"], values["done"], values["total"])
        is_here, pid = values["host"] == platform.node(), values["pid"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError, CorruptIndexError):
        return None
    is_valid = isinstance(progress.what, str) and all(map(_is_count, (*progress[1:], pid)))
    return progress if is_valid and not (is_here and _has_ended(pid)) else None


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:  # it runs as another user
        return False
    except OSError:
        return True
    return False

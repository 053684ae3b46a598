"""The progress of a run, in a small file of the index, so that a server can show it while the run goes on."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from logt._threads import Progress

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
                temporary.write_text(json.dumps(values))
                temporary.replace(file)

    try:
        yield report
    finally:
        with suppress(OSError):
            file.unlink(missing_ok=True)


def read_progress(index_path: Path) -> IndexingProgress | None:
    """Return the progress of the run that updates an index now; None if there is none."""
    try:
        with (index_path / PROGRESS_FILE).open("rb") as file:
            if time.time() - os.fstat(file.fileno()).st_mtime > _MAX_AGE:
                return None
            values = json.loads(file.read(_MAX_BYTES))
        if values["host"] == platform.node():
            os.kill(int(values["pid"]), 0)
        return IndexingProgress(str(values["what"]), int(values["done"]), int(values["total"]))
    except PermissionError:  # it runs as another user
        return IndexingProgress(str(values["what"]), int(values["done"]), int(values["total"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None

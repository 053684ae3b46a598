"""The memory of processes while they work, from /proc; 0 where there is none."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path


def own_memory() -> int:
    """Return the bytes of this process, without mapped files."""
    return _bytes(_status(os.getpid()).get("RssAnon"))


class PeakMemory:
    """The most memory that any of some processes had, read every 50 ms: without and with mapped files, in bytes."""

    def __init__(self, pids: Callable[[], list[int]]):
        self._pids, self._stop = pids, threading.Event()
        self.own = self.mapped = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._read()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        self._read()

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            self._read()

    def _read(self) -> None:
        for pid in self._pids():
            about = _status(pid)
            self.own = max(self.own, _bytes(about.get("RssAnon")))
            self.mapped = max(self.mapped, _bytes(about.get("VmHWM")))


def _status(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it has ended, or this system has no /proc
        return {}
    return {name: value for name, _, value in (line.partition(":") for line in lines)}


def _bytes(text: str | None) -> int:
    return 0 if text is None else int(text.split()[0]) * 1024

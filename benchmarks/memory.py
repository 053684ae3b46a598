"""The memory of processes while they work, from /proc; 0 where there is none."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self


def memory_of(pid: int, field: str) -> int:
    """Return the bytes of a field of /proc/PID/status: RssAnon is without mapped files, VmHWM the peak with them."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it has ended, or this system has no /proc
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:")), 0)


class PeakMemory:
    """The most memory that any of some processes had, read every 50 ms: without and with mapped files, in bytes."""

    def __init__(self, pids: Callable[[], list[int]]):
        self._pids, self._stop = pids, threading.Event()
        self.own = self.mapped = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
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
            self.own = max(self.own, memory_of(pid, "RssAnon"))
            self.mapped = max(self.mapped, memory_of(pid, "VmHWM"))

"""Child processes that answer requests: `python -P -m logt._internal.subprocess_worker MODULE:FUNCTION ...`.

The child calls the function for each request, and ends when its standard input is closed. A message is two byte
strings behind their lengths. Nothing is unpickled: a child that reads untrusted files cannot make the parent run code.
A child imports nothing from the current folder.
"""

from __future__ import annotations

import importlib
import os
import queue
import resource
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import BinaryIO

Message = tuple[bytes, bytes]

_LENGTHS = struct.Struct("<QQ")


class ChildError(Exception):
    """A child process has ended, or was ended because it took too long; the message states which."""


class Child:
    """One child process.

    target: "module:function"; the function gets the two parts of a request and returns those of the answer.
    memory: bytes that the child may use beyond those it has when the module is imported, 0 for no limit.
    niceness: lowers its priority. environment: variables that differ from those of this process. quiet: hide what
    the child prints.
    """

    def __init__(
        self,
        target: str,
        *,
        memory: int = 0,
        niceness: int = 0,
        environment: Mapping[str, str] | None = None,
        quiet: bool = False,
    ):
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "logt._internal.subprocess_worker", target, str(memory), str(niceness)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if quiet else None,
            env={**os.environ, **(environment or {})},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, head: bytes, data: bytes = b"", seconds: float | None = None) -> Message:
        """Return the answer to a request; raise ChildError if the child ends or takes more than `seconds`."""
        start = time.monotonic()
        timer = None if seconds is None else threading.Timer(seconds, self._process.kill)
        try:
            if timer is not None:
                timer.start()
            _write(self._requests, (head, data))
            return _read(self._answers)
        except (OSError, EOFError, ValueError):  # ValueError: another thread has called `kill`
            self.kill()
            if seconds is not None and time.monotonic() - start >= seconds:
                raise ChildError(f"took more than {seconds:.0f} s") from None
            code = self._process.returncode
            reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            raise ChildError(f"its process ended: {reason}") from None
        except BaseException:  # an interrupt: the answer would be taken for that of the next request
            self.kill()
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def kill(self) -> None:
        """End the child; a request that it works on raises ChildError."""
        self._process.kill()
        self._process.wait()
        for stream in (self._requests, self._answers):
            with suppress(OSError):
                stream.close()


class ChildPool:
    """Up to `count` children, started when they are needed; threads may share them.

    start: returns a new child. idle_seconds: children are ended if none was used for so long; None keeps them.
    """

    def __init__(self, start: Callable[[], Child], count: int, idle_seconds: float | None = None):
        self._start, self._count, self._idle_seconds = start, count, idle_seconds
        self._idle: queue.LifoQueue[Child | None] = queue.LifoQueue()
        for _ in range(count):
            self._idle.put(None)
        self._children: set[Child] = set()
        self._last_used = 0.0
        self._reaper: threading.Timer | None = None

    @property
    def children(self) -> list[Child]:
        """The children that run, idle or not."""
        return list(self._children)

    def ask(self, head: bytes, data: bytes = b"", seconds: float | None = None) -> Message:
        """Return the answer of a child to a request, as `Child.ask`; wait until one is idle."""
        child = self._idle.get()
        try:
            if child is None or not child.alive:
                self._discard(child)
                child = self._start()
                self._children.add(child)
            return child.ask(head, data, seconds)
        except BaseException:
            self._discard(child)
            child = None
            raise
        finally:
            self._idle.put(child)
            self._last_used = time.monotonic()
            self._start_reaper()

    def close(self) -> None:
        """End all children, when they have answered the requests that they work on."""
        self._end([self._idle.get() for _ in range(self._count)])

    def kill(self) -> None:
        """End all children now. Those that are needed later are started again."""
        for child in self.children:
            child.kill()

    def _discard(self, child: Child | None) -> None:
        if child is not None:
            child.kill()
            self._children.discard(child)

    def _end(self, idle: list[Child | None]) -> None:
        for child in idle:
            self._discard(child)
            self._idle.put(None)

    def _start_reaper(self) -> None:
        if self._reaper is None and self._idle_seconds is not None:
            self._reaper = threading.Timer(self._idle_seconds, self._end_idle)
            self._reaper.daemon = True
            self._reaper.start()

    def _end_idle(self) -> None:
        """End the children that have no work, unless there was work lately: then look again later."""
        self._reaper = None
        if self._idle_seconds is not None and time.monotonic() - self._last_used < self._idle_seconds:
            self._start_reaper()
            return
        idle = []
        with suppress(queue.Empty):
            while True:
                idle.append(self._idle.get_nowait())
        self._end(idle)


# ------------------------------------------------------------------------------------------------- in the child


def main() -> None:
    """Answer requests until the standard input is closed."""
    target, memory, niceness = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C stops the parent process, which closes the standard input
    with suppress(OSError):
        os.nice(int(niceness))
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    module, _, name = target.partition(":")
    answer = getattr(importlib.import_module(module), name)
    if int(memory):
        _limit_memory(int(memory))
    with suppress(EOFError, BrokenPipeError):
        while True:
            _write(answers, answer(*_read(requests)))


def _limit_memory(more: int) -> None:
    """Allow so many bytes more than the process has now, where the system can limit them."""
    with suppress(OSError, ValueError), open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + more, used + more))


def _write(stream: BinaryIO, message: Message) -> None:
    stream.write(_LENGTHS.pack(*map(len, message)))
    for part in message:
        stream.write(part)
    stream.flush()


def _read(stream: BinaryIO) -> Message:
    head, data = (_read_exactly(stream, length) for length in _LENGTHS.unpack(_read_exactly(stream, _LENGTHS.size)))
    return head, data


def _read_exactly(stream: BinaryIO, length: int) -> bytes:
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return data


if __name__ == "__main__":
    main()

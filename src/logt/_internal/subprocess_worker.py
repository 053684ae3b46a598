"""Child processes that answer requests: `python -P -m logt._internal.subprocess_worker MODULE:FUNCTION ...`.

The child calls the function for each request, and ends when its standard input is closed. A message is two byte
strings behind their lengths. Nothing is unpickled: a child that reads untrusted files cannot make its parent run
code. A child imports nothing from the current folder.
"""

import importlib
import os
import resource
import signal
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import BinaryIO, cast

FOREVER = threading.TIMEOUT_MAX
Message = tuple[bytes, bytes]

_LENGTHS = struct.Struct("<QQ")


class ChildError(Exception):
    """A child process has ended, or was ended because it took too long; the message states which."""


class ChildTimeoutError(ChildError):
    """A child process was ended because it took too long."""


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
        self._requests, self._answers = cast(BinaryIO, self._process.stdin), cast(BinaryIO, self._process.stdout)
        self.pid = self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, head: bytes, data: bytes = b"", seconds: float = FOREVER) -> Message:
        """Return the answer to a request; raise ChildError if the child ends or takes more than `seconds`."""
        start = time.monotonic()
        timer = threading.Timer(seconds, self._process.kill)
        timer.start()
        try:
            _write(self._requests, (head, data))
            return _read(self._answers)
        except (OSError, EOFError, ValueError):  # ValueError: another thread has called `kill`
            self.kill()
            if time.monotonic() - start >= seconds:
                raise ChildTimeoutError(f"took more than {seconds:.0f} s") from None
            code = self._process.returncode
            reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            raise ChildError(f"its process ended: {reason}") from None
        except BaseException:  # an interrupt: the answer would be taken for that of the next request
            self.kill()
            raise
        finally:
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

    start: returns a new child. idle_seconds: children are ended if none was used for so long.
    """

    def __init__(self, start: Callable[[], Child], count: int, idle_seconds: float = FOREVER):
        self._start, self._idle_seconds = start, idle_seconds
        self._slots = threading.Semaphore(count)
        self._idle: list[Child] = []
        self._started: weakref.WeakSet[Child] = weakref.WeakSet()
        self._last_used = 0.0
        self._reaper: threading.Timer | None = None

    @property
    def children(self) -> list[Child]:
        """The children that run, idle or not."""
        return [child for child in self._started if child.alive]

    def ask(self, head: bytes, data: bytes = b"", seconds: float = FOREVER) -> Message:
        """Return the answer of a child to a request, as `Child.ask`; wait until one is idle."""
        with self._slots:
            child = self._take()
            answer = child.ask(head, data, seconds)
            self._idle.append(child)
        self._last_used = time.monotonic()
        self._start_reaper()
        return answer

    def close(self) -> None:
        """End all children. Those that are needed later are started again."""
        for child in list(self._started):
            child.kill()

    def _take(self) -> Child:
        with suppress(IndexError):
            while not (child := self._idle.pop()).alive:
                child.kill()  # closes its pipes
            return child
        child = self._start()
        self._started.add(child)
        return child

    def _start_reaper(self) -> None:
        if self._reaper is None and self._idle_seconds < FOREVER:
            self._reaper = threading.Timer(self._idle_seconds, self._end_idle)
            self._reaper.daemon = True
            self._reaper.start()

    def _end_idle(self) -> None:
        """End the children that have no work, unless there was work lately: then look again later."""
        self._reaper = None
        if time.monotonic() - self._last_used < self._idle_seconds:
            self._start_reaper()
            return
        with suppress(IndexError):
            while True:
                self._idle.pop().kill()


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

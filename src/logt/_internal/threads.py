"""Threads: created here only, per call and never at import, with BLAS limited to one thread each."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[str, int, int], None]
"""Called as progress(what, done, total) from the calling thread."""

_blas_users = 0
_blas_limit: Any = None
_blas_lock = threading.Lock()


@dataclass(frozen=True)
class Workers:
    """Up to `threads` threads for one call, and an optional progress callback."""

    threads: int = 1
    progress: Progress | None = None

    def map(self, function: Callable[[Item], Result], items: Sequence[Item], what: str = "") -> list[Result]:
        """Return [function(i) for i in items]; the first error or an interrupt cancels the items not yet started.

        The calling thread works too: starting a thread takes long compared with a search.
        """
        results: dict[int, Result] = {}
        errors: list[BaseException] = []
        numbers = iter(range(len(items)))
        reported = 0

        def work(report: bool = False) -> None:
            nonlocal reported
            try:
                for number in numbers:
                    if errors:
                        return
                    results[number] = function(items[number])
                    if report:
                        reported = len(results)
                        self.report(what, reported, len(items))
            except BaseException as error:
                errors.append(error)

        with single_threaded_blas():
            others: list[threading.Thread] = []
            try:
                for _ in range(min(self.threads, len(items)) - 1):
                    others.append(threading.Thread(target=work))
                    others[-1].start()
                work(report=True)
            except BaseException as error:  # a thread could not be started, or an interrupt between two items
                errors.append(error)
            while others:
                try:
                    if others[-1].ident is not None:
                        others[-1].join()
                    others.pop()
                except BaseException as error:  # an interrupt while waiting: no thread may outlive this call
                    errors.append(error)
        if errors:
            raise errors[0]
        if reported < len(items):
            self.report(what, len(items), len(items))
        return [results[number] for number in range(len(items))]

    def report(self, what: str, done: int, total: int) -> None:
        """Call the progress callback, if there is one and the work has a name."""
        if self.progress and what:
            self.progress(what, done, total)


SERIAL = Workers()
"""The calling thread alone, without progress."""


def available_cores() -> int:
    """Return the number of cores this process may use, or OMP_NUM_THREADS if that is smaller."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(limit)) if limit.isdigit() and int(limit) > 0 else cores


def split_range(total: int, size: int) -> list[slice]:
    """Split range(total) into consecutive slices of at most `size`, independent of the number of threads."""
    return [slice(first, min(first + size, total)) for first in range(0, total, size)]


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Run BLAS on one thread while anyone is inside; the limit is process-wide, the last one out restores it."""
    global _blas_users, _blas_limit
    with _blas_lock:
        if _blas_users == 0:
            _blas_limit = _blas().limit(limits=1, user_api="blas")
        _blas_users += 1
    try:
        yield
    finally:
        with _blas_lock:
            _blas_users -= 1
            if _blas_users == 0:
                _blas_limit.restore_original_limits()


def _reset_after_fork() -> None:
    """Reset what a forked child inherits: it has one thread, which holds no lock and uses no BLAS."""
    global _blas_users, _blas_lock
    _blas_lock = threading.Lock()
    if _blas_users:
        _blas_users = 0
        _blas_limit.restore_original_limits()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


@cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()

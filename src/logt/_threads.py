"""The one place where threads are made: per call, never at import, with BLAS held to one thread each."""

from __future__ import annotations

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
    """Up to `threads` threads for one call, and whom to tell how far it is."""

    threads: int = 1
    progress: Progress | None = None

    def each(self, function: Callable[[Item], Result], items: Sequence[Item], what: str = "") -> list[Result]:
        """[function(i) for i in items]; the first error, or an interrupt, cancels what has not begun.

        The calling thread works too: to start a thread takes long beside a search, and nobody waits for it.
        """
        results: dict[int, Result] = {}
        errors: list[BaseException] = []
        turns = iter(range(len(items)))
        said = 0

        def work(tells: bool = False) -> None:
            nonlocal said
            try:
                for turn in turns:
                    if errors:
                        return
                    results[turn] = function(items[turn])
                    if tells:
                        said = len(results)
                        self.tell(what, said, len(items))
            except BaseException as error:
                errors.append(error)

        with one_blas_thread():
            others: list[threading.Thread] = []
            try:
                for _ in range(min(self.threads, len(items)) - 1):
                    others.append(threading.Thread(target=work))
                    others[-1].start()
                work(tells=True)
            except BaseException as error:  # no thread could be made, or an interrupt between the items
                errors.append(error)
            while others:
                try:
                    if others[-1].ident is not None:
                        others[-1].join()
                    others.pop()
                except (
                    BaseException
                ) as error:  # an interrupt while waiting: nothing may go on behind the caller's back
                    errors.append(error)
        if errors:
            raise errors[0]
        if said < len(items):
            self.tell(what, len(items), len(items))
        return [results[turn] for turn in range(len(items))]

    def tell(self, what: str, done: int, total: int) -> None:
        """Say how far some work is, if it has a name."""
        if self.progress and what:
            self.progress(what, done, total)


SERIAL = Workers()
"""The calling thread alone, silent."""


def available() -> int:
    """The cores this process may use, or fewer if OMP_NUM_THREADS says so."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(asked)) if asked.isdigit() and int(asked) > 0 else cores


def spans(total: int, size: int) -> list[slice]:
    """range(total) in consecutive slices of at most `size`, the same whatever the number of threads."""
    return [slice(first, min(first + size, total)) for first in range(0, total, size)]


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS on one thread while anyone is inside; the limit is process-wide, so the last one out lifts it."""
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


@cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()

"""Threads for what would hold up other requests, one pool per kind, so that no kind starves another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from logt.server.errors import HTTPError

Answer = TypeVar("Answer")


class Pool:
    """`workers` threads, and at most `waiting` calls that wait for one; a further call is refused at once.

    A request that gives up leaves its call running, so the number of running calls never exceeds the workers.
    """

    def __init__(self, name: str, workers: int, waiting: int):
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix=f"logt-{name}")
        self._most = workers + waiting
        self._calls = 0

    @property
    def calls(self) -> int:
        """Running or waiting."""
        return self._calls

    async def run(self, function: Callable[..., Answer], *given: object) -> Answer:
        if self._calls >= self._most:
            raise HTTPError(
                503, "busy", "too many requests of this kind are waiting; try again", {"Retry-After": "1"}
            )
        self._calls += 1
        loop = asyncio.get_running_loop()
        future = self._threads.submit(function, *given)
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._finished))
        return await asyncio.wrap_future(future)

    def _finished(self) -> None:
        self._calls -= 1

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

"""Thread pools with a bounded queue, one per kind of work, so that no kind of work blocks another."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from logt.descriptors.image_decoder import ImageDecoder, LargeImageError
from logt.server.errors import HTTPError

T = TypeVar("T")


class BoundedThreadPool:
    """`workers` threads and a queue of at most `queue_size` calls.

    A request that times out does not cancel its running call. The call still counts, so there are never more running
    calls than workers.
    """

    def __init__(self, name: str, workers: int, queue_size: int = 1000):
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix=f"logt-{name}")
        self._max_pending = workers + queue_size
        self.pending = 0  # calls that run or wait

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """Return function(*args), called in a thread; raise a 503 error at once if the queue is full."""
        if self.pending >= self._max_pending:
            raise HTTPError(503, "busy", "too many requests are waiting; try again later", {"Retry-After": "1"})
        self.pending += 1
        loop = asyncio.get_running_loop()
        future = self._executor.submit(function, *args)
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._mark_done))
        return await asyncio.wrap_future(future)

    def _mark_done(self) -> None:
        self.pending -= 1

    def close(self) -> None:
        self._executor.shutdown(cancel_futures=True)


class ImagePool:
    """Threads that work on images. Large and slow ones wait for one thread and one process of their own.

    A file of a few kilobytes can hold an image that takes seconds: many of them must not hold up other photos.
    """

    def __init__(self, name: str, workers: int, waiting: int, large_waiting: int):
        self._small = BoundedThreadPool(name, workers, waiting)
        self._large = BoundedThreadPool(f"large-{name}", 1, large_waiting)

    @property
    def pending(self) -> int:
        return self._small.pending + self._large.pending

    async def run(self, decoder: ImageDecoder, function: Callable[[ImageDecoder], T]) -> T:
        """Return function(decoder), called in a thread; raise a 503 error at once if the queue is full.

        The function is called again, with a decoder of large images, if it raises LargeImageError.
        """
        try:
            return await self._small.run(function, decoder.small)
        except LargeImageError:
            return await self._large.run(function, decoder.large)

    def close(self) -> None:
        self._small.close()
        self._large.close()

"""Threads that work on images, large ones beside the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from logt.descriptors.image_decoder import ImageDecoder, LargeImageError
from logt.server.thread_pool import BoundedThreadPool

T = TypeVar("T")


class ImagePool:
    """Threads that work on images. Large ones wait for one thread and one process of their own.

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

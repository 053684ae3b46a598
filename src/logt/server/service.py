"""What the API and the page both do: search, draw and change one collection, within limits and beside each other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from logt._types import Array
from logt.errors import InvalidInputError
from logt.server import thumbnails
from logt.server.collection import BaseCollection
from logt.server.errors import HTTPError
from logt.server.hits import Hit, Id
from logt.server.metrics import ServerMetrics
from logt.server.photo_collection import Box, PhotoCollection
from logt.server.settings import Settings
from logt.server.thread_pool import Pool


@dataclass(frozen=True)
class Found:
    """The results of each query, and the time that it took to find them."""

    results: list[list[Hit]]
    milliseconds: float


class Service:
    """One collection and the threads that serve it."""

    def __init__(self, collection: BaseCollection, settings: Settings):
        self.collection, self.settings, self.metrics = collection, settings, ServerMetrics()
        limits, workers = settings.limits, settings.workers
        self.searching = Pool("search", workers, 1000)
        self.describing = Pool("describe", workers, limits.waiting)
        self.drawing = Pool("draw", workers, 1000)
        self.changing = Pool("change", 1, limits.waiting)
        self.drawn = thumbnails.Cache(limits.cache_bytes)
        self._add_gauges()

    async def by_vectors(self, vectors: list[list[float]], k: int, effort: float | None) -> Found:
        self._allow(len(vectors), k)
        rows = self._rows(vectors)
        return await _timed(lambda: self.searching.run(self.collection.search, rows, k, effort))

    async def by_ids(self, ids: list[Id], k: int, effort: float | None) -> Found:
        self._allow(len(ids), k)
        return await _timed(lambda: self.searching.run(self.collection.search_ids, ids, k, effort))

    async def by_photo(self, photo: BinaryIO, box: Box | None, k: int) -> Found:
        """By a picture that someone sent."""
        self._allow(1, k)
        album, pixels = self.album, self.settings.limits.pixels

        async def found() -> list[list[Hit]]:
            return [await self.describing.run(album.search_picture, photo, k, box, pixels)]

        return await _timed(found)

    async def by_region(self, id: Id, box: Box, k: int) -> Found:
        """By a region of a picture of the collection; the picture itself is not among the results."""
        self._allow(1, k)
        album = self.album
        path = album.picture(id)

        async def found() -> list[list[Hit]]:
            hits = await self.describing.run(album.search_picture, path, k + 1, box, None)
            return [[hit for hit in hits if hit.id != id][:k]]

        return await _timed(found)

    @property
    def album(self) -> PhotoCollection:
        if not isinstance(self.collection, PhotoCollection):
            raise HTTPError(409, "no_pictures", "this index holds vectors without pictures; search by vector or id")
        return self.collection

    async def picture(self, id: str, size: str) -> tuple[str, Callable[[], Awaitable[bytes]]]:
        """What the picture looks like now, by a name, and how to get it as JPEG."""
        path = self.album.picture(id)
        version = thumbnails.version(path, size)

        async def image() -> bytes:
            known = self.drawn.get(version)
            if known is None:
                known = await self.drawing.run(thumbnails.jpeg, path, size)
                self.drawn.put(version, known)
            return known

        return version, image

    async def upload(self, photo: BinaryIO) -> str:
        self._may_change()
        content = await self.changing.run(photo.read)
        return await self.changing.run(self.album.upload, content, self.settings.limits.pixels)

    async def add(self, vectors: list[list[float]], ids: list[Id] | None, replace: bool) -> list[Id]:
        self._may_change()
        if len(vectors) > self.settings.limits.vectors:
            raise _above("vectors", len(vectors), self.settings.limits.vectors)
        rows = self._rows(vectors)
        return await self.changing.run(lambda: self.collection.add(rows, ids, replace=replace))

    async def remove(self, ids: list[Id]) -> int:
        self._may_change()
        if len(ids) > self.settings.limits.vectors:
            raise _above("ids", len(ids), self.settings.limits.vectors)
        return await self.changing.run(self.collection.remove, ids)

    async def watch(self) -> None:
        """Pick up what other processes save, for as long as the service runs."""
        while True:
            await asyncio.sleep(self.settings.refresh_seconds)
            with suppress(HTTPError):  # too many changes wait; the next time, then
                await self.changing.run(self.collection.watch)

    def close(self) -> None:
        for pool in (self.searching, self.describing, self.drawing, self.changing):
            pool.close()
        self.collection.close()

    def _add_gauges(self) -> None:
        collection, add = self.collection, self.metrics.add_gauge
        add("logt_vectors", "Vectors in the index.", lambda: collection.report()["vectors"])
        add("logt_index_bytes", "Size of the index in memory, in bytes.", lambda: collection.report()["bytes"])
        add("logt_generation", "Generation of the index that is served.", lambda: collection.index.generation or 0)
        add("logt_thumbnail_bytes", "Size of the thumbnail cache, in bytes.", lambda: self.drawn.nbytes)
        add("logt_image_searches", "Searches by image, running or waiting.", lambda: self.describing.calls)

    def _rows(self, vectors: list[list[float]]) -> Array:
        dim = self.collection.index.dim
        for number, row in enumerate(vectors):
            if len(row) != dim:
                raise InvalidInputError(
                    f"row {number} of vectors has {len(row)} numbers; the index has dimension {dim}"
                )
        return np.array(vectors, np.float64)

    def _may_change(self) -> None:
        if self.settings.read_only:
            raise HTTPError(403, "read_only", "this service was started with --read-only")

    def _allow(self, queries: int, k: int) -> None:
        limits = self.settings.limits
        if k > limits.k:
            raise _above("k", k, limits.k)
        if queries > limits.queries:
            raise _above("queries", queries, limits.queries)


def _above(name: str, value: int, most: int) -> InvalidInputError:
    return InvalidInputError(f"{name}: {value:,} is above the limit of this service, {most:,}")


async def _timed(found: Callable[[], Awaitable[list[list[Hit]]]]) -> Found:
    begun = time.perf_counter()
    results = await found()
    return Found(results, round(1000 * (time.perf_counter() - begun), 3))

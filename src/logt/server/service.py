"""What the API and the page both do: search, draw and change one collection, within limits and beside each other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

from logt.errors import InvalidInputError
from logt.server import thumbnails
from logt.server.collection import Box, Collection, Hit, Id
from logt.server.meters import Meters
from logt.server.refusals import RefusedError
from logt.server.settings import Settings
from logt.server.work import Pool


@dataclass(frozen=True)
class Found:
    """The results of each query, and the time that it took to find them."""

    results: list[list[Hit]]
    milliseconds: float


class Service:
    """One collection and the threads that serve it."""

    def __init__(self, collection: Collection, settings: Settings):
        self.collection, self.settings, self.meters = collection, settings, Meters()
        limits, workers = settings.limits, settings.workers
        self.searching = Pool("search", workers, 1000)
        self.describing = Pool("describe", workers, limits.waiting)
        self.drawing = Pool("draw", workers, 1000)
        self.changing = Pool("change", 1, limits.waiting)
        self.drawn = thumbnails.Cache(limits.cache_bytes)

    async def by_vectors(self, vectors: Any, k: int, effort: float | None) -> Found:
        self._allow(len(vectors), k)
        return await _timed(lambda: self.searching.run(self.collection.search, vectors, k, effort))

    async def by_ids(self, ids: list[Id], k: int, effort: float | None) -> Found:
        self._allow(len(ids), k)
        return await _timed(lambda: self.searching.run(self.collection.search_ids, ids, k, effort))

    async def by_photo(self, photo: BinaryIO, box: Box | None, k: int, effort: float | None) -> Found:
        """By a picture that someone sent."""
        self._allow(1, k)
        self.collection.with_pictures  # noqa: B018 - refuses where there are none

        async def found() -> list[list[Hit]]:
            query = await self.describing.run(self._described, photo, box)
            return await self.searching.run(self.collection.search, query[None], k, effort)

        return await _timed(found)

    async def by_region(self, id: Id, box: Box, k: int, effort: float | None) -> Found:
        """By a region of a picture of the collection; the picture itself is not among the results."""
        self._allow(1, k)
        path = self.collection.picture(id)

        async def found() -> list[list[Hit]]:
            query = await self.describing.run(self._described, path, box)
            hits = (await self.searching.run(self.collection.search, query[None], k + 1, effort))[0]
            return [[hit for hit in hits if hit.id != id][:k]]

        return await _timed(found)

    async def picture(self, id: str, size: str) -> tuple[str, Callable[[], Awaitable[bytes]]]:
        """What the picture looks like now, by a name, and how to get it as JPEG."""
        path = self.collection.picture(id)
        version = thumbnails.version(path, size)

        async def image() -> bytes:
            known = self.drawn.get(version)
            if known is None:
                known = await self.drawing.run(thumbnails.jpeg, path, size, self.settings.limits.pixels)
                self.drawn.put(version, known)
            return known

        return version, image

    async def add(self, vectors: Any, ids: list[Id] | None, replace: bool) -> list[Id]:
        self._may_change()
        if len(vectors) > self.settings.limits.vectors:
            raise _above("vectors", len(vectors), self.settings.limits.vectors)
        return await self.changing.run(lambda: self.collection.add(vectors, ids, replace=replace))

    async def remove(self, ids: list[Id]) -> int:
        self._may_change()
        if len(ids) > self.settings.limits.vectors:
            raise _above("ids", len(ids), self.settings.limits.vectors)
        return await self.changing.run(self.collection.remove, ids)

    async def watch(self) -> None:
        """Pick up what other processes save, for as long as the service runs."""
        while True:
            await asyncio.sleep(self.settings.refresh_seconds)
            await self.changing.run(self.collection.poll)

    def close(self) -> None:
        for pool in (self.searching, self.describing, self.drawing, self.changing):
            pool.close()
        self.collection.release()

    def gauges(self) -> dict[str, tuple[str, float]]:
        report = self.collection.report()
        return {
            "logt_vectors": ("Vectors in the index.", report["vectors"]),
            "logt_index_bytes": ("Bytes of the index in memory.", report["bytes"]),
            "logt_generation": ("Number of the saved state that is served.", self.collection.index.generation or 0),
            "logt_thumbnail_bytes": ("Bytes of the thumbnails kept in memory.", self.drawn.nbytes),
            "logt_describing": ("Photos that are being described or wait for it.", self.describing.calls),
        }

    def _described(self, source: Any, box: Box | None) -> Any:
        from logt.descriptors.reading import PictureError, read_picture

        try:
            image = read_picture(source, max_pixels=self.settings.limits.pixels)
        except PictureError as error:
            raise RefusedError(415, "not_a_picture", str(error)) from error
        return self.collection.describe(image, box)

    def _may_change(self) -> None:
        if self.settings.read_only:
            raise RefusedError(403, "read_only", "this service was started with --read-only")

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

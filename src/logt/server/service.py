"""The operations that the API and the web page share: search, previews and changes, within the limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np

from logt._internal.types import Array
from logt.descriptors.boxes import Box, has_fractions, to_fractions
from logt.descriptors.image_decoder import DecodeLimits, ImageDecoder
from logt.errors import InvalidInputError
from logt.server.changes import ChangeQueue, fingerprint
from logt.server.collection import Add, BaseCollection, Remove, Upload
from logt.server.errors import HTTPError
from logt.server.hits import Hit, Id, Rerank
from logt.server.metrics import ServerMetrics
from logt.server.photo_collection import PhotoCollection, Region
from logt.server.settings import Settings
from logt.server.shard_collection import ShardCollection
from logt.server.thread_pool import BoundedThreadPool
from logt.server.thumbnails import SIZES, ByteCache, thumbnail_key

T = TypeVar("T")
_LONG_QUEUE = 1000
_MAX_DECODERS = 2  # processes for images from clients, and as many for photos of the index
_NICENESS = 5  # of these processes: searches come first


@dataclass(frozen=True)
class TimedHits:
    """The hits of each query and the search time."""

    results: list[list[Hit]]
    milliseconds: float


@dataclass(frozen=True)
class Thumbnail:
    """A preview of a photo that is not rendered yet; `key` changes when the file changes."""

    path: Path
    size: str
    key: str


class Service:
    """One collection, the thread pools that work on it, and its limits."""

    def __init__(self, collection: BaseCollection, settings: Settings):
        self.collection, self.settings, self.metrics = collection, settings, ServerMetrics()
        limits, workers = settings.limits, settings.workers
        self._search_pool = BoundedThreadPool("search", workers, _LONG_QUEUE)
        self._image_search_pool = BoundedThreadPool("image-search", workers, limits.waiting)
        self._thumbnail_pool = BoundedThreadPool("thumbnail", workers, _LONG_QUEUE)
        self._refresh_pool = BoundedThreadPool("refresh", 1, 1)
        self._parse_pool = BoundedThreadPool("parse", 2, _LONG_QUEUE)
        self.changes = ChangeQueue(collection.apply, limits.waiting_changes, 4 * limits.body_bytes)
        processes = min(_MAX_DECODERS, workers)
        uploads = DecodeLimits(limits.pixels, limits.decoded_bytes, limits.seconds, _NICENESS)
        self.upload_decoder = ImageDecoder(uploads, processes)
        photos = DecodeLimits(seconds=limits.seconds, niceness=_NICENESS)
        self.photo_decoder = ImageDecoder(photos, processes)
        self._thumbnail_cache = ByteCache(limits.cache_bytes)
        self._add_gauges()

    async def parse(self, function: Callable[..., T], *args: object) -> T:
        """Return function(*args), called in a thread for the bodies of requests."""
        return await self._parse_pool.run_in_thread(function, *args)

    async def run_search(self, function: Callable[..., T], *args: object) -> T:
        """Return function(*args), called in a thread for searches."""
        return await self._search_pool.run_in_thread(function, *args)

    async def run_image_search(self, function: Callable[..., T], *args: object) -> T:
        """Return function(*args), called in a thread for searches by image."""
        return await self._image_search_pool.run_in_thread(function, *args)

    async def search_vectors(
        self, vectors: list[list[float]], k: int, effort: float | None, rerank: Rerank = None
    ) -> TimedHits:
        """Return the k nearest vectors of each row."""
        self.check_search(len(vectors), k, rerank)
        rows = await self.parse(self._to_rows, vectors)
        return await _time(self._search_pool.run_in_thread(self.collection.search, rows, k, effort, rerank))

    async def search_ids(self, ids: list[Id], k: int, effort: float | None, rerank: Rerank = None) -> TimedHits:
        """Return the k nearest vectors of each indexed vector, without the vector itself."""
        self.check_search(len(ids), k, rerank)
        return await _time(self._search_pool.run_in_thread(self.collection.search_ids, ids, k, effort, rerank))

    async def search_image(self, photo: BinaryIO, box: Box | None, k: int, rerank: Rerank = None) -> TimedHits:
        """Return the k most similar photos to an uploaded image, or to a region of it."""
        self.check_search(1, k, rerank)
        collection = self.photo_collection

        def search() -> list[list[Hit]]:
            content = photo.read()
            region = _to_region(box, self.upload_decoder, content)
            image, _ = self.upload_decoder.decode(content, collection.side(region))
            return [collection.search_image(image, k, region, rerank)]

        return await _time(self._image_search_pool.run_in_thread(search))

    async def search_text(self, text: str, k: int) -> TimedHits:
        """Return the k photos that match a text best."""
        self.check_search(1, k, None)
        collection = self.photo_collection
        return await _time(self._image_search_pool.run_in_thread(lambda: [collection.search_text(text, k)]))

    async def search_region(self, id: Id, box: Box, k: int, rerank: Rerank = None) -> TimedHits:
        """Return the k most similar photos to a region of an indexed photo, without the photo itself."""
        self.check_search(1, k, rerank)
        collection = self.photo_collection
        path = collection.photo_path(id)

        def search() -> list[list[Hit]]:
            region = _to_region(box, self.photo_decoder, path)
            image, _ = self.photo_decoder.decode_file(path, collection.side(region))
            hits = collection.search_image(image, k + 1, region, rerank)
            return [[hit for hit in hits if hit.id != id][:k]]

        return await _time(self._image_search_pool.run_in_thread(search))

    @property
    def photo_collection(self) -> PhotoCollection:
        """The collection, if it is one of photos; raise a 409 error otherwise."""
        if not isinstance(self.collection, PhotoCollection):
            raise HTTPError(
                409, "no_pictures", "this index contains vectors without photos; search by vector or by id"
            )
        return self.collection

    def find_thumbnail(self, id: str, size: str) -> Thumbnail:
        """Return the preview of an indexed photo; `render` turns it into a JPEG."""
        path = self.photo_collection.photo_path(id)
        return Thumbnail(path, size, thumbnail_key(path, size))

    async def render(self, thumbnail: Thumbnail) -> bytes:
        """Return a preview as JPEG."""
        jpeg = self._thumbnail_cache.get(thumbnail.key)
        if jpeg is None:
            render = self.photo_decoder.render_jpeg
            jpeg = await self._thumbnail_pool.run_in_thread(render, thumbnail.path, SIZES[thumbnail.size])
            self._thumbnail_cache.put(thumbnail.key, jpeg)
        return jpeg

    async def upload(self, photo: BinaryIO) -> str:
        """Store and index a photo and return its id."""
        self._check_writable()
        collection = self.photo_collection
        if not collection.allows_uploads:
            raise HTTPError(403, "no_uploads", "uploads are disabled; start the server with --allow-upload")

        def check() -> Upload:
            content = photo.read()
            return Upload(content, self.upload_decoder.decode(content, collection.side(None))[1])

        return str(await self.changes.submit(await self._image_search_pool.run_in_thread(check)))

    async def add(
        self, vectors: list[list[float]], ids: list[Id] | None, replace: bool, key: str | None = None
    ) -> list[Id]:
        """Add vectors and return their ids once they are saved; `key` makes it safe to send the request again."""
        self._check_writable()
        _check_limit("vectors", len(vectors), self.settings.limits.vectors)
        change = Add(await self._parse_pool.run_in_thread(self._to_rows, vectors), ids, replace)
        mark = b"" if key is None else await self._parse_pool.run_in_thread(fingerprint, change)
        new_ids: list[Id] = await self.changes.submit(change, key, mark)
        return new_ids

    async def remove(self, ids: list[Id]) -> int:
        """Remove vectors or uploaded photos by id, and return how many were removed once that is saved."""
        self._check_writable()
        _check_limit("ids", len(ids), self.settings.limits.vectors)
        return int(await self.changes.submit(Remove(ids)))

    async def refresh_periodically(self) -> None:
        """Load what other processes save, until the task is cancelled."""
        while True:
            await asyncio.sleep(self.settings.refresh_seconds)
            with suppress(HTTPError):  # the last refresh still waits for a change; try again next time
                await self._refresh_pool.run_in_thread(self.collection.try_refresh)

    def close(self) -> None:
        self.changes.close()
        for pool in (
            self._search_pool,
            self._image_search_pool,
            self._thumbnail_pool,
            self._refresh_pool,
            self._parse_pool,
        ):
            pool.close()
        self.upload_decoder.close()
        self.photo_decoder.close()
        self.collection.close()

    def _add_gauges(self) -> None:
        collection, add = self.collection, self.metrics.add_gauge
        if isinstance(collection, ShardCollection):
            self.metrics.add_by_shard(collection.shard_metrics)
        add("logt_vectors", "Vectors in the index.", lambda: collection.report()["vectors"])
        add("logt_index_bytes", "Size of the index in memory, in bytes.", lambda: collection.report()["bytes"])
        add("logt_generation", "Generation of the index that is served.", lambda: collection.generation or 0)
        add("logt_thumbnail_bytes", "Size of the thumbnail cache, in bytes.", lambda: self._thumbnail_cache.nbytes)
        add("logt_image_searches", "Searches by image, running or waiting.", lambda: self._image_search_pool.pending)

    def _to_rows(self, vectors: list[list[float]]) -> Array:
        dim = self.collection.index.dim
        for i, row in enumerate(vectors):
            if len(row) != dim:
                raise InvalidInputError(f"row {i} of vectors has {len(row)} values; the index has dimension {dim}")
        return np.array(vectors, np.float64)

    def _check_writable(self) -> None:
        if self.settings.read_only:
            raise HTTPError(403, "read_only", "the server was started with --read-only")

    def check_search(self, queries: int, k: int, rerank: Rerank) -> None:
        """Raise an error if a search exceeds the limits, or the index cannot be re-ranked."""
        if rerank and not self.collection.has_graph:
            raise HTTPError(409, "no_graph", "this index has no neighbor graph; compute one with: logt link INDEX")
        _check_limit("k", k, self.settings.limits.k)
        _check_limit("queries", queries, self.settings.limits.queries)
        _check_limit("queries times k", queries * k, self.settings.limits.hits)


def _to_region(box: Box | None, decoder: ImageDecoder, source: Path | bytes) -> Region | None:
    """Return a box as fractions; the size of the image is read only if the box is in pixels."""
    if box is None or has_fractions(box):
        return box
    details = decoder.read_details(source)
    return to_fractions(box, (details.width, details.height))


def _check_limit(name: str, value: int, limit: int) -> None:
    if value > limit:
        raise InvalidInputError(f"{name} must be at most {limit:,}, got {value:,}")


async def _time(search: Awaitable[list[list[Hit]]]) -> TimedHits:
    start = time.perf_counter()
    results = await search
    return TimedHits(results, round(1000 * (time.perf_counter() - start), 3))

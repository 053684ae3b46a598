"""The operations that the API and the web page share: search, previews and changes, within the limits."""

import asyncio
import hashlib
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from logt._internal.types import Array
from logt.descriptors.image_decoder import DecodeLimits, ImageDecoder
from logt.errors import InvalidInputError
from logt.server.background import Overview
from logt.server.caches import SizedCache
from logt.server.changes import ChangeQueue, fingerprint
from logt.server.collection import BaseCollection, Change, Hit, Id, Rerank, SearchOptions
from logt.server.errors import HTTPError, photo_file_missing
from logt.server.metrics import ServerMetrics, milliseconds_since
from logt.server.photo_collection import PhotoCollection
from logt.server.settings import SIZES, Settings
from logt.server.shard_collection import ShardCollection
from logt.server.thread_pool import BoundedThreadPool, ImagePool

_MAX_DECODERS = 2  # processes for images from clients, and as many for photos of the index
_LARGE_PIXELS = 1 << 24  # an image of more pixels can take seconds
_SLOW_PIXELS = 1 << 21  # as can one of fewer pixels, in some formats
_SMALL_SECONDS = 1.0  # an image that takes longer waits with the large ones, and starts again
_MAX_PREVIEWS = 1000  # that wait
_ID_BYTES = 100  # of an id in memory, roughly
_NICENESS = 5  # of these processes: searches come first


class Service:
    """One collection, the thread pools that work on it, and its limits."""

    def __init__(self, collection: BaseCollection, settings: Settings):
        self.collection, self.settings, self.metrics = collection, settings, ServerMetrics()
        limits, workers = settings.limits, settings.workers
        self.search_pool = BoundedThreadPool("search", workers)
        self.image_pool = ImagePool("image-search", workers, limits.waiting, limits.waiting_large)
        self.parse_pool = BoundedThreadPool("parse", 2)
        self._thumbnail_pool = ImagePool("thumbnail", workers, _MAX_PREVIEWS, _MAX_PREVIEWS)
        self._refresh_pool = BoundedThreadPool("refresh", 1, 1)
        self.changes = ChangeQueue(collection.apply, collection.tidy, limits.waiting_changes, 4 * limits.body_bytes)
        processes = min(_MAX_DECODERS, workers)
        photos = DecodeLimits(
            seconds=limits.decode_seconds,
            niceness=_NICENESS,
            large_pixels=_LARGE_PIXELS,
            slow_pixels=_SLOW_PIXELS,
            small_seconds=_SMALL_SECONDS,
        )
        self.photo_decoder = ImageDecoder(photos, processes)
        uploads = replace(photos, pixels=limits.pixels, decoded_bytes=limits.decoded_bytes)
        self.upload_decoder = ImageDecoder(uploads, processes)
        self._thumbnails = SizedCache[bytes](limits.cache_bytes)
        self._overview = Overview(collection) if isinstance(collection, PhotoCollection) else None
        self._add_gauges()

    async def search_vectors(
        self, vectors: list[list[float]], k: int, options: SearchOptions
    ) -> tuple[list[list[Hit]], float]:
        """Return the k nearest vectors of each row, and the search time in milliseconds."""
        self._check_options(len(vectors), k, options)
        rows = await self.parse_pool.run(self._to_rows, vectors)
        start = time.perf_counter()
        results = await self.search_pool.run(self.collection.search, rows, k, options)
        return results, milliseconds_since(start)

    async def search_ids(self, ids: list[Id], k: int, options: SearchOptions) -> tuple[list[list[Hit]], float]:
        self._check_options(len(ids), k, options)
        start = time.perf_counter()
        results = await self.search_pool.run(self.collection.search_ids, ids, k, options)
        return results, milliseconds_since(start)

    @property
    def photo_collection(self) -> PhotoCollection:
        """The collection, if it is one of photos; raise a 409 error otherwise."""
        if not isinstance(self.collection, PhotoCollection):
            raise _no_photos()
        return self.collection

    @property
    def overview(self) -> Overview:
        """What is computed of the whole collection; raise a 409 error if the index has no photos."""
        if self._overview is None:
            raise _no_photos()
        return self._overview

    def find_photo(self, id: str, size: str) -> tuple[Path, str]:
        """Return the file of an indexed photo, and a key of its preview, which changes when the file changes."""
        path = self.photo_collection.photo_path(id)
        try:
            status = path.stat()
        except OSError:
            raise photo_file_missing() from None
        key = f"{path}\0{status.st_mtime_ns}\0{status.st_size}\0{size}"
        return path, hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:32]

    async def render(self, path: Path, size: str, key: str) -> bytes:
        """Return a preview as JPEG; `path` and `key` are from `find_photo`."""
        jpeg = self._thumbnails.get(key)
        if jpeg is None:
            jpeg = await self._thumbnail_pool.run(
                self.photo_decoder, lambda decoder: decoder.render_jpeg(path, SIZES[size])
            )
            self._thumbnails.put(key, jpeg, len(jpeg))
        return jpeg

    async def upload(self, photo: BinaryIO) -> str:
        self.check_writable()
        collection = self.photo_collection
        if not collection.allows_uploads:
            raise HTTPError(403, "no_uploads", "uploads are disabled; start the server with --allow-upload")

        content = await self.parse_pool.run(photo.read)

        upload = await self.image_pool.run(self.upload_decoder, lambda decoder: collection.describe(content, decoder))
        return str(await self.changes.submit(upload))

    async def add(
        self, vectors: list[list[float]], ids: list[Id] | None, replace: bool, key: str | None = None
    ) -> list[Id]:
        """Add vectors and return their ids once they are saved; `key` makes it safe to send the request again."""
        self.check_writable()
        _check_limit("vectors", len(vectors), self.settings.limits.vectors)
        X = await self.parse_pool.run(self._to_rows, vectors)
        mark = b"" if key is None else await self.parse_pool.run(fingerprint, X, ids, replace)
        change = Change(lambda collection: collection.add(X, ids, replace), X.nbytes + _ID_BYTES * len(ids or ()))
        return list(await self.changes.submit(change, key, mark))

    async def remove(self, ids: list[Id]) -> int:
        self.check_writable()
        _check_limit("ids", len(ids), self.settings.limits.vectors)
        return int(await self.changes.submit(Change(lambda collection: collection.remove(ids), _ID_BYTES * len(ids))))

    async def compact(self) -> None:
        self.check_writable()
        await self.changes.submit(Change(lambda collection: collection.compact()))

    async def refresh_periodically(self) -> None:
        """Load what other processes save, until the task is cancelled."""
        while True:
            await asyncio.sleep(self.settings.refresh_seconds)
            with suppress(HTTPError):  # the last refresh still waits for a change; try again next time
                await self._refresh_pool.run(self.collection.try_refresh)

    def close(self) -> None:
        self.changes.close()
        if self._overview is not None:
            self._overview.close()
        for pool in (self.search_pool, self.image_pool, self.parse_pool, self._thumbnail_pool, self._refresh_pool):
            pool.close()
        self.upload_decoder.close()
        self.photo_decoder.close()
        self.collection.close()

    def _add_gauges(self) -> None:
        collection, add = self.collection, self.metrics.add_gauge
        if isinstance(collection, ShardCollection):
            self.metrics.add_collector(collection)
        add("logt_vectors", "Vectors in the index.", lambda: collection.report()["vectors"])
        add("logt_index_bytes", "Size of the index in memory, in bytes.", lambda: collection.report()["bytes"])
        add("logt_generation", "Generation of the index that is served.", lambda: collection.generation or 0)
        add("logt_thumbnail_bytes", "Size of the thumbnail cache, in bytes.", lambda: self._thumbnails.nbytes)
        add(
            "logt_photo_searches",
            "Searches by photo, region or text, running or waiting.",
            lambda: self.image_pool.pending,
        )

    def _to_rows(self, vectors: list[list[float]]) -> Array:
        dim = self.collection.index.dim
        for i, row in enumerate(vectors):
            if len(row) != dim:
                raise InvalidInputError(f"row {i} of vectors has {len(row)} values; the index has dimension {dim}")
        return np.array(vectors, np.float64)

    def check_writable(self) -> None:
        if self.settings.read_only:
            raise HTTPError(403, "read_only", "the server was started with --read-only")

    def _check_options(self, queries: int, k: int, options: SearchOptions) -> None:
        self.check_search(queries, k, options.rerank)
        for name, ids in (("wanted", options.wanted or ()), ("unwanted", options.unwanted)):
            _check_limit(f"{name} ids", len(ids), self.settings.limits.vectors)
        found = queries * (k + len(options.unwanted))
        _check_limit("queries times (k and the unwanted ids)", found, self.settings.limits.hits)

    def check_search(self, queries: int, k: int, rerank: Rerank) -> None:
        """Raise an error if a search exceeds the limits, or the index cannot be re-ranked."""
        if rerank == "function" and self.collection.function is None:
            raise HTTPError(409, "no_function", "the server was started without --rerank MODULE:FUNCTION")
        if rerank == "diffusion" and not self.collection.has_graph:
            raise HTTPError(409, "no_graph", "this index has no neighbor graph; compute one with: logt link INDEX")
        _check_limit("k", k, self.settings.limits.k)
        _check_limit("queries", queries, self.settings.limits.queries)
        _check_limit("queries times k", queries * k, self.settings.limits.hits)


def _no_photos() -> HTTPError:
    return HTTPError(409, "no_photos", "this index contains vectors without photos; search by vector or by id")


def _check_limit(name: str, value: int, limit: int) -> None:
    if value > limit:
        raise InvalidInputError(f"{name} must be at most {limit:,}, got {value:,}")

"""Searches of the web page: by id, by region, by an uploaded photo, by text, together with a filter."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO, TypeVar

import numpy as np

from logt._internal.types import Floats
from logt.index import Index
from logt.photos.photo_index import TEXT_EFFORT
from logt.server.collection import to_hits
from logt.server.errors import HTTPError, id_not_found
from logt.server.hits import Hit, Id, Rerank
from logt.server.library import PhotoFilter
from logt.server.photo_collection import PhotoCollection, Region
from logt.server.query_store import QueryStore, StoredQuery
from logt.server.service import Service
from logt.server.thumbnails import SIZES

T = TypeVar("T")
QUERY_SECONDS, QUERY_BYTES = 1800.0, 64 << 20
"""How long photos that were searched with are kept in memory, and how many bytes of them."""


@dataclass(frozen=True)
class PageQuery:
    """A photo or vector of the index, by `id`, an uploaded photo, by `key`, or a text; and what to search in."""

    id: Id | None = None
    key: str = ""
    text: str = ""
    region: Region | None = None
    k: int = 24
    rerank: Rerank = None
    condition: PhotoFilter = field(default_factory=PhotoFilter)


@dataclass(frozen=True)
class PageResults:
    """The hits of a query; the time to compute its descriptor, None if that was not needed, and to search.

    limit: the score that unrelated photos rarely exceed, None if unknown.
    """

    name: str
    hits: list[Hit]
    describe_ms: float | None
    search_ms: float
    limit: float | None


class PageSearch:
    """The searches of the page of one service, and the photos that they were made with."""

    def __init__(self, service: Service):
        self._service = service
        self.queries = QueryStore(QUERY_SECONDS, QUERY_BYTES)

    async def store(self, name: str, photo: BinaryIO) -> str:
        """Describe an uploaded photo, and return the key to search with it."""
        service, collection = self._service, self._service.photo_collection
        content = photo.read()

        def describe() -> tuple[Index, Floats]:
            image, _ = service.upload_decoder.decode(content, collection.side(None))
            return collection.describe(image, None)

        ((index, vector), milliseconds), jpeg = await asyncio.gather(
            service.run_image_search(_time, describe),
            service.run_image_search(service.upload_decoder.render_jpeg, content, SIZES["large"]),
        )
        query = StoredQuery(name, jpeg)
        query.remember(None, index, vector)
        query.add_time(milliseconds)
        return self.queries.add(query)

    async def search(self, query: PageQuery) -> PageResults:
        """Return the results of a query."""
        service = self._service
        service.check_search(1, query.k, query.rerank)
        if not isinstance(service.collection, PhotoCollection):
            if query.text:
                raise HTTPError(409, "no_text", "this index holds vectors, and cannot be searched by text")
            if query.id is None:
                raise HTTPError(404, "expired", "this search has expired")
            timed = await service.search_ids([query.id], query.k, None, query.rerank)
            return PageResults(str(query.id), timed.results[0], None, timed.milliseconds, None)
        if query.text:
            return await self._search_text(service.collection, query)
        if query.key:
            stored = self.queries.get(query.key)
            return await self._search_stored(service.collection, stored, query)
        return await self._search_id(service.collection, query)

    async def _search_stored(self, collection: PhotoCollection, stored: StoredQuery, query: PageQuery) -> PageResults:
        index = collection.index
        known = stored.vector(query.region, index)
        if known is not None:
            args = collection, index, known, query, stored.name, stored.take_time()
            return await self._service.run_search(self._search, *args)

        def describe() -> tuple[Index, Floats]:
            image, _ = self._service.upload_decoder.decode(stored.jpeg, collection.side(query.region))
            index, vector = collection.describe(image, query.region)
            stored.remember(query.region, index, vector)
            return index, vector

        return await self._describe_and_search(collection, describe, query, stored.name)

    async def _search_text(self, collection: PhotoCollection, query: PageQuery) -> PageResults:
        return await self._describe_and_search(
            collection, lambda: collection.describe_text(query.text), query, query.text
        )

    async def _search_id(self, collection: PhotoCollection, query: PageQuery) -> PageResults:
        photo_id, region = query.id, query.region
        if not isinstance(photo_id, str) or photo_id not in collection.index:
            raise id_not_found(photo_id)
        if region is None:
            return await self._service.run_search(self._search_vector_of, collection, photo_id, query)
        path = collection.photo_path(photo_id)

        def describe() -> tuple[Index, Floats]:
            image, _ = self._service.photo_decoder.decode_file(path, collection.side(region))
            return collection.describe(image, region)

        return await self._describe_and_search(collection, describe, query, photo_id)

    async def _describe_and_search(
        self,
        collection: PhotoCollection,
        describe: Callable[[], tuple[Index, Floats]],
        query: PageQuery,
        name: str,
    ) -> PageResults:
        """Compute the vector of a query and search with it, in a thread for searches by image."""

        def search() -> PageResults:
            (index, vector), milliseconds = _time(describe)
            return self._search(collection, index, vector, query, name, milliseconds)

        return await self._service.run_image_search(search)

    def _search_vector_of(self, collection: PhotoCollection, id: str, query: PageQuery) -> PageResults:
        index = collection.index
        return self._search(collection, index, index.reconstruct([id])[0], query, id)

    def _search(
        self,
        collection: PhotoCollection,
        index: Index,
        vector: Floats,
        query: PageQuery,
        name: str,
        describe_ms: float | None = None,
    ) -> PageResults:
        """Search with a vector; a photo of the index is not among its own results."""
        library = collection.library
        names = library.names(library.select(query.condition, "folder")) if query.condition else None
        k = query.k + (query.id is not None)

        def search() -> list[Hit]:
            if names is not None and not names:
                return []
            effort = TEXT_EFFORT if query.text else None
            vectors = np.atleast_2d(vector)
            result = index.search(vectors, k, filter=names, rerank=query.rerank, effort=effort, threads=1)
            return [hit for hit in to_hits(result)[0] if hit.id != query.id][: query.k]

        hits, search_ms = _time(search)
        limit = None if query.rerank or query.text else collection.background.limit(vector)
        return PageResults(name, hits, describe_ms, search_ms, limit)


def _time(function: Callable[[], T]) -> tuple[T, float]:
    """Return the result of a function and its time in milliseconds."""
    start = time.perf_counter()
    return function(), 1000 * (time.perf_counter() - start)

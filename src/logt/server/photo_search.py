"""Searches for photos: by an image, by a photo of the index or a region of one, by text, together with a filter."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np

from logt._internal.types import Floats
from logt._internal.validation import normalize_rows, row_norms
from logt.descriptors.boxes import Box, has_fractions, to_fractions
from logt.descriptors.image_decoder import ImageDecoder
from logt.index import Index
from logt.photos.photo_index import TEXT_EFFORT
from logt.server.caches import SizedCache
from logt.server.collection import Hit, Id, Rerank, to_hits
from logt.server.errors import HTTPError, id_not_found
from logt.server.library import PhotoFilter
from logt.server.photo_collection import PhotoCollection
from logt.server.service import SIZES, Service, milliseconds_since

T = TypeVar("T")
_AWAY = 0.5  # the weight of photos that results are unlike
STORED_SECONDS, STORED_BYTES = 1800.0, 64 << 20
"""How long photos that were searched with are kept in memory, and how many bytes of them."""


@dataclass(frozen=True)
class PhotoQuery:
    """How to search, and among which photos. exclude: ids that are no results.

    show_similarity: with a rerank, return similarities to the query, in the order of the rerank.
    """

    k: int
    rerank: Rerank = None
    condition: PhotoFilter = field(default_factory=PhotoFilter)
    exclude: frozenset[str] = frozenset()
    effort: float | None = None
    show_similarity: bool = False


@dataclass(frozen=True)
class Examples:
    """What to search with: photos of the index that results are like and unlike, a photo from a client, a text."""

    like: Sequence[str] = ()
    unlike: Sequence[str] = ()
    stored: str = ""
    text: str = ""


@dataclass(frozen=True)
class PhotoResults:
    """The hits of a query; the time to compute its descriptor, None if that was not needed, and to search.

    limit: the score that unrelated photos rarely exceed, None if unknown.
    """

    hits: list[Hit]
    search_ms: float
    describe_ms: float | None = None
    limit: float | None = None


@dataclass(frozen=True)
class StoredPhoto:
    """A photo from a client, kept so that its results have a URL: its file name, a JPEG of it, and its vector."""

    name: str
    jpeg: bytes
    index: Index
    vector: Floats
    describe_ms: float


class PhotoSearch:
    """The searches of one service, and the photos from clients that it keeps for a while."""

    def __init__(self, service: Service):
        self._service = service
        self._stored = SizedCache[StoredPhoto](STORED_BYTES, STORED_SECONDS)

    async def store(self, name: str, photo: BinaryIO) -> str:
        """Describe a photo from a client, and return the key to search with it, which cannot be guessed."""
        service = self._service
        content = await service.parse_pool.run(photo.read)
        ((index, vector), describe_ms), jpeg = await asyncio.gather(
            service.image_pool.run(
                service.upload_decoder, lambda decoder: _time(lambda: self._describe_upload(decoder, content, None))
            ),
            service.image_pool.run(
                service.upload_decoder, lambda decoder: decoder.render_jpeg(content, SIZES["large"])
            ),
        )
        key = secrets.token_urlsafe(16)
        self._stored.put(key, StoredPhoto(name, jpeg, index, vector, describe_ms), len(jpeg))
        return key

    def find_stored(self, key: str) -> StoredPhoto:
        stored = self._stored.get(key)
        if stored is None:
            raise HTTPError(404, "expired", "this search has expired; choose the photo again")
        return stored

    async def by_stored(self, key: str, region: Box | None, query: PhotoQuery) -> PhotoResults:
        """Return the photos that are most similar to a stored photo or to a region of it."""
        stored, index = self.find_stored(key), self._check(query).index
        if region is not None or stored.index is not index:
            return await self.by_image(BytesIO(stored.jpeg), region, query)
        return await self._service.search_pool.run(self._search, index, stored.vector, query, stored.describe_ms)

    async def by_image(self, photo: BinaryIO, box: Box | None, query: PhotoQuery) -> PhotoResults:
        """Return the photos that are most similar to an image from a client or to a region of it."""
        self._check(query)
        content = await self._service.parse_pool.run(photo.read)
        return await self._describe_and_search(
            self._service.upload_decoder, lambda decoder: self._describe_upload(decoder, content, box), query
        )

    async def by_id(self, photo_id: Id, box: Box | None, query: PhotoQuery) -> PhotoResults:
        """Return the photos that are most similar to a photo of the index or to a region of it, without itself."""
        collection = self._check(query)
        if not isinstance(photo_id, str) or photo_id not in collection.index:
            raise id_not_found(photo_id)
        query = replace(query, exclude=frozenset([photo_id]))
        if box is None:
            index = collection.index
            return await self._service.search_pool.run(
                lambda: self._search(index, index.reconstruct([photo_id])[0], query)
            )

        def describe(decoder: ImageDecoder) -> tuple[Index, Floats]:
            path = collection.photo_path(photo_id)
            region = _to_region(box, decoder, path)
            image, _ = decoder.decode_file(path, collection.side(region))
            return collection.describe(image, region)

        return await self._describe_and_search(self._service.photo_decoder, describe, query)

    async def by_text(self, text: str, query: PhotoQuery) -> PhotoResults:
        """Return the photos that match a text best."""
        collection, query = self._check(query), replace(query, effort=TEXT_EFFORT)
        decoder = self._service.upload_decoder  # not used
        return await self._describe_and_search(decoder, lambda _: collection.describe_text(text), query)

    async def by_examples(self, examples: Examples, query: PhotoQuery) -> PhotoResults:
        """Return the photos that are most similar to all examples together, and not to those that they are unlike."""
        collection, ids = self._check(query), [*examples.like, *examples.unlike]
        for photo_id in ids:
            if photo_id not in collection.index:
                raise id_not_found(photo_id)
        query = replace(query, exclude=frozenset(ids), effort=TEXT_EFFORT if examples.text else query.effort)
        stored = self.find_stored(examples.stored) if examples.stored else None

        def describe(decoder: ImageDecoder) -> tuple[Index, Floats]:
            index = collection.index
            like, unlike = (
                index.reconstruct(list(some)) if some else np.zeros((0, index.dim), np.float32)
                for some in (examples.like, examples.unlike)
            )
            more = []
            if stored is not None:
                same = stored.index is index
                more.append(stored.vector if same else self._describe_upload(decoder, stored.jpeg, None)[1])
            if examples.text:
                more.append(collection.describe_text(examples.text)[1])
            wanted, unwanted = _unit(np.concatenate([like, *map(np.atleast_2d, more)])), _unit(unlike)
            vector = wanted.sum(axis=0) / max(1, len(wanted)) - _AWAY * unwanted.sum(axis=0) / max(1, len(unwanted))
            return index, vector

        return await self._describe_and_search(self._service.upload_decoder, describe, query)

    def _check(self, query: PhotoQuery) -> PhotoCollection:
        self._service.check_search(1, query.k, query.rerank)
        return self._service.photo_collection

    def _describe_upload(self, decoder: ImageDecoder, content: bytes, box: Box | None) -> tuple[Index, Floats]:
        collection = self._service.photo_collection
        region = _to_region(box, decoder, content)
        return collection.describe(decoder.decode(content, collection.side(region)).image, region)

    async def _describe_and_search(
        self, decoder: ImageDecoder, describe: Callable[[ImageDecoder], tuple[Index, Floats]], query: PhotoQuery
    ) -> PhotoResults:
        """Compute the vector of a query and search with it, in a thread for searches by image."""

        def search(decoder: ImageDecoder) -> PhotoResults:
            (index, vector), describe_ms = _time(lambda: describe(decoder))
            return self._search(index, vector, query, describe_ms)

        return await self._service.image_pool.run(decoder, search)

    def _search(
        self, index: Index, vector: Floats, query: PhotoQuery, describe_ms: float | None = None
    ) -> PhotoResults:
        state, start = self._service.photo_collection.state, time.perf_counter()
        names = state.library.names(state.library.select(query.condition, "folder")) if query.condition else None
        hits: list[Hit] = []
        if names != []:
            k = query.k + len(query.exclude)
            found = index.search(
                np.atleast_2d(vector), k, filter=names, rerank=query.rerank, effort=query.effort, threads=1
            )
            hits = [hit for hit in to_hits(found)[0] if hit.id not in query.exclude][: query.k]
            if query.rerank and query.show_similarity and hits:
                cosines = _unit(index.reconstruct([hit.id for hit in hits])) @ _unit(np.atleast_2d(vector))[0]
                hits = [hit._replace(score=score) for hit, score in zip(hits, cosines.tolist(), strict=True)]
        search_ms = milliseconds_since(start)
        limit = None if query.rerank or query.effort else state.background.limit(vector)
        return PhotoResults(hits, search_ms, describe_ms, limit)


def _unit(X: Floats) -> Floats:
    return normalize_rows(X, row_norms(X))


def _time(function: Callable[[], T]) -> tuple[T, float]:
    """Return the result of a function and its time in milliseconds."""
    start = time.perf_counter()
    return function(), milliseconds_since(start)


def _to_region(box: Box | None, decoder: ImageDecoder, source: Path | bytes) -> Box | None:
    """Return a box as fractions; the size of the image is read only if the box is in pixels."""
    if box is None or has_fractions(box):
        return box
    details = decoder.read_details(source)
    return to_fractions(box, (details.width, details.height))

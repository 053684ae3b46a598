"""Searches for photos: by an image, by a photo of the index or a region of one, by text, together with a filter."""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np

from logt._internal.types import Floats
from logt._internal.validation import normalize_rows, row_norms
from logt.descriptors.boxes import Box, has_fractions, region_side, to_fractions
from logt.descriptors.image_decoder import ImageDecoder
from logt.index import Index
from logt.photos.photo_index import TEXT_EFFORT, Photos
from logt.photos.regions import find
from logt.server.caches import SizedCache
from logt.server.collection import Hit, Rerank
from logt.server.errors import HTTPError
from logt.server.library import PhotoFilter
from logt.server.metrics import milliseconds_since
from logt.server.service import Service
from logt.server.settings import SIZES

T = TypeVar("T")
_AWAY = 0.5  # the weight of photos that results are unlike
STORED_SECONDS, STORED_BYTES = 1800.0, 64 << 20
"""How long photos that were searched with are kept in memory, and how many bytes of them."""


@dataclass(frozen=True)
class PhotoQuery:
    """How to search, and among which photos.

    show_similarity: with a rerank, return similarities to the query, in the order of the rerank.
    """

    k: int
    rerank: Rerank = None
    condition: PhotoFilter = field(default_factory=PhotoFilter)
    show_similarity: bool = False


@dataclass(frozen=True)
class Examples:
    """What to search with: photos of the index that results are like and unlike, photos from clients, a text.

    stored: the key of a photo that `PhotoSearch.store` keeps. image: the bytes of one that is not kept. box: search
    with this region of the photo alone.
    """

    like: Sequence[str] = ()
    unlike: Sequence[str] = ()
    stored: str = ""
    image: bytes | None = None
    text: str = ""
    box: Box | None = None


@dataclass(frozen=True)
class PhotoResults:
    """The hits of a query; the time to compute its descriptor, 0 if that was not needed, and to search.

    limit: the score that unrelated photos rarely exceed, None if unknown.
    """

    hits: list[Hit]
    search_ms: float
    describe_ms: float = 0.0
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
        photos, content = service.photo_collection.photos.for_photos, await service.parse_pool.run(photo.read)
        ((index, vector), describe_ms), jpeg = await asyncio.gather(
            service.image_pool.run(
                service.upload_decoder, lambda decoder: _time(lambda: _describe_image(photos, decoder, content, None))
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

    async def search(self, what: Examples, query: PhotoQuery) -> PhotoResults:
        """Return the photos that are most similar to all examples together, and not to those that they are unlike."""
        service = self._service
        service.check_search(1, query.k, query.rerank)
        collection, ids = service.photo_collection, [*what.like, *what.unlike]
        collection.check_known(ids)
        stored = self.find_stored(what.stored) if what.stored else None
        photos = collection.searched(ids, text=bool(what.text), deep=query.rerank is not None)

        def search(decoder: ImageDecoder) -> PhotoResults:
            (index, vector), describe_ms = _time(lambda: self._describe(photos, what, stored, decoder))
            return self._search(index, vector, what, query, describe_ms)

        is_known = stored is None or stored.index is photos.index
        if is_known and what.box is None and what.image is None and not what.text:
            known = await service.search_pool.run(search, service.upload_decoder)  # which is not used
            return replace(known, describe_ms=stored.describe_ms if stored else 0.0)
        is_indexed = stored is None and what.image is None
        decoder = service.photo_decoder if is_indexed else service.upload_decoder
        return await service.image_pool.run(decoder, search)

    def _describe(
        self, photos: Photos, what: Examples, stored: StoredPhoto | None, decoder: ImageDecoder
    ) -> tuple[Index, Floats]:
        """Return the vector to search with, and the index that it belongs to."""
        content = stored.jpeg if stored else what.image
        if what.box is not None or what.image is not None:
            source = self._service.photo_collection.photo_path(what.like[0]) if content is None else content
            return _describe_image(photos, decoder, source, what.box)
        index = photos.index
        like, unlike = (
            index.reconstruct(list(some)) if some else np.zeros((0, index.dim), np.float32)
            for some in (what.like, what.unlike)
        )
        more = []
        if stored is not None:
            same = stored.index is index
            more.append(stored.vector if same else _describe_image(photos, decoder, stored.jpeg, None)[1])
        if what.text:
            more.append(_with_index(photos, lambda: photos.text_descriptor(what.text))[1])
        wanted, unwanted = _unit(np.concatenate([like, *map(np.atleast_2d, more)])), _unit(unlike)
        return index, wanted.mean(axis=0) - _AWAY * unwanted.sum(axis=0) / max(1, len(unwanted))

    def _search(
        self, index: Index, vector: Floats, what: Examples, query: PhotoQuery, describe_ms: float
    ) -> PhotoResults:
        collection, start = self._service.photo_collection, time.perf_counter()
        examples, effort = {*what.like, *what.unlike}, TEXT_EFFORT if what.text else None
        library, main = collection.state.library, collection.index
        names = library.names(library.select(query.condition, "folder")) if query.condition else None
        hits: list[Hit] = []
        if names != []:
            k = query.k + len(examples)
            rerank = collection.reranked_by(query.rerank)
            found = find(index, vector, k, names, rerank=rerank, effort=effort, threads=1)
            hits = [Hit(name, score, box=box) for name, score, box in found if name not in examples]
            hits = [hit for hit in hits if index is main or hit.id in main][: query.k]  # some were removed just now
            if query.rerank and query.show_similarity and hits:
                cosines = _unit(index.reconstruct([hit.id for hit in hits])) @ _unit(np.atleast_2d(vector))[0]
                hits = [hit._replace(score=score) for hit, score in zip(hits, cosines.tolist(), strict=True)]
        search_ms = milliseconds_since(start)
        limit = None if query.rerank or effort else collection.limit(index, vector)
        return PhotoResults(hits, search_ms, describe_ms, limit)


def _describe_image(
    photos: Photos, decoder: ImageDecoder, source: Path | bytes, box: Box | None
) -> tuple[Index, Floats]:
    region = _to_region(box, decoder, source)
    image = decoder.decode(source, region_side(photos.side, region)).image
    return _with_index(photos, lambda: photos.descriptor(image, region))


def _with_index(photos: Photos, describe: Callable[[], Floats]) -> tuple[Index, Floats]:
    while True:
        index = photos.index
        vector = describe()
        if photos.index is index:  # otherwise everything was described again meanwhile
            return index, vector


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

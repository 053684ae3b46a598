"""The part of the JSON API that lists photos, finds near-duplicates and sends photos as a zip file."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Query, Request
from starlette.responses import Response, StreamingResponse

from logt.server import schemas
from logt.server.api import PREFIX, ASCIIJSONResponse, ServiceDependency, _error_responses
from logt.server.duplicate_finder import DuplicateFinder
from logt.server.errors import HTTPError
from logt.server.export import MAX_PHOTOS, stream_zip
from logt.server.library import Order, PhotoFilter
from logt.server.photo_collection import PhotoCollection
from logt.server.thumbnails import SIZES

MAX_LISTED = 1000
"""Photos in one response."""

router = APIRouter(prefix=PREFIX)


def parse_filter(
    name: Annotated[str, Query(max_length=1000, description="Words that the id contains.")] = "",
    folder: Annotated[str, Query(max_length=4096, description="A folder; its subfolders are included.")] = "",
    first: Annotated[
        str, Query(alias="from", max_length=10, description="First date: YYYY, YYYY-MM or YYYY-MM-DD.")
    ] = "",
    last: Annotated[str, Query(alias="to", max_length=10, description="Last date.")] = "",
) -> PhotoFilter:
    """Return the filter in the parameters of a URL."""
    return PhotoFilter(name, folder, first, last)


FilterDependency = Annotated[PhotoFilter, Depends(parse_filter)]


def get_duplicates(request: Request, service: ServiceDependency) -> DuplicateFinder:
    """Return the search for near-duplicates; raise a 409 error if the index has no photos."""
    _ = service.photo_collection
    finder: DuplicateFinder = request.app.state.duplicates
    return finder


@router.get(
    "/pictures",
    response_model=schemas.PhotoListResponse,
    responses=_error_responses(409, 422, 503, 504),
    tags=["search"],
)
async def list_photos(
    service: ServiceDependency,
    condition: FilterDependency,
    order: Annotated[Order, Query(description="Newest first, or by folder and name.")] = "date",
    offset: Annotated[int, Query(ge=0, le=2**31, description="Photos to skip.")] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_LISTED, description="Photos to return.")] = 100,
) -> Any:
    """Return photos of the index, with their dates and sizes."""
    library = service.photo_collection.library

    def select() -> dict[str, Any]:
        selection = library.select(condition, order)
        photos = [
            {"id": photo.name, "date": library.date(photo.name), "width": photo.width, "height": photo.height}
            | {"bytes": photo.size}
            for photo in library.page(selection, offset, limit)
        ]
        groups = [{"label": group.label, "count": group.count} for group in selection.groups]
        return {"total": len(selection), "pictures": photos, "groups": groups}

    return ASCIIJSONResponse(await service.run_search(select))


@router.get(
    "/duplicates",
    response_model=schemas.DuplicatesResponse,
    responses=_error_responses(409, 422),
    tags=["search"],
)
async def list_duplicates(
    finder: Annotated[DuplicateFinder, Depends(get_duplicates)],
    threshold: Annotated[float | None, Query(gt=0, le=1, description="Minimum score of a pair.")] = None,
) -> Any:
    """Return groups of near-duplicates. The first request starts the search; repeat it until groups is not null."""
    found = finder.find(threshold)
    groups = found.groups and [{"score": group.score, "ids": group.names} for group in found.groups]
    if found.groups is not None:
        groups = groups or []
    return ASCIIJSONResponse({"done": found.done, "total": found.total, "groups": groups})


@router.post(
    "/pictures/zip",
    response_class=Response,
    responses={
        200: {
            "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
            "description": "Zip.",
        },
        **_error_responses(404, 409, 413, 422),
    },
    tags=["search"],
)
async def export_photos(
    request: Request,
    service: ServiceDependency,
    ids: Annotated[str, Form(max_length=1 << 22, description=f"JSON list of at most {MAX_PHOTOS:,} ids.")],
) -> Response:
    """Return photos as a zip file: their files with --allow-download, otherwise JPEGs of at most 2048 pixels."""
    collection = service.photo_collection
    photos = [(photo_id, _find_file(collection, photo_id)) for photo_id in _parse_ids(ids)]
    decoder = service.photo_decoder
    stream = stream_zip(
        photos, lambda path: decoder.render_jpeg(path, SIZES["large"]), originals=service.settings.originals
    )
    deadline: asyncio.Timeout = request.scope["deadline"]
    deadline.reschedule(None)  # a client that stops reading is disconnected
    headers = {"Content-Disposition": 'attachment; filename="photos.zip"'}
    return StreamingResponse(stream, media_type="application/zip", headers=headers)


def _find_file(collection: PhotoCollection, photo_id: str) -> FilePath | None:
    """Return the file of a photo; None if it was deleted after it was indexed."""
    try:
        return collection.photo_path(photo_id)
    except HTTPError as error:
        if error.code != "gone":
            raise
        return None


def _parse_ids(text: str) -> list[str]:
    """Return the distinct ids in a JSON list of strings."""
    try:
        ids = json.loads(text)
    except (ValueError, RecursionError):
        ids = None
    if not isinstance(ids, list) or not all(isinstance(photo_id, str) for photo_id in ids) or not ids:
        raise HTTPError(422, "invalid_input", "ids must be a JSON list of strings")
    if len(ids) > MAX_PHOTOS:
        raise HTTPError(422, "invalid_input", f"at most {MAX_PHOTOS:,} photos fit in one zip file, got {len(ids):,}")
    return list(dict.fromkeys(ids))

"""The part of the JSON API for photos: search by photo, region and text, lists, near-duplicates, files, uploads."""

import asyncio
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from fastapi import Depends, File, Form, Query, Request, UploadFile
from pydantic import Field, Json
from starlette.responses import FileResponse, Response, StreamingResponse

from logt.descriptors.boxes import check_box
from logt.descriptors.image_io import ImageError
from logt.photos.folder_scan import is_photo_name
from logt.server import schemas
from logt.server.access import is_local
from logt.server.api import (
    ASCIIJSONResponse,
    ServiceDependency,
    change_route,
    get_service,
    read_body,
    search_response,
    search_route,
)
from logt.server.api import router as router  # with all routes of the API
from logt.server.duplicate_groups import find_groups
from logt.server.errors import HTTPError
from logt.server.export import MAX_PHOTOS, stream_zip
from logt.server.library import Order, PhotoFilter
from logt.server.photo_collection import PhotoCollection
from logt.server.photo_search import Examples, PhotoQuery, PhotoSearch
from logt.server.settings import SIZES

MAX_LISTED = 1000
"""Photos in one response."""


PhotoId = Annotated[str, Query(max_length=4096, description="Id of a photo in the index.")]


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


def _binary(media_type: str) -> dict[str, Any]:
    """Return the OpenAPI description of a response that is a file."""
    return {"content": {media_type: {"schema": {"type": "string", "format": "binary"}}}, "description": "A file."}


def get_searches(request: Request) -> PhotoSearch:
    """Return the searches of the app for photos."""
    searches: PhotoSearch = request.app.state.searches
    return searches


SearchesDependency = Annotated[PhotoSearch, Depends(get_searches)]


async def _search(request: Request, what: Examples, query: PhotoQuery) -> Response:
    found = await get_searches(request).search(what, query)
    return await search_response(get_service(request), [found.hits], found.describe_ms + found.search_ms)


@search_route("/search/photo")
async def search_by_photo(
    request: Request,
    photo: Annotated[UploadFile, File(description="The photo to search with. It is not stored.")],
    box: Annotated[
        str,
        Form(description="Region to search with: left,top,right,bottom as fractions or in pixels. Empty: all of it."),
    ] = "",
    k: Annotated[int, Form(ge=1, le=schemas.MAX_K, description="Number of results.")] = 10,
    rerank: Annotated[
        Literal["", "diffusion", "function"],
        Form(description="diffusion: re-rank the results on the neighbor graph. function: by that of --rerank."),
    ] = "",
) -> Any:
    """Return the photos that are most similar to an uploaded photo, or to a region of it."""
    content = await get_service(request).parse_pool.run(photo.file.read)
    what = Examples(image=content, box=schemas.parse_box_field(box))
    return await _search(request, what, PhotoQuery(k, rerank or None))


@search_route("/search/region", schemas.RegionSearchRequest)
async def search_by_region(request: Request) -> Any:
    """Return the photos that are most similar to a region of a photo in the index, without that photo."""
    _, body = await read_body(request, schemas.RegionSearchRequest)
    return await _search(request, Examples([body.id], box=check_box(body.box)), PhotoQuery(body.k, body.rerank))


@search_route("/search/text", schemas.TextSearchRequest)
async def search_by_text(request: Request) -> Any:
    """Return the photos that match a text best. They can be searched so if text of /api/v1/info is true."""
    _, body = await read_body(request, schemas.TextSearchRequest)
    return await _search(request, Examples(text=body.text), PhotoQuery(body.k))


@router.get("/photo", response_class=Response, responses={200: _binary("image/jpeg"), 304: {"description": "Known."}})
async def get_photo(
    request: Request,
    service: ServiceDependency,
    id: PhotoId,
    size: Annotated[
        Literal["thumb", "large", "original"],
        Query(
            description="At most 480 (thumb) or 2048 (large) pixels on the longer side; original: the file itself."
        ),
    ] = "thumb",
) -> Response:
    """Return a photo in the index as JPEG, upright and without metadata; or its file, where that is allowed."""
    if size == "original":
        file = await service.search_pool.run(service.photo_collection.photo_path, id)
        if not sends_originals(request) or not is_photo_name(file.name):
            raise HTTPError(
                403, "no_originals", "files are sent to this machine, or with logt serve --allow-download"
            )
        _allow_any_time(request)
        return FileResponse(file, filename=file.name)
    path, key = await service.search_pool.run(service.find_photo, id, size)
    etag = f'"{key}"'
    headers = {"ETag": etag, "Cache-Control": "private, max-age=60"}
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(await service.render(path, size, key), media_type="image/jpeg", headers=headers)


@router.get("/photo/about", response_model=schemas.PhotoAboutResponse)
async def describe_photo(request: Request, service: ServiceDependency, id: PhotoId) -> Any:
    """Return what the file of a photo says about it: where it is allowed to download it, and its path here."""
    collection, sends = service.photo_collection, sends_originals(request)
    path = await service.search_pool.run(collection.photo_path, id)
    camera = {}
    if sends:
        with suppress(ImageError):
            camera = await service.image_pool.run(service.photo_decoder, lambda decoder: decoder.read_camera(path))
    is_here = is_local(request.scope, request.headers, service.settings.proxies)
    content = {"camera": camera, "original": sends, "path": str(path) if is_here else None}
    return ASCIIJSONResponse(content)


@router.post("/photo/show", status_code=204)
async def show_photo(request: Request, service: ServiceDependency, id: PhotoId) -> None:
    """Show a photo in the file manager of this machine; for clients of this machine only."""
    if not is_local(request.scope, request.headers, service.settings.proxies):
        raise HTTPError(403, "not_here", "photos are shown in their folder on the machine of the server only")
    show_in_folder(await service.search_pool.run(service.photo_collection.photo_path, id))


def sends_originals(request: Request) -> bool:
    """Return whether the client gets the files of photos: of this machine, or with --allow-download."""
    settings = get_service(request).settings
    return settings.originals or is_local(request.scope, request.headers, settings.proxies)


@change_route("/photos", schemas.UploadResponse)
async def upload_photo(
    service: ServiceDependency,
    photo: Annotated[UploadFile, File(description="The photo. It is stored in the upload folder.")],
) -> Any:
    """Add a photo to the index. Requires that the server was started with --allow-upload."""
    photo_id = await service.upload(photo.file)
    return {"id": photo_id, "vectors": len(service.collection.index)}


@router.get("/photos", response_model=schemas.PhotoListResponse)
async def list_photos(
    service: ServiceDependency,
    condition: FilterDependency,
    order: Annotated[Order, Query(description="Newest first, or by folder and name.")] = "date",
    offset: Annotated[int, Query(ge=0, le=2**31, description="Photos to skip.")] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_LISTED, description="Photos to return.")] = 100,
) -> Any:
    """Return photos of the index, with their dates and sizes."""
    collection = service.photo_collection

    def select() -> Response:
        library = collection.state.library
        selection = library.select(condition, order)
        photos = [
            {"id": photo.name, "date": library.date(photo.name), "width": photo.width, "height": photo.height}
            | {"bytes": photo.size}
            for photo in library.page(selection, offset, limit)
        ]
        groups = list(map(asdict, selection.groups))
        return ASCIIJSONResponse({"total": len(selection), "photos": photos, "groups": groups})

    return await service.search_pool.run(select)


@router.get("/duplicates", response_model=schemas.DuplicatesResponse)
async def list_duplicates(
    service: ServiceDependency,
    threshold: Annotated[float | None, Query(gt=0, le=1, description="Minimum score of a pair.")] = None,
) -> Any:
    """Return groups of near-duplicates. The first request starts the search; repeat it until groups is not null."""
    work, collection = service.overview.graph.get(), service.photo_collection

    def render() -> Response:
        if work.error:
            raise HTTPError(500, "failed", work.error)
        groups = None
        if work.value is not None:
            found = find_groups(work.value, collection, threshold or collection.photos.duplicate_score)
            groups = [{"score": group.score, "ids": group.names} for group in found]
        return ASCIIJSONResponse({"done": work.done, "total": work.total, "groups": groups})

    return await service.search_pool.run(render)


@router.post("/photos/zip", response_class=Response, responses={200: _binary("application/zip")})
async def export_photos(
    request: Request,
    service: ServiceDependency,
    ids: Annotated[
        Json[Annotated[list[str], Field(min_length=1, max_length=MAX_PHOTOS, fail_fast=True)]],
        Form(description=f"JSON list of at most {MAX_PHOTOS:,} ids."),
    ],
) -> Response:
    """Return photos as a zip file: their files here or with --allow-download, else JPEGs of 2048 pixels."""
    collection, decoder = service.photo_collection, service.photo_decoder

    def find_files() -> list[tuple[str, FilePath | None]]:
        return [(photo_id, _find_file(collection, photo_id)) for photo_id in dict.fromkeys(ids)]

    photos = await service.search_pool.run(find_files)
    stream = stream_zip(
        photos, lambda path: decoder.render_jpeg(path, SIZES["large"]), originals=sends_originals(request)
    )
    _allow_any_time(request)
    headers = {"Content-Disposition": 'attachment; filename="photos.zip"'}
    return StreamingResponse(stream, media_type="application/zip", headers=headers)


def _allow_any_time(request: Request) -> None:
    """Let a download take longer than other requests; a client that stops reading is disconnected."""
    deadline: asyncio.Timeout = request.scope["deadline"]
    deadline.reschedule(None)


def _find_file(collection: PhotoCollection, photo_id: str) -> FilePath | None:
    """Return the file of a photo; None if it was deleted after it was indexed."""
    try:
        return collection.photo_path(photo_id)
    except HTTPError as error:
        if error.code != "gone":
            raise
        return None


def show_in_folder(path: FilePath) -> None:
    """Open the folder of a file; macOS also selects the file there."""
    command = ["open", "-R", str(path)] if sys.platform == "darwin" else ["xdg-open", str(path.parent)]
    try:
        silent = subprocess.DEVNULL
        subprocess.Popen(command, stdin=silent, stdout=silent, stderr=silent, start_new_session=True)
    except OSError:
        raise HTTPError(501, "no_desktop", f"{command[0]} cannot be started on this machine") from None

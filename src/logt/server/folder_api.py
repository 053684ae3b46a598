"""The part of the JSON API for the folder of the photos: updates of the index, duplicates, the trash."""

from typing import Annotated, Any

from fastapi import Request
from pydantic import BaseModel, Field, StrictStr

from logt.descriptors.downloads import find_in_catalog
from logt.photos.duplicates import keep_apart
from logt.server.access import is_local
from logt.server.api import ServiceDependency, change_route, get_service, json_schema, read_body
from logt.server.api import router as router  # with all routes of the API
from logt.server.collection import Change
from logt.server.errors import HTTPError
from logt.server.photo_collection import PhotoCollection
from logt.server.schemas import RequestBody

PhotoIds = Annotated[list[Annotated[StrictStr, Field(max_length=4096)]], Field(min_length=1, fail_fast=True)]


class FolderResponse(BaseModel):
    """What an update would change."""

    new: int = Field(description="Files that are new or changed since the last run.")
    gone: int = Field(description="Photos of the index that are no longer in the folder.")


class UpdateResponse(BaseModel):
    """The photos that an update changed."""

    added: int
    changed: int
    removed: int
    moved: int
    failed: int
    vectors: int = Field(description="Number of photos in the index after the change.")


class PhotosRequest(RequestBody):
    """Photos of the index."""

    ids: PhotoIds


class TextModelRequest(RequestBody):
    """A model of `logt models list`."""

    name: Annotated[StrictStr, Field(max_length=64)]


class TextModelResponse(BaseModel):
    """Whether photos can be searched by text now."""

    text: bool


class TrashResponse(BaseModel):
    """Photos in the trash."""

    batch: str = Field(description="The name of these photos, to restore them.")
    vectors: int = Field(description="Number of photos in the index after the change.")


class RestoreRequest(RequestBody):
    """Photos in the trash."""

    batch: Annotated[StrictStr, Field(max_length=64)]


class RestoreResponse(BaseModel):
    """Photos that are back."""

    restored: int
    failed: int = Field(description="Photos that stay in the trash, because there is another file in their place.")
    vectors: int = Field(description="Number of photos in the index after the change.")


def may_change(request: Request) -> bool:
    """Return whether a request may change the folder: --allow-changes, from this machine or with the token."""
    settings = get_service(request).settings
    is_trusted = settings.token is not None or is_local(request.scope, request.headers, settings.proxies)
    return settings.changes and not settings.read_only and is_trusted


def _check_may_change(request: Request) -> None:
    if not may_change(request):
        message = "this needs logt serve --allow-changes, and a client on the same machine or with a token"
        raise HTTPError(403, "no_changes", message)


@router.get("/folder", response_model=FolderResponse)
async def get_folder(service: ServiceDependency) -> Any:
    """Return how many files of the folder are not in the index yet, or no longer there."""
    return (await service.search_pool.run(service.photo_collection.news))._asdict()


@change_route("/update", UpdateResponse)
async def update_index(service: ServiceDependency) -> Any:
    """Synchronize the index with its folder, as logt images index does."""
    service.check_writable()
    collection = service.photo_collection
    return {**await service.changes.submit(Change(_update_and_count)), "vectors": len(collection.index)}


def _update_and_count(photos: PhotoCollection) -> dict[str, int]:
    """Return numbers alone: results are remembered, and a summary names each file that could not be read."""
    summary = photos.update_index()
    counts = {name: int(getattr(summary, name)) for name in ("added", "changed", "removed", "moved")}
    return {**counts, "failed": len(summary.failed)}


@change_route("/text-model", TextModelResponse, TextModelRequest)
async def add_text_model(request: Request) -> Any:
    """Download a model if it is not here, and describe all photos with it for searches by text.

    Requires --allow-changes. Other changes wait until this one is done.
    """
    _check_may_change(request)
    service, body = await read_body(request, TextModelRequest)
    collection, model = service.photo_collection, find_in_catalog(body.name)
    await service.changes.submit(Change(lambda photos: photos.add_text_model(model.name)))
    return {"text": collection.has_text}


@change_route("/photos/trash", TrashResponse, PhotosRequest)
async def trash_photos(request: Request) -> Any:
    """Move photos to FOLDER/.trash, all or none. Requires --allow-changes. No file is deleted."""
    _check_may_change(request)
    service, body = await read_body(request, PhotosRequest, "vectors")
    collection = service.photo_collection
    batch = await service.changes.submit(Change(lambda photos: photos.move_to_trash(body.ids)))
    return {"batch": batch, "vectors": len(collection.index)}


@change_route("/photos/restore", RestoreResponse, RestoreRequest)
async def restore_photos(request: Request) -> Any:
    """Move photos of the trash back to where they were. Requires --allow-changes. No file is replaced."""
    _check_may_change(request)
    service, body = await read_body(request, RestoreRequest)
    collection = service.photo_collection
    restored, taken = await service.changes.submit(Change(lambda photos: photos.restore(body.batch)))
    return {"restored": restored, "failed": len(taken), "vectors": len(collection.index)}


@router.post("/duplicates/dismiss", status_code=204, openapi_extra=json_schema(PhotosRequest))
async def dismiss_duplicates(request: Request) -> None:
    """Remember that photos are no duplicates of each other."""
    service, body = await read_body(request, PhotosRequest, "vectors")
    service.check_writable()
    collection = service.photo_collection
    collection.check_known(body.ids)
    await service.search_pool.run(keep_apart, collection.photos.path, body.ids)

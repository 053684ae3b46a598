"""The part of the JSON API that compares the index with its folder, and updates it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from logt.server.api import ServiceDependency, change_route
from logt.server.api import router as router  # with all routes of the API
from logt.server.collection import Update


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


@router.get("/folder", response_model=FolderResponse)
async def get_folder(service: ServiceDependency) -> Any:
    """Return how many files of the folder are not in the index yet, or no longer there."""
    return (await service.search_pool.run(service.photo_collection.news))._asdict()


@change_route("/update", UpdateResponse)
async def update_index(service: ServiceDependency) -> Any:
    """Synchronize the index with its folder, as logt images index does."""
    service.check_writable()
    collection = service.photo_collection
    summary = await service.changes.submit(Update())
    counts = {name: getattr(summary, name) for name in ("added", "changed", "removed", "moved")}
    return {**counts, "failed": len(summary.failed), "vectors": len(collection.index)}

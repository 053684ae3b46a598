"""Keep an index up to date while its folders change (`logt serve --watch`)."""

import asyncio
import logging
from pathlib import Path
from typing import Any

from logt.server.collection import Change
from logt.server.errors import HTTPError
from logt.server.photo_collection import PhotoCollection
from logt.server.service import Service

SETTLE_MS = 1500
"""Changes are taken together until there was none for so long: a photo may still be copied."""
FIRST_MS = 1000
"""The folders are compared once more when they have been watched for so long without a change."""
RETRY_SECONDS = 30.0
"""Time to wait after an update that failed, such as one of a disk that is not mounted."""

_log = logging.getLogger("logt.server")


async def follow_folders(service: Service) -> None:
    """Update the index now and after each change of its folders, until the task is cancelled."""
    from watchfiles import awatch

    folders = service.photo_collection.folders

    def concerns_photos(_: object, path: str) -> bool:
        inside = [Path(path).relative_to(folder) for folder in folders if Path(path).is_relative_to(folder)]
        return not any(part.startswith(".") for place in inside for part in place.parts)

    await _update(service)  # waits for a folder that is not there yet
    watched = [folder for folder in folders if folder.is_dir()]
    timing: dict[str, Any] = {"debounce": SETTLE_MS, "step": SETTLE_MS // 3, "rust_timeout": FIRST_MS}
    is_first = True
    try:
        async for changes in awatch(*watched, watch_filter=concerns_photos, yield_on_timeout=True, **timing):
            if changes or is_first:  # something may have changed during the first update
                await _update(service)
            is_first = False
    except Exception:  # such as a folder that was removed, or too many folders for this system
        _log.exception("the folder of photos is no longer watched")


def _update_index(photos: PhotoCollection) -> None:
    """Return nothing: results are remembered, and a summary names each file that could not be read."""
    photos.update_index()


async def _update(service: Service) -> None:
    reason = ""
    while True:
        try:
            await service.changes.submit(Change(_update_index))
            return
        except HTTPError as error:
            if error.message != reason:
                reason = error.message
                _log.warning("the index could not be updated, and is tried again: %s", reason)
        await asyncio.sleep(RETRY_SECONDS)

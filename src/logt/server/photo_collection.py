"""A folder of photos and its index as a server works on them: descriptors, files, uploads."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logt._internal.extras import install_hint
from logt._internal.types import Floats
from logt.descriptors.downloads import download
from logt.descriptors.image_decoder import ImageDecoder, LargeImageError
from logt.errors import InvalidInputError
from logt.index import Index
from logt.photos.catalog import FileStamp, file_stamp
from logt.photos.folder_scan import FolderNews, folder_news
from logt.photos.index_folder import photo_index
from logt.photos.photo_writer import DescribedPhotos, FamilyWriter
from logt.photos.progress_file import IndexingProgress, published_progress, read_progress
from logt.photos.trash import move_to_trash, restore
from logt.server.collection import AnyChange, BaseCollection, Id, PerState, Upload, VectorCollection
from logt.server.errors import HTTPError, photo_file_missing
from logt.server.library import Background, Library
from logt.server.uploads import UploadFolder

if TYPE_CHECKING:
    from logt.photos import Photos, Summary

NEWS_SECONDS, SCAN_SHARE = 10.0, 20
"""Time between two scans of the folder, at least, also as a multiple of the time that one takes."""
RETRY_SECONDS = 60.0
"""Time until work that failed after a change is tried again, at least."""
_log = logging.getLogger("logt.server")


@dataclass(frozen=True)
class PhotoState:
    """What is computed from one state of the index: the photos in order, and the scores of unrelated photos."""

    library: Library
    background: Background


class PhotoCollection(BaseCollection):
    """A folder of photos and its index. Photos are added and removed in the folder, or by upload if allowed."""

    has_photos = True

    def __init__(
        self,
        photos: Photos,
        *,
        allow_uploads: bool = False,
        allow_changes: bool = False,
        model: str | Path | None = None,
    ):
        """photos: the index. model: of the index, if it was given.

        allow_uploads, allow_changes: whether photos can be uploaded, and moved to the trash.
        """
        super().__init__()
        self.photos, self.allows_uploads, self._model = photos, allow_uploads, model
        self._news, self._news_lock = (0.0, FolderNews(0, 0)), threading.Lock()
        self._unreadable: dict[str, str] = {}  # as of the last update: each file is logged once
        self._uploads = UploadFolder(photos.folder, photos.path)
        self._writer: FamilyWriter | None = None
        self._next_update = 0.0  # when `tidy` tries again what has failed
        if allow_uploads:
            self._uploads.finish_interrupted()
        if allow_uploads or allow_changes:
            self._writer = FamilyWriter(photos.path)
        self._state = PerState(lambda index: PhotoState(Library(photos.details()), Background(index)))
        self._regions = PerState(Background)
        _ = self.state  # the first request does not wait for it

    @property
    def index(self) -> Index:
        return self.photos.index

    @property
    def title(self) -> str:
        return self.photos.folder.name

    @property
    def folders(self) -> list[Path]:
        return self.photos.folders

    @property
    def private_paths(self) -> list[Path]:
        return [self.photos.path, self.photos.path.resolve(), *self.folders]

    @property
    def state(self) -> PhotoState:
        return self._state.get(self.index, self.generation)

    @property
    def indexing(self) -> IndexingProgress | None:
        return read_progress(self.photos.path)

    @property
    def has_text(self) -> bool:
        return self.photos.has_text

    def searched(self, ids: Sequence[Id], *, text: bool, deep: bool) -> Photos:
        """Return the index to search in: the one for texts, or that of regions, or for a deeper search the main one.

        ids: of photos to search with, which it has to contain.
        """
        if text and not self.has_text:
            raise HTTPError(
                409,
                "no_text",
                "this index cannot be searched by text: it needs a model with a text encoder. "
                f"{install_hint('text')}; then: logt models get clip, logt images index FOLDER --text clip",
            )
        photos = self.photos.for_text if text else self.photos if deep else self.photos.for_photos
        return photos if text or all(one in photos.index for one in ids) else self.photos

    def limit(self, index: Index, vector: Floats) -> float | None:
        """Return the score that unrelated photos rarely exceed, None if unknown. index: that was searched."""
        known = self.state.background if index is self.index else self._regions.get(index, index.generation)
        return known.limit(vector)

    def photo_path(self, id: Id) -> Path:
        self.check_known([id])
        try:
            return self.photos.photo_path(str(id))
        except InvalidInputError:
            raise photo_file_missing() from None

    def apply(self, changes: Sequence[AnyChange]) -> list[Any]:
        results: list[Any] = []
        for is_upload, group in groupby(changes, lambda change: isinstance(change, Upload)):
            if is_upload:
                results += self._upload([change for change in group if isinstance(change, Upload)])
            else:
                results += [change.attempt(self) for change in group if not isinstance(change, Upload)]
        return results

    def add(self, *_: object) -> None:
        raise _follows_folder("add")

    def compact(self) -> None:
        """Free the space of removed photos, as a part of `apply`."""
        if self._writer is None or not self._writer.compact():
            raise HTTPError(409, "follows_folder", "cannot compact an index without uploads; run logt compact")
        self.photos.refresh()

    def describe(self, content: bytes, decoder: ImageDecoder) -> Upload:
        """Return a photo as a change that adds it, with its descriptors for all indexes."""
        image, extension, details = decoder.decode(content, self.photos.photo_side)
        descriptors = {"": self.photos.raw_descriptor(image)}
        for name, part in self.photos.parts.items():
            try:
                descriptors[name] = part.raw_descriptor(decoder.decode(content, part.photo_side).image)
            except LargeImageError:
                raise
            except InvalidInputError as error:
                _log.warning("a photo has no descriptor for the index in %s: %s", part.path, error)
        return Upload(content, extension, details, descriptors)

    def _upload(self, uploads: Sequence[Upload]) -> list[Any]:
        """Store photos in the upload folder and index them together; return the id of each, or its exception.

        No file is left of a photo that fails.
        """
        results: list[Any] = []
        new: dict[str, Upload] = {}
        with ExitStack() as stored:
            for upload in uploads:
                try:
                    photo_id, is_new = self._uploads.store(upload.content, upload.extension)
                except Exception as error:
                    results.append(error)
                    continue
                results.append(photo_id)
                if photo_id not in self.index and photo_id not in new:
                    new[photo_id] = upload
                    if is_new:
                        stored.callback(self._uploads.discard, photo_id)
            try:
                self._index_uploads(new)
                stored.pop_all()
            except Exception as error:
                return [error if result in new else result for result in results]
        return results

    def _index_uploads(self, uploads: Mapping[str, Upload]) -> None:
        """Index photos that were stored: only they are written, unless everything is being indexed again."""
        if not uploads:
            return
        stamps = {photo_id: file_stamp(self.photos.folder / photo_id) for photo_id in uploads}
        described = {name: self._described(uploads, stamps, name) for name in ("", *self.photos.parts)}
        known = {name: one for name, one in described.items() if one is not None}
        if self._writer is not None and self._writer.add(known):
            self.photos.refresh()
            return
        self.update_index()
        if not all(photo_id in self.index for photo_id in uploads):
            raise HTTPError(415, "not_a_photo", "a photo was stored, but could not be indexed")

    def _described(
        self, uploads: Mapping[str, Upload], stamps: Mapping[str, FileStamp], name: str
    ) -> DescribedPhotos | None:
        """Return photos as one of the indexes has them; None if not all have a descriptor of the same model."""
        found = [upload.descriptors[name] for upload in uploads.values() if name in upload.descriptors]
        if len(found) < len(uploads) or any(model is not found[0][1] for _, model in found):
            return None
        rows = zip(uploads.items(), found, strict=True)
        return [(one, stamps[one], x, upload.details) for (one, upload), (x, _) in rows], found[0][1]

    def remove(self, ids: list[Id]) -> int:
        """Remove uploaded photos and their files, and return how many; other photos cannot be removed."""
        known = [str(photo_id) for photo_id in dict.fromkeys(ids) if photo_id in self.index]
        if not self.allows_uploads or not all(map(self._uploads.owns, known)):
            raise _follows_folder("remove")
        if known:
            with self._uploads.set_aside(known):
                if self._writer is not None and self._writer.remove(known):
                    self.photos.refresh()
                else:
                    self.update_index()
        return len(known)

    def move_to_trash(self, names: Sequence[str]) -> str:
        """Move photos to the trash and out of the index; return the name of the batch, to restore them."""
        batch = move_to_trash(self.photos, names)
        try:
            if self._writer is None or not self._writer.remove(names, remember=True):
                raise HTTPError(409, "locked", "all photos are being indexed again; try again later")
        except BaseException:
            restore(self.folders, batch)
            raise
        self.photos.refresh()
        return batch

    def restore(self, batch: str) -> tuple[int, list[str]]:
        restored = restore(self.folders, batch)
        self.update_index()
        return restored

    def tidy(self) -> None:
        """Do what changes left behind: learn a whitening again, update what could not be written, write files.

        Searches use the present state meanwhile. What has failed is tried again after a change, but not at once.
        """
        start = time.monotonic()
        if self._writer is None or start < self._next_update:
            return
        try:
            if self._writer.needs_update:
                self.update_index()
                self._writer.note_update()
            else:
                self._writer.fold()
        except Exception:
            end = time.monotonic()
            self._next_update = end + max(RETRY_SECONDS, SCAN_SHARE * (end - start))
            _log.exception("the index could not be updated after a change")

    def refresh(self) -> None:
        before = self.folders
        if self.photos.refresh():
            _ = self.state
        if self.folders != before:
            _log.warning("the photos are now in %s", ", ".join(map(repr, map(str, self.folders))))

    def news(self) -> FolderNews:
        """Return what an update would change; the folder is scanned at most once in a while."""
        with self._news_lock:
            until, news = self._news
            start = time.monotonic()
            if start > until:
                try:
                    news = folder_news(self.photos.path)
                except OSError as error:
                    _log.warning("the folder of photos cannot be compared with its index: %s", error)
                    message = "the folder of photos cannot be read; is its disk mounted?"
                    raise HTTPError(503, "no_folder", message) from None
                end = time.monotonic()
                self._news = end + max(NEWS_SECONDS, SCAN_SHARE * (end - start)), news
            return news

    def add_text_model(self, name: str) -> None:
        """Download a model of the catalog if needed, and describe all photos with it, as a part of `apply`."""
        try:
            with published_progress(self.photos.path, None) as report:
                download(name, report)
        except ConnectionError as error:
            raise HTTPError(424, "no_download", str(error)) from error
        self.update_index(name)

    def update_index(self, text: str | None = None) -> Summary:
        from logt.photos import update

        summary = update(self.photos.folder, self.photos.path, model=self._model, text=text)
        for name, reason in summary.failed:
            if self._unreadable.get(name) != reason:
                _log.warning("%s was not indexed: %s", name, reason)
        self._unreadable = dict(summary.failed)
        self._news = 0.0, FolderNews(0, 0)  # scan the folder again
        self.photos.refresh()
        return summary


def open_collection(
    path: Path, *, allow_uploads: bool = False, allow_changes: bool = False, model: str | Path | None = None
) -> BaseCollection:
    """Open a folder of photos that `logt images index` has indexed, the index of one, or an index of vectors.

    model: as in `Photos.open`.
    """
    if photo_index(path) is not None:
        from logt.photos import Photos

        photos = Photos.open(path, model=model)
        return PhotoCollection(photos, allow_uploads=allow_uploads, allow_changes=allow_changes, model=model)
    return VectorCollection(path)


def _follows_folder(action: str) -> HTTPError:
    return HTTPError(
        409,
        "follows_folder",
        f"cannot {action}: this index follows its folder; change the folder and run logt images index",
    )

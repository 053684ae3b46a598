"""A folder of photos and its index as a server works on them: search by image, previews, uploads."""

from __future__ import annotations

import hashlib
import math
import os
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from logt.errors import InvalidInputError
from logt.index import Index
from logt.server.collection import BaseCollection, VectorCollection
from logt.server.errors import HTTPError, id_not_found, photo_file_missing
from logt.server.hits import Hit, Id

if TYPE_CHECKING:
    from PIL.Image import Image

    from logt.descriptors import Box

Region = tuple[float, float, float, float]
"""Left, top, right, bottom as fractions (0 to 1) of the upright photo. `logt.descriptors.Box` is in pixels."""

UPLOAD_FOLDER = "uploads"
"""The only subfolder that the server writes to, and only with --allow-upload."""


class PhotoSource(Protocol):
    """The part of `logt.photos.Photos` that the server uses."""

    @property
    def path(self) -> Path: ...

    @property
    def folder(self) -> Path: ...

    @property
    def index(self) -> Index: ...

    @property
    def side(self) -> int: ...

    def search(self, image: Image, k: int, box: Box | None = None) -> list[tuple[str, float]]: ...

    def photo_path(self, name: str) -> Path: ...

    def refresh(self) -> bool: ...


class PhotoCollection(BaseCollection):
    """A folder of photos and its index. Photos are added and removed in the folder, or by upload if allowed."""

    has_photos = True

    def __init__(self, photos: PhotoSource, *, allow_uploads: bool = False):
        super().__init__()
        self.photos, self.allows_uploads = photos, allow_uploads

    @property
    def index(self) -> Index:
        return self.photos.index

    @property
    def title(self) -> str:
        return self.photos.folder.name

    def search_image(
        self, source: BinaryIO | Path, k: int, region: Region | None, max_pixels: int | None
    ) -> list[Hit]:
        """Return the k most similar photos to an image or to a region of it."""
        fraction = 1.0 if region is None else max(region[2] - region[0], region[3] - region[1])
        image = read_photo(source, math.ceil(self.photos.side / fraction), max_pixels)
        box = None if region is None else _to_pixels(region, image.size)
        return [Hit(*pair) for pair in self.photos.search(image, k, box)]

    def photo_path(self, id: Id) -> Path:
        """Return the file of a photo in the index."""
        if not isinstance(id, str) or id not in self.index:
            raise id_not_found(id)
        try:
            return self.photos.photo_path(id)
        except InvalidInputError:
            raise photo_file_missing() from None

    def add(self, X: Any, ids: list[Id] | None, *, replace: bool = False) -> list[Id]:
        raise _follows_folder("add")

    def upload(self, content: bytes, max_pixels: int) -> str:
        """Store a photo in the upload folder, index it and return its id. The file name is a hash of its content."""
        if not self.allows_uploads:
            raise HTTPError(403, "no_uploads", "uploads are disabled; start the server with --allow-upload")
        read_photo(content, self.photos.side, max_pixels)
        folder = self.photos.folder / UPLOAD_FOLDER
        folder.mkdir(exist_ok=True)
        if folder.is_symlink():
            raise HTTPError(409, "no_uploads", f"{UPLOAD_FOLDER} is a symbolic link; replace it with a folder")
        name = f"{hashlib.sha256(content).hexdigest()[:24]}.{_file_extension(content)}"
        file = folder / name
        if not file.exists():
            with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as out:
                out.write(content)
            try:
                self._update_index()
            except BaseException:
                file.unlink()
                raise
        return f"{UPLOAD_FOLDER}/{name}"

    def remove(self, ids: list[Id]) -> int:
        """Remove uploaded photos and their files, and return how many; other photos cannot be removed."""
        known = [photo_id for photo_id in ids if photo_id in self.index]
        uploaded = [photo_id for photo_id in known if str(photo_id).startswith(f"{UPLOAD_FOLDER}/")]
        if not self.allows_uploads or len(uploaded) < len(known):
            raise _follows_folder("remove")
        for photo_id in uploaded:
            self.photo_path(photo_id).unlink()
        self._update_index()
        return len(uploaded)

    def refresh(self) -> None:
        self.photos.refresh()

    def _update_index(self) -> None:
        from logt.photos import update

        update(self.photos.folder, self.photos.path)
        self.photos.refresh()


def open_collection(path: Path, *, allow_uploads: bool = False) -> BaseCollection:
    """Open a folder of photos that `logt images index` has indexed, the index of one, or an index of vectors."""
    for home in (path, path / ".logt"):
        if (home / "photos.json").is_file():
            from logt.photos import Photos

            return PhotoCollection(Photos.open(home), allow_uploads=allow_uploads)
    if allow_uploads:
        raise InvalidInputError(f"{path} is not an index of photos; --allow-upload needs one")
    return VectorCollection(path)


def read_photo(source: BinaryIO | Path | bytes, side: int, max_pixels: int | None = None) -> Image:
    """Return a decoded image for use at `side` pixels; the error for an unreadable image contains no path."""
    from logt.descriptors import ImageError, read_image

    limit = {} if max_pixels is None else {"max_pixels": max_pixels}
    try:
        return read_image(source, side=side, **limit)
    except ImageError as error:
        raise HTTPError(415, "not_a_picture", error.reason) from error


def _follows_folder(action: str) -> HTTPError:
    return HTTPError(
        409,
        "follows_folder",
        f"cannot {action}: this index follows its folder; change the folder and run logt images index",
    )


def _file_extension(content: bytes) -> str:
    from logt.descriptors.image_io import pillow

    with pillow().open(BytesIO(content)) as image:
        file_format = str(image.format).lower()
    return {"jpeg": "jpg", "mpo": "jpg", "heif": "heic", "jpeg2000": "jp2"}.get(file_format, file_format)


def _to_pixels(region: Region, size: tuple[int, int]) -> Box:
    """Return the region as a box in pixels, at least one pixel wide and high."""
    (width, height), (left, top, right, bottom) = size, region
    x0, y0 = min(left * width, width - 1.0), min(top * height, height - 1.0)
    return x0, y0, max(x0 + 1, right * width), max(y0 + 1, bottom * height)

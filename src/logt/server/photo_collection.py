"""Photos as the service holds them: searched by picture, shown by id, and added to in one subfolder if allowed."""

from __future__ import annotations

import hashlib
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from logt.errors import InvalidInputError
from logt.index import Index
from logt.server.collection import BaseCollection, VectorCollection
from logt.server.errors import HTTPError, id_not_found
from logt.server.hits import Hit, Id

if TYPE_CHECKING:
    from PIL.Image import Image

Box = tuple[float, float, float, float]
"""Left, top, right, bottom, as parts (0 to 1) of the upright picture."""

UPLOADS = "uploads"
"""The one subfolder that the service writes to, if it was started so."""


class Pictures(Protocol):
    """What the service needs of `logt.photos.Photos`."""

    @property
    def path(self) -> Path: ...

    @property
    def folder(self) -> Path: ...

    @property
    def index(self) -> Index: ...

    @property
    def side(self) -> int: ...

    def search(self, image: Image, k: int, box: Box | None = None) -> list[tuple[str, float]]: ...

    def picture(self, id: str) -> Path: ...

    def refresh(self) -> bool: ...


class PhotoCollection(BaseCollection):
    """A folder of photos and its index, which follows the folder: photos come and go in it, not here."""

    pictures = True

    def __init__(self, photos: Pictures, *, uploads: bool = False):
        super().__init__()
        self.photos, self.uploads = photos, uploads

    @property
    def index(self) -> Index:
        return self.photos.index

    @property
    def title(self) -> str:
        return self.photos.folder.name

    def search_picture(self, source: BinaryIO | Path, k: int, box: Box | None, pixels: int | None) -> list[Hit]:
        """The k best for a picture, or for a region of it, under the model and whitening of the index."""
        part = 1.0 if box is None else max(box[2] - box[0], box[3] - box[1])
        image = read(source, math.ceil(self.photos.side / part), pixels)
        found = self.photos.search(image, k, None if box is None else _pixels(box, image.size))
        return [Hit(*hit) for hit in found]

    def picture(self, id: Id) -> Path:
        """The file of a picture of the index."""
        if not isinstance(id, str) or id not in self.index:
            raise id_not_found(id)
        try:
            return self.photos.picture(id)
        except InvalidInputError:
            raise HTTPError(410, "gone", "the file of this picture is gone; index the folder again") from None

    def add(self, X: Any, ids: list[Id] | None, *, replace: bool = False) -> list[Id]:
        raise _follows("add")

    def upload(self, content: bytes, pixels: int) -> str:
        """Keep a picture in the folder for uploads, under a name made of its content, and index it; its id."""
        if not self.uploads:
            raise HTTPError(403, "no_uploads", "this service takes no photos; start it with --allow-upload")
        read(content, self.photos.side, pixels)
        folder = self.photos.folder / UPLOADS
        folder.mkdir(exist_ok=True)
        if folder.is_symlink():
            raise HTTPError(409, "no_uploads", f"{UPLOADS} is a link; make it a folder")
        name = f"{hashlib.sha256(content).hexdigest()[:24]}.{_kind(content)}"
        file = folder / name
        if not file.exists():
            with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as out:
                out.write(content)
            try:
                self._update()
            except BaseException:
                file.unlink()
                raise
        return f"{UPLOADS}/{name}"

    def remove(self, ids: list[Id]) -> int:
        """Remove pictures that were uploaded, their files too; those of the owner stay."""
        there = [one for one in ids if one in self.index]
        if not self.uploads or not all(isinstance(one, str) and one.startswith(f"{UPLOADS}/") for one in there):
            raise _follows("remove")
        for one in there:
            self.picture(one).unlink()
        self._update()
        return len(there)

    def poll(self) -> None:
        self.photos.refresh()

    def _update(self) -> None:
        from logt.photos import update

        update(self.photos.folder, self.photos.path)
        self.photos.refresh()


def open_collection(path: Path, *, uploads: bool = False) -> BaseCollection:
    """What is in a folder: photos (made by `logt images index`, in the folder of photos or beside it), or vectors."""
    for home in (path, path / ".logt"):
        if (home / "photos.json").is_file():
            from logt.photos import Photos

            return PhotoCollection(Photos.open(home), uploads=uploads)
    if uploads:
        raise InvalidInputError(f"{path} is no index of photos; only those take uploads")
    return VectorCollection(path)


def read(source: BinaryIO | Path | bytes, side: int, pixels: int | None = None) -> Image:
    """A picture that is read to be seen at `side` pixels; a to_http_error names no path."""
    from logt.descriptors import PictureError, read_picture

    try:
        return (
            read_picture(source, side=side) if pixels is None else read_picture(source, side=side, max_pixels=pixels)
        )
    except PictureError as error:
        raise HTTPError(415, "not_a_picture", error.reason) from error


def _follows(what: str) -> HTTPError:
    return HTTPError(
        409, "follows_folder", f"cannot {what}: this index follows its folder; change that and run logt images index"
    )


def _kind(content: bytes) -> str:
    """What the name of such a picture ends in."""
    from io import BytesIO

    from logt.descriptors.image_io import pillow

    with pillow().open(BytesIO(content)) as image:
        kind = str(image.format).lower()
    return {"jpeg": "jpg", "mpo": "jpg", "heif": "heic", "jpeg2000": "jp2"}.get(kind, kind)


def _pixels(box: Box, size: tuple[int, int]) -> Box:
    """The box in pixels, at least one wide and high."""
    (width, height), (left, top, right, bottom) = size, box
    x0, y0 = min(left * width, width - 1.0), min(top * height, height - 1.0)
    return x0, y0, max(x0 + 1, right * width), max(y0 + 1, bottom * height)

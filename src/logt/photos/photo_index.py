"""A folder of pictures and the index of their descriptors, for reading: describe a picture, find those like it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from logt._types import Floats
from logt.descriptors import Box, DescriptorExtractor, Model, Whitening
from logt.errors import CorruptIndexError, InvalidInputError
from logt.index import Index
from logt.photos.indexer import read_whitening
from logt.photos.manifest import About, vectors_folder

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class _View:
    """One whitening and the vectors that have it: they change only together."""

    about: About
    whitening: Whitening
    index: Index


class Photos:
    """An index of photos, opened for reading; threads may share it. `logt.photos.update` makes and renews it."""

    def __init__(self, path: Path, view: _View, describer: DescriptorExtractor):
        self._path, self._view, self._describer = path, view, describer
        self._refreshing = threading.Lock()

    @classmethod
    def open(cls, path: str | Path, *, model: str | Path | Model | None = None) -> Photos:
        """Open an index of photos; `model` says where its model is now, if that has moved."""
        home = Path(path).resolve()
        view = _read(home)
        return cls(home, view, view.about.describer(model))

    @property
    def path(self) -> Path:
        """Of the index."""
        return self._path

    @property
    def folder(self) -> Path:
        """Of the pictures."""
        return self._view.about.pictures(self._path)

    @property
    def index(self) -> Index:
        """The vectors; their ids are the names of the pictures relative to the folder, with '/'."""
        return self._view.index

    @property
    def side(self) -> int:
        """What to read pictures with that are to be described whole: `read_image(source, side=photos.side)`."""
        return self._describer.side

    def describe(self, image: Image, box: Box | None = None) -> Floats:
        """The vector of a picture, or of the part of it in a box, as those of the index are: whitened, length 1."""
        return self._view.whitening(self._raw(image, box))

    def search(self, image: Image, k: int, box: Box | None = None) -> list[tuple[str, float]]:
        """The names and scores of the k pictures that are most like a picture, or like the part of it in a box."""
        view = self._view
        found = view.index.search(view.whitening(self._raw(image, box)), k)
        names, scores = found.ids.tolist(), found.scores.tolist()
        return [(name, score) for name, score in zip(names, scores, strict=True) if name is not None]

    def picture(self, id: str) -> Path:
        """The file of a picture of the index; anything else, and what has left the folder, is refused."""
        if id not in self.index:
            raise InvalidInputError(f"there is no picture {id!r} in the index")
        path = (self.folder / id).resolve()
        if not path.is_relative_to(self.folder) or not path.is_file():
            raise InvalidInputError(f"the picture {id!r} is not in the folder any more; update the index")
        return path

    def refresh(self) -> bool:
        """Move on to what has been saved since; say whether there was anything."""
        with self._refreshing:
            if About.read(self._path) == self._view.about:
                try:
                    return self._view.index.refresh()
                except (FileNotFoundError, CorruptIndexError):
                    if About.read(self._path) == self._view.about:
                        raise  # else its vectors have just been replaced
            view = _read(self._path)
            self._describer = view.about.describer(self._describer.model)
            self._view = view
            return True

    def _raw(self, image: Image, box: Box | None) -> Floats:
        return self._describer(image if image.mode == "RGB" else image.convert("RGB"), box)


def _read(home: Path) -> _View:
    while True:
        about = About.read(home)
        if about.whitening is None:
            raise InvalidInputError(f"{home} holds no pictures yet: logt images index FOLDER describes them")
        try:
            whitening = read_whitening(home, about.whitening)
            return _View(about, whitening, Index.open(vectors_folder(home, about.whitening)))
        except (FileNotFoundError, CorruptIndexError):
            if About.read(home) == about:
                raise  # else a writer moved on while we read, and has removed what came before

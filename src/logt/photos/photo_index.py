"""An index of photos, opened for reading: compute the descriptor of an image, find similar photos."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from logt._internal.types import Floats
from logt.descriptors import Box, Model, TextEncoder
from logt.descriptors.boxes import region_side
from logt.descriptors.image_io import AnyImage, as_rgb
from logt.errors import CorruptIndexError, InvalidInputError
from logt.index import Index
from logt.photos.catalog import CATALOG_FILE, Catalog, CatalogPhoto
from logt.photos.index_folder import REGIONS, TEXT, IndexFolder, PhotoState, find_index, naming_the_way_out
from logt.photos.manifest import MANIFEST_FILE, PhotoManifest
from logt.photos.progress_file import read_progress
from logt.photos.regions import Match, boxes, find

if TYPE_CHECKING:
    from PIL.Image import Image

# Altered copies score above these, other photos of one object below: docs/how-to/photos.md has the measurements.
_DUPLICATE_SCORES = {"dinov2-vits14": 0.9}
_DUPLICATE_SCORE = 0.85  # of other models
_RAW_DUPLICATE_SCORE = 0.95  # of descriptors that are not whitened, such as those of CLIP; their scores are high

TEXT_EFFORT = 1.0
"""Searches by text read all codes: texts are far from all photos, so what was measured with photos does not hold."""


class Photos:
    """An index of photos, opened for reading. Threads can share it. `logt.photos.update` creates and updates it.

    path: the folder of the index.
    """

    path: Path

    def __init__(self, path: Path, state: PhotoState, model: Model, inside: Path | None = None):
        """Use `open`. path: the folder of the index. state: its newest state. model: of the descriptors.

        inside: the folder of photos that was opened, if the index is the one inside it.
        """
        self.path, self._state, self._model, self._inside = path, state, model, inside
        self._refresh_lock, self._text_lock, self._part_lock = threading.Lock(), threading.Lock(), threading.Lock()
        self._text_encoder: tuple[object, TextEncoder] | None = None  # and what it was loaded for
        self._parts: dict[str, tuple[int, Photos | Exception]] = {}

    @classmethod
    def open(cls, path: str | Path, *, model: str | Path | Model | None = None) -> Photos:
        """Open an index of photos.

        path: the folder of the index, or the folder of photos that contains it as .logt. The latter must be the index
        of this folder, not of another one.
        model: the ONNX file or the folder of the model that the photos were indexed with, if it was moved, or if it
        is neither included nor one that was passed on this computer before.
        """
        given = Path(path).resolve()
        index_path = find_index(given)
        inside = None if index_path == given else given
        state = _read_state(index_path, inside)
        return cls(index_path, state, state.manifest.load_model(model), inside)

    @property
    def folder(self) -> Path:
        """The folder of the photos."""
        return self._state.manifest.photo_folder(self.path)

    @property
    def folders(self) -> list[Path]:
        """All folders of photos, the main one first; photos of the others have absolute paths as names."""
        return self._state.manifest.photo_folders(self.path)

    @property
    def index(self) -> Index:
        """The vectors; their ids are the names of the photos relative to the folder, with '/'."""
        return self._state.index

    @property
    def side(self) -> int:
        """The `side` with which to read an image to search for all of it: `read_image(source, side=photos.side)`."""
        return self._model.side

    @property
    def is_whitened(self) -> bool:
        """Whether descriptors are whitened; those that texts are compared with are not."""
        return not self._state.whitening.is_identity

    @property
    def for_photos(self) -> Photos:
        """The index that photos are searched in: with the vectors of regions, if there is one, or else this one."""
        part = self._part(REGIONS)
        return part if isinstance(part, Photos) else self

    @property
    def for_text(self) -> Photos:
        """The index that is searched by text: the one inside this one, or else this one."""
        part = self._part(TEXT)
        if isinstance(part, Exception):
            raise part
        return part or self

    def _part(self, name: str) -> Photos | Exception | None:
        """Return an index inside this one, or the reason why it cannot be opened; None if there is none."""
        path = self.path / name
        with self._part_lock:
            try:
                stamp = (path / MANIFEST_FILE).stat().st_mtime_ns
            except OSError:
                return None
            known, part = self._parts.get(name, (0, None))
            if part is None or known != stamp:
                try:
                    is_same = name == REGIONS and PhotoManifest.read(path).is_of(self._model)
                    part = Photos.open(path, model=self._model if is_same else None)
                except (InvalidInputError, CorruptIndexError, OSError) as error:
                    part = error
                self._parts[name] = stamp, part
            return part

    @property
    def duplicate_score(self) -> float:
        """The score from which photos are near-duplicates by default; it depends on the model."""
        if not self.is_whitened:
            return _RAW_DUPLICATE_SCORE
        return _DUPLICATE_SCORES.get(self._model.name, _DUPLICATE_SCORE)

    def descriptor(self, image: AnyImage, box: Box | None = None) -> Floats:
        """Return the vector of an image: whitened, of norm 1, comparable with those of the index.

        image: as in `search`.
        box: a region of the image, as in `search`.
        """
        return self._state.whitening(self._extract(image, box))

    @property
    def photo_side(self) -> int:
        """The `side` with which to read a photo to add it: that of `raw_descriptor`."""
        return max(region_side(self._model.side, box) for box in self._boxes)

    def raw_descriptor(self, image: Image) -> tuple[Floats, Model]:
        """Return the descriptor of an image as the model computes it, not whitened, and the model.

        In an index of regions, it is that of all regions, one after the other.
        """
        model = self._model
        return np.concatenate([model(image, box) for box in self._boxes]), model

    @property
    def _boxes(self) -> Sequence[Box]:
        return boxes(self._state.manifest.regions)

    @property
    def parts(self) -> dict[str, Photos]:
        """The indexes inside this one that can be opened, by the names of their folders."""
        parts = {name: self._part(name) for name in (REGIONS, TEXT)}
        return {name: part for name, part in parts.items() if isinstance(part, Photos)}

    def search(
        self, image: AnyImage, k: int = 10, box: Box | None = None, *, rerank: Literal["diffusion"] | None = None
    ) -> list[tuple[str, float]]:
        """Return (name, score) of the photos that are most similar to an image, best first.

        image: a PIL image, a uint8 array (height, width, 3) in RGB, or a path, bytes or open file of an image.
        k: the number of results.
        box: search for a region of the upright image: left, top, right, bottom. Four numbers from 0 to 1 are
        fractions of its width and height; other numbers are whole pixels inside it.
        rerank: "diffusion" re-ranks the results on the neighbor graph of whole photos, if there is one.
        """
        photos = self.for_photos if rerank is None else self
        return [(name, score) for name, score, _ in photos._find(image, k, box, rerank)]

    def search_regions(self, image: AnyImage, k: int = 10, box: Box | None = None) -> list[Match]:
        """Return (name, score, region that matched) of the photos that are most similar to an image, best first.

        The region is None where the whole photo matched best, or if the photos were indexed without regions.

        image, k, box: as in `search`.
        """
        return self.for_photos._find(image, k, box)

    @property
    def has_text(self) -> bool:
        """Whether `search_text` can be used: the model has a text encoder, and `tokenizers` is installed."""
        try:
            photos = self.for_text
        except (InvalidInputError, CorruptIndexError, OSError):
            return False
        return not photos.is_whitened and photos._model.has_text and find_spec("tokenizers") is not None

    def text_descriptor(self, text: str) -> Floats:
        """Return the vector of a text, of norm 1, comparable with the vectors of `for_text`.

        text: a few words, such as "a red bus".
        """
        photos = self.for_text
        return photos._encode_text(text, photos._state)

    def search_text(self, text: str, k: int = 10) -> list[tuple[str, float]]:
        """Return (name, score) of the photos that match a text best, best first.

        The photos must have been indexed with a model that has a text encoder, such as CLIP or SigLIP. Scores are
        cosines; those of matches are much lower than the scores of similar photos.

        text: a few words, such as "a red bus".
        k: the number of results.
        """
        photos = self.for_text
        state = photos._state
        found = find(state.index, photos._encode_text(text, state), k, effort=TEXT_EFFORT)
        return [(name, score) for name, score, _ in found]

    def photo_path(self, name: str) -> Path:
        """Return the file of a photo; raise if it is not in the index or no longer in the folder.

        name: the id of the photo, its path relative to the folder.
        """
        if name not in self.index:
            raise InvalidInputError(f"there is no photo {name!r} in the index")
        path = (self.folder / name).resolve()
        if not any(path.is_relative_to(folder) for folder in self.folders) or not path.is_file():
            raise InvalidInputError(f"the photo {name!r} is no longer in the folder; update the index")
        return path

    def details(self) -> list[CatalogPhoto]:
        """Return what the index knows about each photo: bytes, modification time, pixels, and when it was taken."""
        names, known = self.index.ids.tolist(), {}
        if (self.path / CATALOG_FILE).is_file():
            with naming_the_way_out(), closing(Catalog(self.path, create=False)) as catalog:
                known = {photo.name: photo for photo in catalog.photos()}
        return [known.get(name) or CatalogPhoto(name) for name in names]

    def refresh(self) -> bool:
        """Switch to the last saved state of the index; return whether it is a new one."""
        with self._part_lock:
            parts = [part for _, part in self._parts.values() if isinstance(part, Photos)]
        for part in parts:
            if (part.path / MANIFEST_FILE).is_file():
                part.refresh()
        with self._refresh_lock:
            if PhotoManifest.read(self.path) == self._state.manifest:
                try:
                    return self._state.index.refresh()
                except (FileNotFoundError, CorruptIndexError):
                    if PhotoManifest.read(self.path) == self._state.manifest:
                        raise  # otherwise a writer has just replaced the vectors
            state = _read_state(self.path, self._inside)
            self._model = self._new_model(state.manifest)
            self._state = state
            return True

    def _find(self, image: AnyImage, k: int, box: Box | None, rerank: str | None = None) -> list[Match]:
        state = self._state
        return find(state.index, state.whitening(self._extract(image, box)), k, rerank=rerank)

    def _new_model(self, manifest: PhotoManifest) -> Model:
        """Return the model of a newer manifest: the present one unless everything was indexed again."""
        if manifest.sha256 != self._model.sha256:
            return manifest.load_model()
        same = manifest.settings == self._state.manifest.settings
        return self._model if same else manifest.load_model(self._model.path)

    def _encode_text(self, text: str, state: PhotoState) -> Floats:
        model = self._model
        if model.has_text and not state.whitening.is_identity:
            raise InvalidInputError(
                "the photos were indexed before their model had a text encoder; "
                f"index them again with: logt images index {self.folder} --model {model.path} --relearn"
            )
        x = self._load_text_encoder(model, state.manifest)(text)
        if len(x) != state.index.dim:
            raise InvalidInputError(
                f"the text encoder returns {len(x)} values, the image encoder {state.index.dim}; "
                "they do not belong to the same model"
            )
        return x

    def _load_text_encoder(self, model: Model, manifest: PhotoManifest) -> TextEncoder:
        wanted = model.text.model, manifest.text_sha256, manifest.tokenizer_sha256
        with self._text_lock:
            if self._text_encoder is None or self._text_encoder[0] != wanted:
                encoder = TextEncoder.load(model)
                manifest.check_text(model, encoder.sha256)
                self._text_encoder = wanted, encoder
            return self._text_encoder[1]

    def _extract(self, image: AnyImage, box: Box | None) -> Floats:
        return self._model(as_rgb(image, self.side if box is None else None), box)


def _read_state(index_path: Path, inside: Path | None) -> PhotoState:
    state = IndexFolder(index_path).read_state()
    if state is None:
        way_out = "add them with: logt images index FOLDER"
        if running := read_progress(index_path):
            progress = f"{running.what}: {running.done:,} of {running.total:,}"
            way_out = f"logt images index is running ({progress}); try again later"
        raise InvalidInputError(f"{index_path} contains no photos yet; {way_out}")
    photo_folder = state.manifest.photo_folder(index_path)
    if inside not in (None, photo_folder):
        raise InvalidInputError(
            f"{index_path} is the index of {photo_folder}, not of {inside}; pass the path of the index, "
            f"or if the photos were moved here, run: logt images index {inside}"
        )
    return state

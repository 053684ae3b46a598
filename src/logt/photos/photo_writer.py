"""Photo writer: described photos -> rows of the catalog and vectors of the index, without a look at the others.

`logt.photos.update` scans the folder and reads the index; its time grows with the number of photos. This one writes
only what is new. It leaves the same files, and `update` repairs them if it is interrupted. `FamilyWriter` also writes
to the indexes inside the index, those of regions and for texts.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from logt._internal.types import Floats
from logt.descriptors import Model
from logt.descriptors.image_io import ImageDetails
from logt.photos.catalog import Catalog, FileStamp
from logt.photos.index_folder import IndexFolder, PhotoState, naming_the_way_out
from logt.photos.manifest import PhotoManifest
from logt.photos.photo_vectors import is_final, is_outgrown
from logt.photos.regions import has_regions, upsert, vector_ids
from logt.storage.changes import MAX_CHANGES

_log = logging.getLogger(__name__)
_MUCH_LOGGED = MAX_CHANGES * 3 // 4

DescribedPhoto = tuple[str, FileStamp, Floats, ImageDetails]
"""The name of a photo, the stamp of its file, its raw descriptor, and the details in its header.

The descriptor for an index of regions is that of all regions, one after the other.
"""

DescribedPhotos = tuple[Sequence[DescribedPhoto], Model]
"""Photos as one index has them, and the model that described them."""


class PhotoWriter:
    """Adds and removes single photos. It keeps the index in memory, so that a change does not open it again.

    index_path: the folder of the index. Other processes may write to it between two calls.
    """

    def __init__(self, index_path: Path):
        self._folder = IndexFolder(index_path)
        self._state = self._folder.read_state()
        self.is_outgrown = False
        """Whether `update` has work: to learn the whitening again."""

    def add(self, photos: Sequence[DescribedPhoto], model: Model) -> bool:
        """Add photos; all or none. Return False, and change nothing, if only `update` can.

        model: that described them.
        """
        with self._writing() as (state, catalog):
            if state is None or not state.manifest.is_of(model):
                return False
            names = [name for name, *_ in photos]
            described = np.array([descriptor for _, _, descriptor, _ in photos])
            X = state.whitening(described.reshape(-1, state.whitening.dim))
            catalog.record(photos, state.whitening.checksum, keep_descriptors=not is_final(state.whitening))
            try:
                upsert(state.index, X, names)
                state.index.save()
            except BaseException:
                catalog.remove(names)
                raise
            self.is_outgrown = is_outgrown(state.whitening, len(state.index))
        return True

    def remove(self, names: Sequence[str], *, remember: bool = False) -> bool:
        """Remove photos. Return False, and change nothing, if only `update` can.

        remember: keep their descriptors or vectors for a while, so that `update` can take them back.
        """
        with self._writing() as (state, catalog):
            if state is None:
                return False
            if remember:
                catalog.remember(names, state.index, state.whitening.checksum)
            else:
                catalog.remove(names)
            state.index.remove(vector_ids(names, regions=has_regions(state.index)))
            state.index.save()
        return True

    def compact(self) -> bool:
        """Free the space of removed photos. Return False, and change nothing, if all are being indexed again."""
        with self._writing() as (state, _):
            if state is None:
                return False
            state.index.compact()
            state.index.save()
        return True

    def fold(self) -> None:
        """Write the log of changes as files if it is almost full, which takes longer the more photos there are."""
        if self._state is None or self._state.index._logged < _MUCH_LOGGED:
            return
        with self._writing() as (state, _):
            if state is not None:
                state.index._fold()

    @contextmanager
    def _writing(self) -> Iterator[tuple[PhotoState | None, Catalog]]:
        """Lock the index; give its newest state, None while everything is being indexed again, and its catalog."""
        with self._folder.lock(), naming_the_way_out(), closing(Catalog(self._folder.path)) as catalog:
            if self._state is None or self._state.manifest != PhotoManifest.read(self._folder.path):
                self._state = self._folder.read_state()
            state = self._state if catalog.relearning is None else None
            if state is None:
                yield None, catalog
                return
            try:
                state.index.lock()
                yield state, catalog
            finally:
                state.index.close()  # what was not saved is read again by the next `lock`


class FamilyWriter:
    """Adds and removes single photos in an index and in those inside it.

    The index itself is written first: a photo is in it, or the change has failed. If one inside it cannot be written,
    as while another process updates it, `needs_update` is true; until `update` was called, searches by region or text
    do not find the photo.

    index_path: the folder of the index.
    """

    def __init__(self, index_path: Path):
        self._folder = IndexFolder(index_path)
        self._main = PhotoWriter(index_path)
        self._inside: dict[str, PhotoWriter] = {}
        self._is_behind = False
        self._change_inside(lambda *_: True)  # reads them, so that the first change does not
        self._is_behind = False  # one that is damaged is reported by those who search in it

    @property
    def needs_update(self) -> bool:
        """Whether `update` has work: to learn a whitening again, or what could not be written."""
        return self._is_behind or any(writer.is_outgrown for writer in self._writers)

    def add(self, photos: Mapping[str, DescribedPhotos]) -> bool:
        """Add photos; all or none. Return False, and change nothing, if only `update` can.

        photos: as the index has them, by the name "", and as those inside have them, by the names of their folders.
        """
        if "" not in photos or not self._main.add(*photos[""]):
            return False
        self._change_inside(lambda name, writer: name in photos and writer.add(*photos[name]))
        return True

    def remove(self, names: Sequence[str], *, remember: bool = False) -> bool:
        """Remove photos, as `PhotoWriter.remove`."""
        if not self._main.remove(names, remember=remember):
            return False
        self._change_inside(lambda _, writer: writer.remove(names, remember=remember))
        return True

    def compact(self) -> bool:
        """Free the space of removed photos, as `PhotoWriter.compact`."""
        if not self._main.compact():
            return False
        self._change_inside(lambda _, writer: writer.compact())
        return True

    def fold(self) -> None:
        """Write logs of changes that are almost full as files, so that the next changes need not wait for that."""
        for writer in self._writers:
            writer.fold()

    def note_update(self) -> None:
        """Note that `update` was called."""
        self._is_behind = False
        for writer in self._writers:
            writer.is_outgrown = False

    @property
    def _writers(self) -> list[PhotoWriter]:
        return [self._main, *self._inside.values()]

    def _change_inside(self, change: Callable[[str, PhotoWriter], bool]) -> None:
        """Call `change` with the name and the writer of each index inside; note it if one fails or returns False."""
        parts = {part.path.name: part for part in self._folder.parts()}
        self._inside = {name: writer for name, writer in self._inside.items() if name in parts}
        for name, part in parts.items():
            try:
                if name not in self._inside:
                    self._inside[name] = PhotoWriter(part.path)
                self._is_behind |= not change(name, self._inside[name])
            except Exception:
                _log.warning("%s is not up to date: it could not be written", part.path, exc_info=True)
                self._is_behind = True

"""Photo writer: described photos -> rows of the catalog and vectors of the index, without a look at the others.

`logt.photos.update` scans the folder and reads the index; its time grows with the number of photos. This one writes
only what is new. It leaves the same files, and `update` repairs them if it is interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

DescribedPhoto = tuple[str, FileStamp, Floats, ImageDetails]
"""The name of a photo, the stamp of its file, its raw descriptor, and the details in its header."""


class PhotoWriter:
    """Adds and removes single photos. It keeps the index in memory, so that a change does not open it again.

    index_path: the folder of the index. Other processes may write to it between two calls.
    """

    def __init__(self, index_path: Path):
        self._folder = IndexFolder(index_path)
        self._state = self._folder.read_state()
        self.is_outgrown = False
        """Whether `update` has work: to learn the whitening again, or to update indexes inside this one."""

    def add(self, photos: Sequence[DescribedPhoto], model: Model) -> bool:
        """Add photos; all or none. Return False, and change nothing, if only `update` can.

        model: that described them.
        """
        with self._writing() as (state, catalog):
            if state is None or not state.manifest.is_of(model):
                return False
            names = [name for name, *_ in photos]
            X = state.whitening(np.array([descriptor for _, _, descriptor, _ in photos]))
            catalog.record(photos, state.whitening.checksum, keep_descriptors=not is_final(state.whitening))
            try:
                state.index.upsert(X, names)
                state.index.save()
            except BaseException:
                catalog.remove(names)
                raise
            self.is_outgrown = is_outgrown(state.whitening, len(state.index)) or bool(self._folder.parts())
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
            state.index.remove(list(names))
            state.index.save()
            self.is_outgrown |= bool(self._folder.parts())
        return True

    def compact(self) -> bool:
        """Free the space of removed photos. Return False, and change nothing, if all are being indexed again."""
        with self._writing() as (state, _):
            if state is None:
                return False
            state.index.compact()
            state.index.save()
        return True

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

"""Photo vectors: descriptors in the catalog -> the vectors of the index, with one whitening."""

from collections.abc import Mapping, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np

from logt._internal.types import Floats
from logt.descriptors import Whitening
from logt.errors import CorruptIndexError
from logt.index import Index
from logt.photos.catalog import Catalog, FileStamp
from logt.photos.index_folder import IndexFolder
from logt.photos.manifest import PhotoManifest
from logt.photos.regions import boxes, upsert, vector_ids

FINAL_COUNT = 4096
"""A whitening learned from this many photos is final; one from fewer is learned again as the folder grows."""

GROWTH = 1.25
"""A whitening that is not final is learned again when there are this many times the photos."""

_SAMPLE_SIZE = 20_000  # descriptors that a whitening is learned from, at most
_BATCH_SIZE = 8192  # vectors added to the index together
_MAX_SEGMENTS = 8  # more are merged at the end of a run


@dataclass
class PhotoVectors:
    """The vectors of the photos in a catalog. The manifest names their whitening, and is written when it changes.

    whiten: whether descriptors are whitened.
    """

    index: IndexFolder
    catalog: Catalog
    manifest: PhotoManifest
    whiten: bool
    threads: int

    def forget_lost(self) -> None:
        """Remove photos from the catalog whose vectors were lost."""
        checksum = self.manifest.whitening
        with self._open() as vectors:
            if vectors is None or checksum is None:
                return
            if vectors.generation is None:
                raise CorruptIndexError(f"{self.index.vectors_folder(checksum)} is missing")
            present = set(vectors.ids.tolist())
        self.catalog.remove(self.catalog.indexed_names(checksum) - present)

    def remove(self, names: list[str], copied: Set[str]) -> None:
        """Remove photos; the catalog remembers descriptors, or else vectors, of them and of copied ones."""
        others = sorted(copied - set(names))
        if names or others:
            with self._open() as vectors:
                self.catalog.remember(names, vectors, self.manifest.whitening, others)

    def take_back(self, files: Mapping[str, tuple[str, FileStamp, bytes | None]]) -> set[str]:
        """Add photos again that the catalog remembers, and return their names. files: as in `Catalog.take_back`."""
        again, known = self.catalog.take_back(files, self.manifest.whitening)
        if known:
            with self._open() as vectors:
                assert vectors is not None  # what is known has its whitening
                X = np.stack(list(known.values())).reshape(-1, vectors.dim)
                upsert(vectors, X, list(known), self.threads)
                vectors.save()
        return again

    def update_early(self, new: int) -> bool:
        """Update the vectors if there are so many new photos that they should be searched before the run ends."""
        if new < FINAL_COUNT or self.catalog.relearning:
            return False
        self.update()
        return True

    def update(self, *, compact: bool = False) -> None:
        """Make the vectors those of exactly the photos of the catalog. compact: if it is worth it."""
        if not self.catalog.count() and self.manifest.whitening is None:
            return
        whitening = self._choose_whitening()
        self._write(whitening, compact)
        if whitening.checksum != self.manifest.whitening:
            self.index.write_whitening(whitening)
            self.manifest = replace(self.manifest, whitening=whitening.checksum)
            self.manifest.write(self.index.path)
        self.catalog.mark_indexed(whitening.checksum, drop_descriptors=is_final(whitening))
        self.index.remove_all_except(whitening.checksum)

    def _open(self) -> AbstractContextManager[Index | None]:
        """Open the present vectors for writing; None if there are none."""
        checksum = self.manifest.whitening
        return nullcontext() if checksum is None else self.index.open_vectors(self.index.read_whitening(checksum))

    def _write(self, whitening: Whitening, compact: bool) -> None:
        with self.index.open_vectors(whitening) as vectors:
            modified = is_new = vectors.generation is None
            for names, X in self.catalog.unindexed(whitening.checksum, _BATCH_SIZE):
                upsert(vectors, whitening(X.reshape(-1, whitening.dim)), names, self.threads)
                modified = True
            known = vector_ids(self.catalog.stamps(), regions=self.manifest.regions)
            not_in_catalog = set(vectors.ids.tolist()) - set(known)
            if not_in_catalog:
                vectors.remove(sorted(not_in_catalog))
                modified = True
            report = vectors.report()
            if compact and (report["segments"] > _MAX_SEGMENTS or report["removed"] > len(vectors) // 4):
                vectors.compact(threads=self.threads)
                modified = True
            if is_new and (k := self._linked_neighbors()):
                vectors.link(k, threads=self.threads)
            if modified:
                vectors.save(self.index.vectors_folder(whitening.checksum))

    def _linked_neighbors(self) -> int:
        """Return the neighbors per photo in the graph of the present vectors, 0 if they have none."""
        if self.catalog.relearning:
            return 0
        with self._open() as vectors:
            graph = None if vectors is None else vectors._snapshot.graph
            return 0 if graph is None else graph.k

    def _choose_whitening(self) -> Whitening:
        """Return the whitening of the present vectors, or a new one if the folder has grown or is relearned."""
        if self.manifest.whitening is not None and not self.catalog.relearning:
            current = self.index.read_whitening(self.manifest.whitening)
            if not is_outgrown(current, self.catalog.count() * self._per_photo):
                return current
        if self.whiten:
            return Whitening.learn(self._sample(_SAMPLE_SIZE))
        return Whitening.identity(self._sample(1).shape[1])

    def _sample(self, limit: int) -> Floats:
        """Return the descriptors of some photos, or of all regions of some."""
        photos = max(1, limit // self._per_photo)
        X = self.catalog.sample_descriptors(photos, np.random.default_rng(0))
        return X.reshape(len(X) * self._per_photo, -1)

    @property
    def _per_photo(self) -> int:
        return len(boxes(self.manifest.regions))


def is_final(whitening: Whitening) -> bool:
    """Return whether a whitening was learned from enough photos to stay."""
    return whitening.count >= FINAL_COUNT


def is_outgrown(whitening: Whitening, count: int) -> bool:
    """Return whether a whitening is learned again when there are so many photos."""
    return not is_final(whitening) and count >= GROWTH * whitening.count

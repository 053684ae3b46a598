"""Copies of an index of photos: of one state, even if it is updated meanwhile, and checked after they are written."""

import shutil
from contextlib import closing
from pathlib import Path

from logt.errors import CorruptIndexError, InvalidInputError
from logt.photos.catalog import CATALOG_FILE, Catalog
from logt.photos.index_folder import IndexFolder
from logt.photos.manifest import PhotoManifest
from logt.storage.backup import copy_index, removed_on_failure


def copy_photo_index(source: Path, target: Path, *, photo_folder: Path | None = None, overwrite: bool = False) -> int:
    """Copy the present state of an index of photos to a folder, and check every byte of the copy.

    source: the folder of an index of photos; it may be updated meanwhile.
    target: a new or empty folder, or with `overwrite` that of an index of photos that no process is writing to.
    photo_folder: the folder of the photos; default the one that the source names.
    Return the generation of the vectors.
    """
    old, new = IndexFolder(source.resolve()), IndexFolder(target.resolve())
    folder = PhotoManifest.read(old.path).photo_folder(old.path) if photo_folder is None else photo_folder.resolve()
    if new.path == old.path or new.path.is_relative_to(old.path):
        raise InvalidInputError(f"{target} is the index itself, or inside it; choose another path")
    if new.has_manifest() and not overwrite:
        raise InvalidInputError(f"{target} is an index of photos; choose another path, or pass --overwrite")
    with removed_on_failure(new.path), new.lock():
        manifest, generation = _copy_files(old, new)
        manifest.with_folder(folder, new.path).write(new.path)
        new.check()
        if manifest.whitening is not None:
            new.remove_all_except(manifest.whitening)
        for part in new.parts():
            shutil.rmtree(part.path)
        for part in old.parts():
            copy_photo_index(part.path, new.path / part.path.name, photo_folder=folder)
    return generation


def _copy_files(old: IndexFolder, new: IndexFolder) -> tuple[PhotoManifest, int]:
    """Copy vectors, whitening and catalog; return the manifest that belongs to them, and their generation.

    The catalog is copied last. If photos were indexed meanwhile, it knows more than the vectors; the next update of
    the copy reads those photos again.
    """
    while True:
        manifest = PhotoManifest.read(old.path)
        generation = 0
        try:
            if manifest.whitening is not None:
                new.write_whitening(old.read_whitening(manifest.whitening))
                folders = old.vectors_folder(manifest.whitening), new.vectors_folder(manifest.whitening)
                generation = copy_index(*folders, overwrite=True)
        except (FileNotFoundError, CorruptIndexError):
            if PhotoManifest.read(old.path) == manifest:
                raise
            continue  # a writer has replaced these files meanwhile
        if (old.path / CATALOG_FILE).exists():
            with closing(Catalog(old.path, create=False)) as catalog:
                catalog.copy_to(new.path)
        if PhotoManifest.read(old.path) == manifest:
            return manifest, generation

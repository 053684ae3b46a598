"""Rebuild: remove the damaged files of an index of photos, so that the next run computes them again."""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import replace

from logt.errors import CorruptIndexError
from logt.index import Index
from logt.photos.catalog import CATALOG_FILES, Catalog
from logt.photos.index_folder import IndexFolder
from logt.photos.manifest import MANIFEST_FILE, PhotoManifest


def remove_damaged(index: IndexFolder) -> None:
    """Remove what is damaged and no more; the folder must be locked. An error of the disk removes nothing."""
    try:
        manifest = PhotoManifest.read(index.path)
    except FileNotFoundError:
        return
    except CorruptIndexError:
        _remove_catalog(index)  # the model of its descriptors is not known
        (index.path / MANIFEST_FILE).unlink()
        return
    try:
        with closing(Catalog(index.path)) as catalog:
            catalog.check()
    except CorruptIndexError:
        _remove_catalog(index)
    if manifest.whitening is not None:
        try:
            index.read_whitening(manifest.whitening)
            Index.open(index.vectors_folder(manifest.whitening))
        except (CorruptIndexError, FileNotFoundError):
            _remove_vectors(index, manifest)


def _remove_vectors(index: IndexFolder, manifest: PhotoManifest) -> None:
    """Remove the vectors and their whitening; the manifest names them until the catalog has forgotten them."""
    with closing(Catalog(index.path)) as catalog:
        catalog.forget_vectors()
    replace(manifest, whitening=None).write(index.path)
    shutil.rmtree(index.vectors_folder(manifest.whitening or ""), ignore_errors=True)


def _remove_catalog(index: IndexFolder) -> None:
    for name in CATALOG_FILES:
        (index.path / name).unlink(missing_ok=True)

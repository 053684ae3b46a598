"""Folder news: an index of photos -> how many files of its folders it does not have yet, or no longer."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from logt.photos.catalog import CATALOG_FILE, Catalog
from logt.photos.folder_scan import is_photo_name, scan_folders
from logt.photos.manifest import PhotoManifest


class FolderNews(NamedTuple):
    """The number of files that are new or changed since the last run, and of photos that are gone."""

    new: int
    gone: int


def folder_news(index_path: Path) -> FolderNews:
    """Compare the folders of an index with its catalog. Photos that the last run could not read are not news."""
    if not (index_path / CATALOG_FILE).is_file():
        return FolderNews(0, 0)
    folders = PhotoManifest.read(index_path).photo_folders(index_path)
    with closing(Catalog(index_path, create=False)) as catalog:
        photos, others, failed = catalog.stamps(), catalog.stamps("others"), catalog.failed()
    scan = scan_folders(folders, index_path)
    seen = {**others, **failed, **photos}
    new = sum(
        seen.get(name) != stamp and (is_photo_name(name) or name in photos) for name, stamp in scan.files.items()
    )
    return FolderNews(new, sum(name not in scan.files and not scan.may_contain(name) for name in photos))

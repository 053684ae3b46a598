"""Folder scan: a folder -> the files in it that may be photos, the entries that were skipped, and what is new."""

import os
import stat
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from logt.photos.catalog import CATALOG_FILE, Catalog, FileStamp
from logt.photos.manifest import PhotoManifest

_PHOTO_SUFFIXES = {
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".webp", ".tif", ".tiff", ".bmp", ".dib", ".avif", ".heic"),
    *(".heif", ".hif", ".jp2", ".j2k", ".jpx", ".jpf", ".mpo", ".psd", ".ppm", ".pgm", ".pbm", ".pnm", ".tga"),
    *(".pcx", ".qoi", ".ico"),
}
_RAW_SUFFIXES = {
    *(".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dcr", ".dng", ".erf", ".iiq", ".kdc", ".mef", ".mos", ".mrw", ".nef"),
    *(".nrw", ".orf", ".pef", ".raf", ".raw", ".rw2", ".rwl", ".sr2", ".srf", ".srw", ".x3f"),
}


def is_photo_name(name: str) -> bool:
    """Return whether a file name ends as those of photos do; a user expects such a file in the index."""
    return Path(name).suffix.lower() in _PHOTO_SUFFIXES


def is_raw_name(name: str) -> bool:
    """Return whether a file name ends as those of raw files of cameras do, most of which cannot be decoded."""
    return Path(name).suffix.lower() in _RAW_SUFFIXES


@dataclass
class FolderScan:
    """Files by name relative to the folder, with '/'; skipped entries with the reason; unreadable subfolders."""

    files: dict[str, FileStamp] = field(default_factory=dict)
    failed: list[tuple[str, str]] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    def may_contain(self, name: str) -> bool:
        """Return whether a file that was not found may still exist, in a subfolder that cannot be read."""
        return any(name.startswith(f"{folder}/") for folder in self.unreadable)


def scan_folders(folders: Sequence[Path], index_path: Path) -> FolderScan:
    """Return the files in folders and their subfolders, except hidden ones and the index itself.

    The names of files in all but the first folder are absolute paths. If one of these folders is not there, it counts
    as one that cannot be read: its disk may not be mounted. Links are not followed: a target inside the folder is
    found anyway, a target outside does not belong to it.
    """
    scan = FolderScan()
    pending = [(folder, folder, f"{folder.as_posix()}/" if number else "") for number, folder in enumerate(folders)]
    while pending:
        folder, current, prefix = pending.pop()
        try:
            with os.scandir(current) as iterator:
                entries = sorted(iterator, key=lambda entry: entry.name)
        except OSError as error:
            if not prefix:
                raise
            scan.unreadable.append(prefix.removesuffix("/"))
            scan.failed.append((prefix, f"the folder cannot be read: {error.strerror}"))
            continue
        for entry in entries:
            if entry.name.startswith(".") or Path(entry.path) == index_path:
                continue
            if _add_entry(scan, entry, prefix + entry.name, folder):
                pending.append((folder, Path(entry.path), f"{prefix}{entry.name}/"))
    return scan


def _add_entry(scan: FolderScan, entry: os.DirEntry[str], name: str, folder: Path) -> bool:
    """Add a file, or the reason to skip it, to the scan; return whether the entry is a folder to scan.

    Links to files that are found anyway are left out.
    """
    reason: str | None
    try:
        name.encode()
        status = entry.stat(follow_symlinks=False)
    except UnicodeEncodeError:
        name = os.fsencode(name).decode("utf-8", "replace")
        reason = "the file name is not valid UTF-8; rename the file"
    except OSError as error:
        reason = error.strerror or str(error)
    else:
        if stat.S_ISDIR(status.st_mode):
            return True
        if stat.S_ISREG(status.st_mode):
            scan.files[name] = FileStamp(status.st_size, status.st_mtime_ns)
            return False
        reason = _link_reason(entry, folder) if entry.is_symlink() else "neither a file nor a folder"
    if reason:
        scan.failed.append((name, reason))
    return False


def _link_reason(entry: os.DirEntry[str], folder: Path) -> str | None:
    """Return why a link is skipped; None if its target is found anyway."""
    try:
        target = Path(entry.path).resolve(strict=True)
    except (OSError, RuntimeError):
        return "a broken link"
    return None if target.is_relative_to(folder) else "a link to a target outside the folder; it is not followed"


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

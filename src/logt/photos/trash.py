"""Trash: photos of a folder -> its subfolder .trash, and back. No file is deleted or replaced."""

import os
import re
import secrets
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from logt.errors import InvalidInputError
from logt.photos.photo_index import Photos

TRASH_FOLDER = ".trash"
"""The subfolder of a photo folder; hidden, so that it is never indexed."""

_BATCH = re.compile(r"\d{4}-\d\d-\d\d \d\d\.\d\d\.\d\d [0-9a-f]{6}")


def move_to_trash(photos: Photos, names: Sequence[str]) -> str:
    """Move photos to FOLDER/.trash/BATCH, with their paths; return BATCH, for `restore`. All or none are moved."""
    files = [_find(photos, name) for name in dict.fromkeys(names)]
    batch = f"{datetime.now():%Y-%m-%d %H.%M.%S} {secrets.token_hex(3)}"
    try:
        for folder, inside in files:
            _move(folder / inside, _trash(folder) / batch / inside)
    except BaseException:
        restore(photos.folders, batch)
        raise
    return batch


def restore(folders: Sequence[Path], batch: str) -> tuple[int, list[str]]:
    """Move the photos of a batch back; return how many, and the paths of those whose place is taken: these stay."""
    if not _BATCH.fullmatch(batch):
        raise InvalidInputError(f"{batch!r} is not the name of photos in the trash")
    restored, taken = 0, []
    for folder in folders:
        trash = _trash(folder) / batch
        for path in sorted(trash.rglob("*"), reverse=True):  # what is in a folder before the folder
            if path.is_dir() and not path.is_symlink():
                _remove_empty(path)
                continue
            try:
                _move(path, folder / path.relative_to(trash))
                restored += 1
            except (FileExistsError, NotADirectoryError):  # a file is in the place of the photo or of its folder
                taken.append(str(path))
        _remove_empty(trash)
    return restored, taken


def _find(photos: Photos, name: str) -> tuple[Path, Path]:
    """Return the photo folder of a photo and its path inside it; raise if it is a link or not there."""
    path = photos.photo_path(name)
    for folder in photos.folders:
        if path == folder / name and path.is_relative_to(folder):
            return folder, path.relative_to(folder)
    raise InvalidInputError(f"the photo {name!r} is behind a link; it is not moved")


def _trash(folder: Path) -> Path:
    trash = folder / TRASH_FOLDER
    if trash.is_symlink():
        raise InvalidInputError(f"{trash} is a symbolic link; replace it with a folder")
    return trash


def _move(source: Path, target: Path) -> None:
    """Move a file; raise FileExistsError if there is another one. A rename alone would replace it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(target):
            raise FileExistsError(target) from None
        source.rename(target)
    else:
        source.unlink()


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()

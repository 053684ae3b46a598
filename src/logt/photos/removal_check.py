"""Removal check: photos that are no longer in their folders -> an error if a disk may be missing.

An unmounted disk is an empty folder; without this check, all its photos would leave the index without a word.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path, PurePosixPath

from logt.errors import InvalidInputError
from logt.photos.catalog import Catalog
from logt.photos.folder_scan import FolderScan, is_photo_name

FEW = 5
"""So many photos may always be removed, unless a folder of the index has no others."""

MAX_SHARE = 0.1
"""The part of all photos that may be removed at once."""


def check_run(catalog: Catalog, scan: FolderScan, folders: Sequence[Path], *, relearn: bool, moved: Set[str]) -> None:
    """Raise an error if so many photos are gone that a disk may be missing; those of other folders do not count.

    relearn: whether photos in a subfolder that cannot be read are lost, too. moved: the old names of moved photos.
    """
    names = [name for name in catalog.stamps() if any(is_inside(name, folder, folders[0]) for folder in folders)]
    gone = (name for name in names if name not in scan.files and name not in moved)
    lost = [name for name in gone if relearn or not scan.may_contain(name)]
    known = set(names)
    found = (name for name in scan.files if name in known or is_photo_name(name))
    check_removals(lost, found, len(names), folders)


def check_removals(lost: Sequence[str], found: Iterable[str], total: int, folders: Sequence[Path]) -> None:
    """Raise an error if too many photos are lost at once, or all photos of a folder.

    lost: the names of photos of the index that are no longer in the folders. found: the names of those that are.
    total: the photos of the index. folders: of the index; names are relative to the first, or absolute paths.
    """
    if not lost:
        return
    with_photos = {folder for name in found for folder in _parents(name, folders)}
    gone = Counter(folder for name in lost for folder in _parents(name, folders) if folder not in with_photos)
    empty = [(path, count) for path, count in gone.items() if count > FEW or path in map(str, folders)]
    if empty:
        path, count = min(empty, key=lambda pair: len(pair[0]))
        what = f"{path} contains no photos, but its index has {count:,}: is the disk mounted?"
    elif len(lost) > max(FEW, MAX_SHARE * total):
        where = ", ".join(map(str, folders))
        what = f"{len(lost):,} of the {total:,} photos of the index are no longer in {where}: is a disk missing?"
    else:
        return
    raise InvalidInputError(
        f"{what} Nothing was changed. If they were deleted, remove them from the index with --yes (yes=True)"
    )


def is_inside(name: str, folder: Path, main: Path) -> bool:
    """Return whether a photo is in one of the folders of an index, by its name. main: the first of them."""
    return name.startswith(f"{folder.as_posix()}/") if folder != main else not name.startswith("/")


def _parents(name: str, folders: Sequence[Path]) -> Iterator[str]:
    """Yield the paths of the folder of a photo and of those above it, up to the folder of the index."""
    for folder in folders:
        if is_inside(name, folder, folders[0]):
            for parent in PurePosixPath(folder.as_posix(), name).parents:
                yield str(parent)
                if parent == PurePosixPath(folder.as_posix()):
                    return

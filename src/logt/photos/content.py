"""Content: files with a new name or time -> the photos of the catalog that have the same bytes."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from logt._internal.threads import Workers
from logt.photos.catalog import Catalog, FileStamp, file_stamp
from logt.photos.folder_scan import FolderScan


class Recognized(NamedTuple):
    """The photo of the catalog that a file is, by its bytes, and the checksum of these bytes."""

    source: str
    content: bytes


def recognize(catalog: Catalog, scan: FolderScan, folder: Path, workers: Workers) -> dict[str, Recognized]:
    """Return the files that were touched, moved or copied. Only files of the size of a known photo are read.

    The source of a touched file is its own name. Photos that were removed lately are known, too.
    """
    photos = catalog.stamps()
    seen = {**catalog.stamps("others"), **photos}
    new = {name: stamp for name, stamp in scan.files.items() if seen.get(name) != stamp}
    if not new:
        return {}
    known, contents = {**catalog.stamps("removed"), **photos}, catalog.contents()
    sizes = {stamp.size for name, stamp in known.items() if name in contents}
    names = [name for name, stamp in new.items() if stamp.size in sizes]
    found = read_contents(names, scan.files, folder, workers)
    order = sorted((name for name in contents if name in known), key=lambda name: name not in scan.files)
    source = {contents[name]: name for name in order}  # of several, one that was moved
    return {
        name: Recognized(name if name in photos and contents.get(name) == content else source[content], content)
        for name, content in found.items()
        if content in source
    }


def read_contents(
    names: Sequence[str], stamps: Mapping[str, FileStamp], folder: Path, workers: Workers
) -> dict[str, bytes]:
    """Return the checksum of each file, without those that cannot be read or have changed since the scan."""

    def read(name: str) -> bytes | None:
        try:
            with (folder / name).open("rb") as stream:
                content = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).digest()
            return content if file_stamp(folder / name) == stamps[name] else None
        except OSError:
            return None

    contents = zip(names, workers.map(read, names), strict=True)
    return {name: content for name, content in contents if content is not None}

"""The photos that clients uploaded: their files, and a record of them, so that no other file is ever deleted."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from logt.server.errors import HTTPError
from logt.storage.files import flush_folder, make_folder, replace_file

UPLOAD_FOLDER = "uploads"
"""The only subfolder of the photos that the server writes to, and only with --allow-upload."""

_NAME = re.compile(r"[0-9a-f]{24}\.[a-z0-9]{1,8}")
_ASIDE = ".removed"


class UploadFolder:
    """The subfolder of the photos for uploads, and their record in the folder of the index.

    A file is named by the checksum of its content. The record has one small file per upload, with the whole checksum.
    """

    def __init__(self, photo_folder: Path, index_path: Path):
        self._files, self._records = photo_folder / UPLOAD_FOLDER, index_path / UPLOAD_FOLDER

    def store(self, content: bytes, extension: str) -> tuple[str, bool]:
        """Write a photo and its record to disk; return its id, and whether the file is new."""
        for folder in (self._files, self._records):
            if folder.is_symlink():
                message = f"{folder.parent.name}/{UPLOAD_FOLDER} is a symbolic link; replace it with a folder"
                raise HTTPError(409, "no_uploads", message)
        checksum = hashlib.sha256(content).hexdigest()
        name = f"{checksum[:24]}.{extension}"
        file = self._files / name
        if file.exists() or file.is_symlink():
            if _checksum(file) != checksum:
                raise HTTPError(409, "no_uploads", f"the file {UPLOAD_FOLDER}/{name} was changed; move it elsewhere")
            return f"{UPLOAD_FOLDER}/{name}", False
        make_folder(self._records)
        replace_file(self._records / name, checksum.encode())
        make_folder(self._files)
        replace_file(file, content)
        return f"{UPLOAD_FOLDER}/{name}", True

    def discard(self, photo_id: str) -> None:
        """Delete a photo that was just stored, and its record."""
        name = photo_id.removeprefix(f"{UPLOAD_FOLDER}/")
        (self._files / name).unlink(missing_ok=True)
        (self._records / name).unlink(missing_ok=True)

    def owns(self, photo_id: object) -> bool:
        """Return whether a photo was uploaded, and its file is still the one that was."""
        folder, _, name = str(photo_id).partition("/")
        if folder != UPLOAD_FOLDER or not _NAME.fullmatch(name):
            return False
        record, file = self._records / name, self._files / name
        if not record.is_file() or file.is_symlink():
            return False
        return not file.exists() or _checksum(file).encode() == record.read_bytes()

    @contextmanager
    def set_aside(self, photo_ids: Sequence[str]) -> Iterator[None]:
        """Hide the files of uploaded photos from the indexer; delete them at the end, or restore them on an error."""
        recorded = [photo_id.removeprefix(f"{UPLOAD_FOLDER}/") for photo_id in photo_ids]
        names = [name for name in recorded if (self._files / name).is_file()]
        try:
            for name in names:
                (self._files / name).rename(self._aside(name))
            yield
        except BaseException:
            for name in names:
                if self._aside(name).exists():
                    self._aside(name).rename(self._files / name)
            raise
        for name in recorded:
            (self._records / name).unlink(missing_ok=True)
        for name in names:
            self._aside(name).unlink(missing_ok=True)
        if names:
            flush_folder(self._records)
            flush_folder(self._files)

    def finish_interrupted(self) -> None:
        """Restore or delete files that a killed server has set aside: a removal without a record was complete."""
        if self._files.is_symlink():
            return
        for path in self._files.glob(f".*{_ASIDE}"):
            name = path.name[1 : -len(_ASIDE)]
            if not _NAME.fullmatch(name):
                continue
            if not (self._records / name).exists():
                path.unlink(missing_ok=True)
            elif not (self._files / name).exists():
                path.rename(self._files / name)

    def _aside(self, name: str) -> Path:
        return self._files / f".{name}{_ASIDE}"


def _checksum(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()

"""The files of an index of photos: its lock, its whitening and its vectors. docs/how-to/photos.md lists them."""

import re
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from logt.descriptors import Whitening
from logt.errors import CorruptIndexError, InvalidInputError
from logt.index import Index
from logt.methods import sketched
from logt.photos.catalog import CATALOG_FILE, CATALOG_FILES, Catalog
from logt.photos.manifest import MANIFEST_FILE, PhotoManifest
from logt.storage.files import make_folder, read_bytes, replace_file
from logt.storage.lock import LOCK, Lock

DEFAULT_NAME = ".logt"
"""The subfolder of a folder of photos that holds its index by default."""

REGIONS, TEXT = "regions", "text"
"""The folders of further indexes of the same photos, inside the index: with vectors of regions, and for texts."""

_MAX_WHITENING = 1 << 30
_OWN_FILE = re.compile(
    rf"{re.escape(LOCK)}|{re.escape(CATALOG_FILE)}(-journal)?|\.?progress\.json(\.tmp)?|vectors-[0-9a-f]{{16}}"
    r"|\.?map\.safetensors(\.\d+\.tmp)?|whitening-[0-9a-f]{16}\.safetensors|\.whitening-[0-9a-f]{16}\.safetensors\.\d+\.tmp"
)  # but the manifest
_WAY_OUT = (
    "restore a backup with logt restore, keep what can be read with logt repair, "
    "or compute what is damaged again with logt images index --rebuild"
)


def find_index(path: Path) -> Path:
    """Return the index in a folder of photos, or the path itself if it is an index."""
    inside = path / DEFAULT_NAME
    return inside if inside.is_dir() and not (path / MANIFEST_FILE).exists() else path


@contextmanager
def naming_the_way_out() -> Iterator[None]:
    """Add what can be done to the error about a damaged index. Nothing is removed without `rebuild`."""
    try:
        yield
    except CorruptIndexError as error:
        raise CorruptIndexError(f"{error}; {_WAY_OUT}") from error


@dataclass(frozen=True)
class PhotoState:
    """A manifest, its whitening and the vectors with it; they are only ever replaced together."""

    manifest: PhotoManifest
    whitening: Whitening
    index: Index


@dataclass(frozen=True)
class IndexFolder:
    """A folder with the index of photos. Whitenings and their vectors are identified by the whitening's checksum."""

    path: Path

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Create the folder if it does not exist, and hold the lock of its only writer."""
        if self.path.exists() and not self._may_be_index():
            raise InvalidInputError(f"{self.path} exists and is not an index of photos; choose another path")
        make_folder(self.path)
        with Lock(self.path):
            yield

    def has_manifest(self) -> bool:
        """Return whether the index was created."""
        return (self.path / MANIFEST_FILE).exists()

    def parts(self) -> "list[IndexFolder]":
        """Return the further indexes of the same photos."""
        found = (IndexFolder(self.path / name) for name in (REGIONS, TEXT))
        return [part for part in found if part.has_manifest()]

    def vectors_folder(self, checksum: str) -> Path:
        """Return the folder of the vectors with this whitening: an ordinary index."""
        return self.path / f"vectors-{checksum}"

    def read_whitening(self, checksum: str) -> Whitening:
        """Read a whitening; raise CorruptIndexError if it is missing or damaged."""
        file = self._whitening_file(checksum)
        try:
            whitening = Whitening.from_bytes(read_bytes(file, _MAX_WHITENING))
        except FileNotFoundError:
            raise CorruptIndexError(f"{file} is missing") from None
        if whitening.checksum != checksum:
            raise CorruptIndexError(f"{file} is damaged: wrong checksum")
        return whitening

    def write_whitening(self, whitening: Whitening) -> None:
        """Write a whitening."""
        replace_file(self._whitening_file(whitening.checksum), whitening.serialized)

    def open_vectors(self, whitening: Whitening) -> Index:
        """Open the vectors with this whitening for writing, or a new index if there are none."""
        try:
            return Index.open(self.vectors_folder(whitening.checksum), "a")
        except FileNotFoundError:
            return Index(whitening.dim, method=sketched(bits=4))

    def read_state(self) -> PhotoState | None:
        """Read the present state, while a writer may replace it; None if there are no vectors yet."""
        while True:
            manifest = PhotoManifest.read(self.path)
            if manifest.whitening is None:
                return None
            try:
                whitening = self.read_whitening(manifest.whitening)
                return PhotoState(manifest, whitening, Index.open(self.vectors_folder(manifest.whitening)))
            except (FileNotFoundError, CorruptIndexError):
                if PhotoManifest.read(self.path) == manifest:
                    raise  # otherwise a writer has replaced these files meanwhile: read the new ones

    def check(self) -> tuple[PhotoManifest, Index | None]:
        """Check all bytes; return the manifest, and the vectors if there are any. Raise if a file is damaged."""
        for part in self.parts():
            part.check()
        manifest = PhotoManifest.read(self.path)
        if (self.path / CATALOG_FILE).exists():
            with closing(Catalog(self.path, create=False)) as catalog:
                catalog.check()
        state = self.read_state()
        if state is None:
            return manifest, None
        state.index.verify()
        return state.manifest, state.index

    def remove_all_except(self, checksum: str) -> None:
        """Remove the files of all other whitenings; readers keep the files that they have open."""
        for path in self.path.iterdir():
            if path.name.startswith("whitening-") and path != self._whitening_file(checksum):
                path.unlink(missing_ok=True)
            elif path.name.startswith("vectors-") and path != self.vectors_folder(checksum):
                shutil.rmtree(path, ignore_errors=True)

    def remove_damaged(self) -> None:
        """Remove what is damaged and no more, so that the next run computes it again; the folder must be locked.

        An error of the disk removes nothing.
        """
        try:
            manifest = PhotoManifest.read(self.path)
        except (FileNotFoundError, CorruptIndexError):
            self._remove_catalog()  # the model of its descriptors is not known
            (self.path / MANIFEST_FILE).unlink(missing_ok=True)
            return
        try:
            with closing(Catalog(self.path)) as catalog:
                catalog.check()
        except CorruptIndexError:
            self._remove_catalog()
        try:
            self.read_state()
        except (CorruptIndexError, FileNotFoundError):
            with closing(Catalog(self.path)) as catalog:
                catalog.forget_vectors()  # before the manifest does
            replace(manifest, whitening=None).write(self.path)
            shutil.rmtree(self.vectors_folder(manifest.whitening or ""), ignore_errors=True)

    def _remove_catalog(self) -> None:
        for name in CATALOG_FILES:
            (self.path / name).unlink(missing_ok=True)

    def _whitening_file(self, checksum: str) -> Path:
        return self.path / f"whitening-{checksum}.safetensors"

    def _may_be_index(self) -> bool:
        """Return whether the folder is an index, or the start of one by a run or a copy that was killed."""
        if (self.path / MANIFEST_FILE).is_file():
            return True
        return self.path.is_dir() and all(_OWN_FILE.fullmatch(file.name) for file in self.path.iterdir())


def photo_index(path: str | Path) -> IndexFolder | None:
    """Return the index of photos at a path, or in the folder of photos at it; None if there is none."""
    found = IndexFolder(find_index(Path(path)).resolve())
    return found if found.has_manifest() else None

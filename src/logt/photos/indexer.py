"""Indexer: synchronizes the index of photos with their folder. A run can be stopped at any time and resumes.

Descriptors are recorded in the catalog block by block; their vectors are added to the index after that. Every step
can be repeated: vectors replace those with the same name, and names that are not in the catalog are removed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from logt._internal.progress import shown_progress
from logt._internal.threads import Progress, Workers, available_cores
from logt._internal.validation import check_int
from logt.descriptors import Model
from logt.descriptors.image_io import NOT_AN_IMAGE
from logt.errors import InvalidInputError
from logt.photos.catalog import FAILED, Catalog, FileStamp
from logt.photos.content import Recognized, read_contents, recognize
from logt.photos.extraction import Extracted, ExtractElsewhere, extract_photo
from logt.photos.folder_scan import FolderScan, is_photo_name, is_raw_name, scan_folders
from logt.photos.index_folder import DEFAULT_NAME, REGIONS, TEXT, IndexFolder, naming_the_way_out
from logt.photos.manifest import PhotoManifest
from logt.photos.photo_vectors import PhotoVectors
from logt.photos.progress_file import published_progress
from logt.photos.regions import boxes
from logt.photos.removal_check import check_run

_BLOCK_SIZE = 64  # photos recorded together: the work that is lost, at most, when a run is killed


@dataclass(frozen=True)
class Summary:
    """The numbers of photos that were added, changed, removed and unchanged, and (name, reason) of failed files.

    moved: photos with another name and the same content; they are neither added nor removed.
    others: the number of files that are not photos, such as videos, text files and raw files of cameras.
    """

    added: int
    changed: int
    removed: int
    unchanged: int
    failed: list[tuple[str, str]] = field(default_factory=list)
    others: int = 0
    moved: int = 0


def update(
    folder: str | Path,
    path: str | Path | None = None,
    *,
    also: Sequence[str | Path] | None = None,
    model: str | Path | Model | None = None,
    regions: bool = False,
    text: str | Path | Model | None = None,
    relearn: bool = False,
    rebuild: bool = False,
    yes: bool = False,
    workers: int | None = None,
    extract: ExtractElsewhere | None = None,
    progress: Progress | bool | None = None,
) -> Summary:
    """Synchronize the index with the folder: add new photos, update changed ones, remove deleted ones.

    A run that was stopped or killed resumes when it is called again.

    folder: the folder of photos; its subfolders are included.
    path: the folder of the index, created if it does not exist; default FOLDER/.logt.
    also: other folders of photos; the names of their photos are absolute paths. Default: those of the last run.
    model: an ONNX file, a folder or a name as in `Model.load`, or a loaded model; default the model of the index, or
    the one included in the package.
    regions: add the vectors of ten regions of each photo, in an index inside this one; later runs keep it up to date.
    text: a model to search by text with, as `model`. Its descriptors are in another index inside this one.
    relearn: compute all descriptors and the whitening again, with another model if it is given.
    rebuild: remove the files of the index that are damaged, and compute them again; otherwise they raise an error.
    yes: remove photos that are no longer in the folder from the index even if they are more than a tenth of it, or
    all photos of a folder; otherwise they raise an error, because a disk may not be mounted.
    workers: the number of threads; default all cores.
    extract: computes descriptors in other processes, such as `logt.distributed.RayExtractor()`; default here.
    progress: True draws bars; a function is called as progress(what, done, total).
    """
    photo_folder = Path(folder).resolve()
    if not photo_folder.is_dir():
        raise InvalidInputError(f"{folder} is not a folder")
    index = IndexFolder(Path(path).resolve() if path is not None else photo_folder / DEFAULT_NAME)
    threads = available_cores() if workers is None else check_int("workers", workers)
    text = None if text is None else _loaded(text)
    with shown_progress(progress) as shown, published_progress(index.path, shown) as report:
        run = _Run(photo_folder, index, index.path, relearn, rebuild, yes, Workers(threads, report), extract)
        summary, loaded = run.update(model, also)
        folders = PhotoManifest.read(index.path).more_folders
        for name, chosen, is_wanted in ((REGIONS, loaded, regions), (TEXT, text, text is not None)):
            part = IndexFolder(index.path / name)
            if is_wanted or part.has_manifest():
                replace(run, index=part, yes=True).update(chosen, folders)  # the photos that are gone were checked
    return summary


@dataclass(frozen=True)
class _Run:
    """What `update` does, for an index of photos or one inside it. main: the folder that contains both."""

    photo_folder: Path
    index: IndexFolder
    main: Path
    relearn: bool
    rebuild: bool
    yes: bool
    workers: Workers
    extract: ExtractElsewhere | None

    def update(self, model: str | Path | Model | None, also: Sequence[str | Path] | None) -> tuple[Summary, Model]:
        """Synchronize the index; return the numbers of photos, and the model that described them."""
        index, photo_folder, relearn = self.index, self.photo_folder, self.relearn
        if not index.has_manifest():
            model = _loaded(model)  # an unusable model is refused before anything is written
        with index.lock(), naming_the_way_out():
            if self.rebuild:
                index.remove_damaged()
                if model is None and index.path != self.main and not index.has_manifest():
                    raise InvalidInputError(f"the model of {index.path} is not known any more; pass it with --text")
            with closing(Catalog(index.path)) as catalog:
                regions = index.path == self.main / REGIONS
                relearn |= (
                    regions and index.has_manifest() and not PhotoManifest.read(index.path).is_of(_loaded(model))
                )
                manifest, loaded = _prepare(index, photo_folder, catalog, model, relearn, regions)
                if index.path != self.main:  # one of these folders may not be mounted now
                    manifest = replace(manifest, more_folders=[str(other) for other in also or ()])
                elif also is not None:
                    more = [Path(other).resolve() for other in also]
                    manifest = _with_more_folders(manifest, [photo_folder, *more])
                folders = manifest.photo_folders(index.path)
                scan = scan_folders(folders, self.main)
                recognized = {} if relearn else recognize(catalog, scan, photo_folder, Workers(self.workers.threads))
                if not self.yes:
                    moved = {known.source for known in recognized.values()}
                    check_run(catalog, scan, folders, relearn=relearn, moved=moved)
                _write_folders(manifest, index)
                if relearn and catalog.relearning != manifest.to_json():  # otherwise resume it
                    catalog.clear(manifest.to_json())
                vectors = PhotoVectors(index, catalog, manifest, loaded.output.whiten, self.workers.threads)
                indexer = _Indexer(photo_folder, catalog, loaded, vectors, self.workers, self.extract)
                return indexer.run(scan, recognized), loaded


def _with_more_folders(manifest: PhotoManifest, folders: list[Path]) -> PhotoManifest:
    """Return the manifest for several folders, the first of which is its own."""
    for number, folder in enumerate(folders):
        if not folder.is_dir():
            raise InvalidInputError(f"{folder} is not a folder")
        for other in folders[:number]:
            if folder.is_relative_to(other) or other.is_relative_to(folder):
                raise InvalidInputError(f"{folder} and {other} overlap; subfolders are included anyway")
    return replace(manifest, more_folders=[folder.as_posix() for folder in folders[1:]])


def _write_folders(manifest: PhotoManifest, index: IndexFolder) -> None:
    """Write the folders of a run to the manifest; the rest of it stays until there are new vectors."""
    stored = PhotoManifest.read(index.path) if index.has_manifest() else manifest
    present = replace(stored, folder=manifest.folder, more_folders=manifest.more_folders)
    if present != stored or not index.has_manifest():
        present.write(index.path)


def _loaded(model: str | Path | Model | None) -> Model:
    return model if isinstance(model, Model) else Model.load(model)


def _prepare(
    index: IndexFolder,
    photo_folder: Path,
    catalog: Catalog,
    model: str | Path | Model | None,
    relearn: bool,
    regions: bool,
) -> tuple[PhotoManifest, Model]:
    """Return the manifest and the model of a run: those of the index, of an interrupted relearning, or new ones."""
    current = _read_manifest(index, photo_folder)
    if current is None:
        loaded = _loaded(model)
        manifest = PhotoManifest.from_model(photo_folder, index.path, loaded, regions=regions)
        catalog.clear()  # what a killed copy left may be of another model
    elif relearn:
        loaded = Model.load(current.named_model, settings=current.settings) if model is None else _loaded(model)
        manifest = PhotoManifest.from_model(photo_folder, index.path, loaded, regions=regions)
        manifest = replace(manifest, more_folders=current.more_folders)
    else:
        interrupted = catalog.relearning
        if interrupted is not None:
            current = PhotoManifest.from_json(interrupted, index.path).with_folder(photo_folder, index.path)
        manifest, loaded = current, current.load_model(model)
    return manifest, loaded


def _read_manifest(index: IndexFolder, photo_folder: Path) -> PhotoManifest | None:
    """Return the manifest, None for a new index. If its folder no longer exists, the photos were moved here."""
    if not index.has_manifest():
        return None
    manifest = PhotoManifest.read(index.path)
    indexed_folder = manifest.photo_folder(index.path)
    if indexed_folder == photo_folder:
        return manifest
    if indexed_folder.is_dir():
        raise InvalidInputError(f"{index.path} is the index of {indexed_folder}, not of {photo_folder}")
    return manifest.with_folder(photo_folder, index.path)


@dataclass
class _Indexer:
    """One run over a folder of photos."""

    photo_folder: Path
    catalog: Catalog
    model: Model
    vectors: PhotoVectors
    workers: Workers
    extract: ExtractElsewhere | None

    def run(self, scan: FolderScan, recognized: Mapping[str, Recognized]) -> Summary:
        """Synchronize the index with the files that were found. recognized: those whose content is known."""
        self.vectors.forget_lost()
        before = self.catalog.stamps()
        deleted = [name for name in before if name not in scan.files and not scan.may_contain(name)]
        known = self.catalog.stamps("others")
        others = {name: stamp for name, stamp in scan.files.items() if known.get(name) == stamp}
        touched = {name: scan.files[name] for name, (source, _) in recognized.items() if source == name in before}
        self.catalog.touch(touched)
        current = {**before, **touched}
        new = [name for name, stamp in scan.files.items() if current.get(name) != stamp and name not in others]
        same = {name: recognized[name] for name in new if name in recognized}
        self.vectors.remove(deleted, {source for source, _ in same.values()} & before.keys())
        known_again = self._take_back(new, same, scan)
        failed = dict(self._extract_all(sorted(set(new) - known_again, key=_shuffle_key), scan))
        self.vectors.update(compact=True)
        self.catalog.forget_removed()
        not_photos = {name for name, reason in failed.items() if self._is_no_photo(name, reason)}
        others |= {name: scan.files[name] for name in not_photos}
        if others != known:
            self.catalog.replace_others(others)
        failures = {name: scan.files[name] for name in failed if name not in not_photos}
        if failures != self.catalog.failed():
            self.catalog.note(FAILED, failures)
        gone = set(deleted)
        moved = len({same[name].source for name in same if name in known_again and name not in before} & gone)
        return Summary(
            added=sum(name not in before and name not in failed for name in new) - moved,
            changed=sum(name in before and name not in failed for name in new),
            removed=len(deleted) - moved + sum(name in failed for name in before),
            unchanged=sum(current.get(name) == stamp for name, stamp in scan.files.items()),
            failed=sorted(scan.failed + [pair for pair in failed.items() if pair[0] not in not_photos]),
            others=len(others),
            moved=moved,
        )

    def _is_no_photo(self, name: str, reason: str) -> bool:
        """Return whether a file that failed is not one that a user expects in the index; it is not tried again."""
        if is_raw_name(name):  # decoders fail in many ways for them
            return os.access(self.photo_folder / name, os.R_OK)
        return reason == NOT_AN_IMAGE and not is_photo_name(name)

    def _take_back(self, names: list[str], same: Mapping[str, Recognized], scan: FolderScan) -> set[str]:
        """Return the photos that the catalog remembers, by content, or by name and stamp; they are not described."""
        kept = self.catalog.stamps("removed")
        files: dict[str, tuple[str, FileStamp, bytes | None]] = {
            name: (name, scan.files[name], None) for name in names if kept.get(name) == scan.files[name]
        }
        files |= {name: (known.source, scan.files[name], known.content) for name, known in same.items()}
        return self.vectors.take_back(files)

    def _extract_all(self, names: list[str], scan: FolderScan) -> list[tuple[str, str]]:
        """Compute and record descriptors, block by block; return (name, reason) of the photos that failed."""
        failed: list[tuple[str, str]] = []
        recorded = 0
        size = _BLOCK_SIZE if self.extract is None else self.extract.block_size
        for start in range(0, len(names), size):
            block = names[start : start + size]
            results = self._extract_block(block, start, len(names))
            good = [(name, scan.files[name], *result) for name, result in results if not isinstance(result, str)]
            bad = [(name, reason) for name, reason in results if isinstance(reason, str)]
            read = [name for name, *_ in good] if self.extract is None else []  # other machines have read the others
            contents = read_contents(read, scan.files, self.photo_folder, self.workers)
            self.catalog.record(good, contents=contents)
            self.catalog.remove(name for name, _ in bad)
            failed += bad
            recorded += len(good)
            if start + size < len(names) and self.vectors.update_early(recorded):
                recorded = 0
        return failed

    def _extract_block(self, names: list[str], start: int, total: int) -> list[tuple[str, Extracted | str]]:
        """Return (name, raw descriptor and details, or reason of failure) of each photo."""

        def report(what: str, done: int, _: int) -> None:
            self.workers.report(what, start + done, total)

        paths = [self.photo_folder / name for name in names]
        results: Sequence[Extracted | str]
        if self.extract is None:
            workers, parts = replace(self.workers, progress=report), boxes(self.vectors.manifest.regions)
            results = workers.map(lambda path: extract_photo(path, self.model, parts), paths, "indexing")
        else:
            results = self.extract(self.vectors.manifest, self.vectors.index.path, paths)
            report("indexing", len(names), total)
        return list(zip(names, results, strict=True))


def _shuffle_key(name: str) -> bytes:
    """Sort key of a pseudo-random order: the first photos, which whitening is learned from, represent the folder."""
    return hashlib.blake2b(name.encode(), digest_size=8).digest()

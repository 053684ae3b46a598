"""`logt verify`, `info`, `compact`, `backup`, `restore` and `repair`: the folder of an index, of photos or not."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from logt.cli.console import AnyIndexPath, AsJson, Overwrite, Threads, count_of, print_json, printable, say
from logt.errors import InvalidInputError
from logt.index import Index
from logt.photos.backup import copy_photo_index
from logt.photos.index_folder import DEFAULT_NAME, IndexFolder, photo_index
from logt.photos.manifest import PhotoManifest
from logt.results import Report
from logt.storage.backup import copy_index
from logt.storage.locations import RemoteLocation, is_url
from logt.storage.repair import Examination, Loss, examine
from logt.storage.repair import repair as repair_index

_MAX_IDS = 20  # printed; --json prints all
_OF_THE_PAPER = ("entries per vector", "rho", "memory ratio")  # --json prints them for the default index, too
_ADD_PHOTOS = "add them with: logt images index FOLDER"

IndexPlace = Annotated[
    str,
    typer.Argument(metavar="INDEX", help="The folder or URL of an index, or a folder of photos that contains one."),
]


def verify(index: IndexPlace) -> None:
    """Check every byte of an index, and name a damaged file."""
    photos = photo_index(index)
    if is_url(index):
        RemoteLocation(index).check_files()
    if photos is None:
        opened = Index.open(index)
        opened.verify()
        say(f"{index}: OK; {count_of(len(opened), 'vector')}, generation {opened.generation}")
    else:
        _, vectors = photos.check()
        say(f"{photos.path}: OK; {count_of(0 if vectors is None else len(vectors), 'photo')}")


def info(index: IndexPlace, as_json: AsJson = False) -> None:
    """Print the contents and the size of an index."""
    photos = photo_index(index)
    if photos is None:
        opened = Index.open(index)
        size = RemoteLocation(index).nbytes if is_url(index) else _bytes_on_disk(Path(index))
        print_report({**opened.report(), "generation": opened.generation, "bytes on disk": size}, as_json)
        return
    manifest, vectors = checked_photos(photos)
    more = {
        "generation": vectors.generation,
        "photos": str(manifest.photo_folder(photos.path)),
        "model": f"{manifest.model} ({manifest.sha256[:12]})",
        "index": str(photos.path),
        "bytes on disk": _bytes_on_disk(photos.path),
    }
    print_report({**vectors.report(), **more}, as_json)


def backup(
    index: AnyIndexPath,
    target: Annotated[Path, typer.Argument(metavar="DEST", help="The folder to write the copy to.")],
    overwrite: Overwrite = False,
) -> None:
    """Copy an index, which may be in use, and check the copy."""
    photos = photo_index(index)
    if photos is None:
        generation = copy_index(index, target, overwrite=overwrite)
    else:
        generation = copy_photo_index(photos.path, target, overwrite=overwrite)
    size = _bytes_on_disk(target)
    say(f"{target}: OK; copy of generation {generation} of {index}, {size:,} bytes")


def restore(
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="A folder that logt backup wrote.")],
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="The folder to write the index to.")],
    overwrite: Overwrite = False,
) -> None:
    """Copy a backup to the folder of an index, and check the copy.

    Programs that have the old index open keep it until they refresh.
    """
    photos = photo_index(source)
    if photos is None:
        copy_index(source, index, overwrite=overwrite)
    else:
        home = index.resolve().parent if index.resolve().name == DEFAULT_NAME else None
        copy_photo_index(photos.path, index, photo_folder=home, overwrite=overwrite)
    verify(str(index))


def repair(
    index: AnyIndexPath,
    yes: Annotated[
        bool, typer.Option("--yes", help="Repair the index. By default, only print what is lost.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Report what is lost in a damaged index; with --yes, repair it.

    Without --yes, nothing is changed. A repair moves damaged files to a subfolder of the index.
    """
    photos = photo_index(index)
    folder = index if photos is None else photo_vectors_folder(photos)
    with photos.lock() if yes and photos is not None else nullcontext():
        found = repair_index(folder, Index.open) if yes else examine(folder)
    if as_json:
        losses = [asdict(loss) for loss in found.losses]
        print_json({"kept": found.kept, "repaired": yes and bool(losses), "losses": losses})
    else:
        _print_examination(found, index, yes, is_photos=photos is not None)
    if found.losses and not yes:
        raise typer.Exit(1)


def compact(
    index: AnyIndexPath,
    relearn: Annotated[
        bool,
        typer.Option(
            "--relearn", help="Build the index again from its codes, as one batch. This loses some accuracy."
        ),
    ] = False,
    threads: Threads = None,
) -> None:
    """Free the space of removed vectors, and merge small segments."""
    with open_vectors(index) as opened:
        before = opened.report()["bytes"]
        opened.compact(relearn=relearn, threads=threads)
        opened.save()
        about = opened.report()
    counts = f"{count_of(len(opened), 'vector')} in {count_of(about['segments'], 'segment')}"
    say(f"{index}: {counts}; {before:,} bytes in memory before, {about['bytes']:,} now")


@contextmanager
def open_vectors(path: Path) -> Iterator[Index]:
    """Open an index, or the vectors of an index of photos, for writing."""
    photos = photo_index(path)
    with nullcontext() if photos is None else photos.lock():
        folder = path if photos is None else photo_vectors_folder(photos)
        with Index.open(folder, "a") as opened:
            yield opened


def open_checked(path: Path) -> Index:
    """Open an index, or the vectors of an index of photos after a check of all its bytes."""
    photos = photo_index(path)
    return Index.open(path) if photos is None else checked_photos(photos)[1]


def print_report(values: dict[str, Any], as_json: bool) -> None:
    """Print what an index holds and costs, and other values."""
    if as_json:
        print_json(values)
        return
    if str(values.get("method")).startswith("sketched"):
        values = {name: value for name, value in values.items() if name not in _OF_THE_PAPER}
    say(str(Report(values)))


def _print_examination(found: Examination, index: Path, repaired: bool, *, is_photos: bool) -> None:
    if not found.losses:
        say(f"{index}: OK; nothing to repair")
        return
    for loss in found.losses:
        say(f"lost: {loss.what}{_amount(loss)} ({loss.reason})")
        if loss.ids:
            rest = len(loss.ids) - _MAX_IDS
            shown = ", ".join(map(printable, loss.ids[:_MAX_IDS]))
            say(f"  ids: {shown}" + (f" and {rest:,} more" if rest > 0 else ""))
    kept = f"{count_of(found.kept, 'vector')} in {count_of(found.segments, 'segment')}"
    if not repaired and not found.kept:
        say(f"nothing can be kept of {index}: `logt restore` reads a backup. Nothing was changed; --yes empties it")
        return
    if not repaired:
        say(f"{index} can be repaired: {kept} would be kept. Nothing was changed; --yes repairs it")
        return
    if found.kept:
        say(f"{index} is repaired: {kept} are kept, the other files are in {found.aside}")
    else:
        say(f"nothing could be kept: {index} is empty now, its files are in {found.aside}")
    if is_photos:
        say("index the photos that were lost again with: logt images index FOLDER")


def _amount(loss: Loss) -> str:
    if loss.vectors is None:
        return ", number of vectors not known"
    return f", {count_of(loss.vectors, 'vector')}" if loss.vectors else ""


def checked_photos(photos: IndexFolder) -> tuple[PhotoManifest, Index]:
    """Return the manifest and the vectors of an index of photos, all bytes checked; raise if it is empty."""
    manifest, vectors = photos.check()
    if vectors is None:
        raise InvalidInputError(f"{photos.path} contains no photos yet; {_ADD_PHOTOS}")
    return manifest, vectors


def photo_vectors_folder(photos: IndexFolder) -> Path:
    """Return the folder of the vectors of an index of photos; raise if it is empty."""
    checksum = PhotoManifest.read(photos.path).whitening
    if checksum is None:
        raise InvalidInputError(f"{photos.path} contains no photos yet; {_ADD_PHOTOS}")
    return photos.vectors_folder(checksum)


def _bytes_on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())

"""Copies of an index: of one state, even if it is written meanwhile, and checked after they are written.

A copy over another index is a new generation of it: its readers keep their files, and move on when they refresh.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logt.errors import CorruptIndexError, InvalidInputError, LockedError
from logt.storage import changes
from logt.storage.changes import Change
from logt.storage.files import copy_file, make_folder, missing_folders
from logt.storage.lock import LOCK, Lock
from logt.storage.manifest import MANIFEST, read_manifest, state_of, write_manifest
from logt.storage.store import INDEX_FILE, Store, is_index, last_position


@dataclass(frozen=True)
class Copy:
    """The generation that was copied, and the number of files and bytes that the copy has."""

    generation: int
    files: int
    nbytes: int


def copy_index(source: Path, target: Path, *, overwrite: bool = False) -> Copy:
    """Copy the present state of an index to a folder, and check every byte of the copy.

    source: the folder of an index; it may be written meanwhile.
    target: a new or empty folder, or with `overwrite` that of an index that no process is writing to.
    """
    source, target = source.resolve(), target.resolve()
    read_manifest(source)
    check_target(target, source, overwrite=overwrite)
    with removed_on_failure(target):
        make_folder(target)
        with Lock(target):
            manifest, log, end = _copy_files(source, target)
            state = _write(target, manifest, log, end)
            try:
                Store.open(target, write=False).read()
            except CorruptIndexError:
                (target / MANIFEST).unlink()  # no index rather than a wrong one
                raise
            _remove_others(target, {*manifest["files"], f"changes-{state}.log"})
    sizes = [path.stat().st_size for path in target.iterdir()]
    return Copy(end, len(sizes) - 1, sum(sizes))  # the lock is not counted


def check_target(target: Path, source: Path, *, overwrite: bool) -> None:
    """Raise unless a copy may be written to a folder."""
    if target == source or target.is_relative_to(source):
        raise InvalidInputError(f"{target} is the index itself, or inside it; choose another path")
    if target.exists() and not is_index(target):
        raise InvalidInputError(f"{target} exists and is not an index; choose another path")
    if (target / MANIFEST).exists() and not overwrite:
        raise InvalidInputError(f"{target} is an index; choose another path, or pass --overwrite to replace it")


@contextmanager
def removed_on_failure(folder: Path) -> Iterator[None]:
    """If what follows fails, remove a folder that did not exist before, with the parents that were made for it."""
    missing = missing_folders(folder)
    try:
        yield
    except LockedError:
        raise  # another process made it, and is writing to it
    except BaseException:
        if missing and not (folder / MANIFEST).exists():
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):
                for path in missing[1:]:
                    path.rmdir()
        raise


def _copy_files(source: Path, target: Path) -> tuple[Any, list[Change], int]:
    """Copy the array files of one state; return its manifest, the changes in its log, and its generation."""
    while True:
        manifest = read_manifest(source)
        try:
            state = manifest.get("state", "")
            start = changes.start_of_log(state, manifest["generation"])
            log, end = changes.read(source / f"changes-{state}.log", start)
            for name, about in manifest["files"].items():
                if not INDEX_FILE.fullmatch(name):
                    raise CorruptIndexError(f"{source / MANIFEST} is damaged: it names the file {name!r}")
                _copy_array_file(source / name, target / name, about)
        except (KeyError, TypeError, AttributeError) as error:
            raise CorruptIndexError(f"{source / MANIFEST} is damaged: {error}") from error
        except CorruptIndexError:
            if read_manifest(source) == manifest:
                raise
            continue  # a writer has replaced the files meanwhile
        if read_manifest(source) == manifest:
            return manifest, log, end.generation


def _copy_array_file(source: Path, target: Path, about: Any) -> None:
    try:
        copy_file(source, target, about)
    except FileNotFoundError:
        raise CorruptIndexError(f"{source} is missing") from None


def _write(target: Path, manifest: Any, log: list[Change], generation: int) -> str:
    """Write the log and then the manifest; return its state.

    The state is one that no other folder has: readers notice it, however the copy came to be where they read. Over
    another index, the generation is one that it did not have.
    """
    with suppress(FileNotFoundError, CorruptIndexError):  # a new folder, or a damaged index
        generation = max(generation, last_position(target, read_manifest(target)).generation + 1)
    generation -= bool(log)  # the log adds one
    manifest = {**manifest, "generation": generation, "copy": os.urandom(16).hex()}
    state = manifest["state"] = state_of(manifest)
    path = target / f"changes-{state}.log"
    path.unlink(missing_ok=True)
    if log:
        changes.append(path, changes.start_of_log(state, generation), log)
    write_manifest(target, manifest)
    return state


def _remove_others(folder: Path, names: set[str]) -> None:
    """Remove the files of earlier states."""
    for path in folder.iterdir():
        if INDEX_FILE.fullmatch(path.name) and path.name not in (*names, LOCK):
            path.unlink(missing_ok=True)

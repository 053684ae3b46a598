"""Copies of an index: of one state, even if it is written meanwhile, and checked after they are written.

A copy over another index is a new generation of it: its readers keep their files, and move on when they refresh.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from logt.errors import CorruptIndexError, InvalidInputError, LockedError
from logt.storage import changes
from logt.storage.changes import Change, log_path, start_of_log
from logt.storage.files import copy_file, missing_folders
from logt.storage.locations import LocalLocation, remove_other_files
from logt.storage.manifest import MANIFEST, state_of
from logt.storage.store import Store, last_position, read_log, read_one_state


def copy_index(source: Path, target: Path, *, overwrite: bool = False) -> int:
    """Copy the present state of an index to a folder, check every byte of the copy, and return the generation.

    source: the folder of an index; it may be written meanwhile.
    target: a new or empty folder, or with `overwrite` that of an index that no process is writing to.
    """
    source, target = source.resolve(), target.resolve()
    old, new = LocalLocation(source), LocalLocation(target)
    old.read_manifest()
    if target == source or target.is_relative_to(source):
        raise InvalidInputError(f"{target} is the index itself, or inside it; choose another path")
    if new.holds_index() and not overwrite:
        raise InvalidInputError(f"{target} is an index; choose another path, or pass --overwrite to replace it")
    with removed_on_failure(target), new.lock(create=True):
        manifest, (log, generation) = read_one_state(old, lambda manifest: _copy_files(old, target, manifest))
        state = _write(new, manifest, log, generation)
        try:
            Store.open(target, write=False).read()
        except CorruptIndexError:
            new.remove(MANIFEST)  # no index rather than a wrong one
            raise
        remove_other_files(target, [*manifest["files"], log_path(target, state).name])
    return generation


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


def _copy_files(source: LocalLocation, target: Path, manifest: Any) -> tuple[list[Change], int]:
    """Copy the array files of a manifest; return the changes in its log, and the generation after them."""
    log, end = read_log(source, manifest)
    for name, about in manifest["files"].items():
        try:
            copy_file(source.folder / name, target / name, about)
        except FileNotFoundError:
            raise CorruptIndexError(f"{source.folder / name} is missing") from None
    return log, end.generation


def _write(target: LocalLocation, manifest: Any, log: list[Change], generation: int) -> str:
    """Write the log and then the manifest; return its state.

    The state is one that no other folder has: readers notice it, however the copy came to be where they read. Over
    another index, the generation is one that it did not have.
    """
    with suppress(FileNotFoundError, CorruptIndexError):  # a new folder, or a damaged index
        generation = max(generation, last_position(target).generation + 1)
    generation -= bool(log)  # the log adds one
    manifest = {**manifest, "generation": generation, "copy": os.urandom(16).hex()}
    state = manifest["state"] = state_of(manifest)
    if log:
        changes.append(log_path(target.folder, state), start_of_log(manifest), log)
    target.write_manifest(manifest)
    return state

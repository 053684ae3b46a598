"""Where a new index is committed to: its files are written first, by anyone, and the manifest last."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from logt.errors import InvalidInputError
from logt.storage.manifest import MANIFEST
from logt.storage.places import LocalPlace, Place, is_url, local_path
from logt.storage.remote import RemoteStore
from logt.storage.store import Store


class Target:
    """A place for the files of an index, and how its manifest is committed."""

    def __init__(self, place: Place, store: Store | RemoteStore):
        self.place, self._store = place, store

    def commit(self, contents: Mapping[str, Any], files: Mapping[str, dict[str, Any]]) -> None:
        """Write the manifest; `contents` and `files` are as in `Store.write_entries`."""
        self._store.write_entries(contents, files)


@contextmanager
def open_target(path: object, *, overwrite: bool) -> Iterator[Target]:
    """Lock a folder, or note the generation of a URL, that a new index is to be written to.

    overwrite: an index that is there may be replaced.
    """
    if is_url(path):
        remote = RemoteStore.create(str(path))
        if remote.generation and not overwrite:
            raise InvalidInputError(f"{path} is an index; choose another URL, or pass overwrite to replace it")
        yield Target(remote.place, remote)
        return
    folder = local_path(path)
    if (folder / MANIFEST).exists() and not overwrite:
        raise InvalidInputError(f"{folder} is an index; choose another path, or pass overwrite to replace it")
    new = not folder.exists()
    store = Store.create(folder)
    try:
        yield Target(LocalPlace(folder), store)
    except InvalidInputError:  # what is left of other failures is used by the next attempt
        if new:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        store.close()

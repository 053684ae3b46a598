"""The store at a path or URL."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from logt.errors import InvalidInputError
from logt.storage.locations import MANIFEST_NAME, is_url, local_path, location_at
from logt.storage.store import Store


def open_store(path: object, *, write: bool) -> Store:
    """Open the index at a path or URL."""
    return Store.open(location_at(path), write=write)


def create_store(path: object) -> Store:
    """Prepare to write an index to a path or URL; what it holds will be replaced."""
    return Store.create(location_at(path))


def same_store(path: object, store: Store) -> bool:
    """Return whether a path or URL is that of a store."""
    return (str(path).rstrip("/") if is_url(path) else str(local_path(path))) == store.name


@contextmanager
def open_target(path: object, *, overwrite: bool) -> Iterator[Store]:
    """Lock a folder, or note the generation of a URL, that a new index is to be written to.

    Its files are written first, by anyone, and the manifest last, by `write_entries`.
    overwrite: an index that is there may be replaced.
    """
    location = location_at(path)
    if not overwrite and any(map(MANIFEST_NAME.fullmatch, location.names())):
        raise InvalidInputError(f"{path} is an index; choose another path, or pass overwrite to replace it")
    new = location.folder is not None and not location.folder.exists()
    store = Store.create(location)
    try:
        yield store
    except InvalidInputError:  # what is left of other failures is used by the next attempt
        if new:
            shutil.rmtree(location.name, ignore_errors=True)
        raise
    finally:
        store.close()

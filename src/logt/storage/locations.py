"""The store at a path or URL."""

from __future__ import annotations

from logt.storage.places import is_url, local_path
from logt.storage.store import Store


def open_store(path: object, *, write: bool) -> Store:
    """Open the index at a path or URL."""
    if is_url(path):
        from logt.storage.remote import RemoteStore

        return RemoteStore.open(str(path), write=write)
    return Store.open(local_path(path), write=write)


def create_store(path: object) -> Store:
    """Prepare to write an index to a path or URL; what it holds will be replaced."""
    if is_url(path):
        from logt.storage.remote import RemoteStore

        return RemoteStore.create(str(path))
    return Store.create(local_path(path))


def same_store(path: object, store: Store) -> bool:
    """Return whether a path or URL is that of a store."""
    return (str(path).rstrip("/") if is_url(path) else str(local_path(path))) == store.name

"""Near-duplicates of a collection, searched in the background once per state of the index."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from logt.errors import InvalidInputError
from logt.index import Index
from logt.photos.duplicates import DuplicateGroup, duplicates
from logt.server.errors import to_http_error
from logt.server.library import Library
from logt.server.photo_collection import PhotoCollection


@dataclass(frozen=True)
class DuplicateSearch:
    """A search for near-duplicates: how far it is, its groups when it is done, or why it failed."""

    threshold: float
    done: int
    total: int
    groups: tuple[DuplicateGroup, ...] | None = None
    error: str = ""


class _CancelledError(Exception):
    """Another search replaces this one."""


class DuplicateFinder:
    """At most one search at a time, in a thread of its own; the last result is kept until the index changes.

    collection: the photos.
    """

    def __init__(self, collection: PhotoCollection):
        self._collection = collection
        self._lock = threading.Lock()
        self._key: tuple[Index, int | None, float] | None = None
        self._search: DuplicateSearch | None = None

    def find(self, threshold: float | None) -> DuplicateSearch:
        """Return the search with this threshold, running or done; start it if it is not there."""
        threshold = self._collection.photos.duplicate_score if threshold is None else threshold
        if not 0 < threshold <= 1:
            raise InvalidInputError(f"threshold must be above 0 and at most 1, got {threshold}")
        collection = self._collection
        key = collection.index, collection.generation, threshold
        with self._lock:
            if self._search is None or self._key != key:
                self._key = key
                self._search = DuplicateSearch(threshold, 0, len(collection.index))
                threading.Thread(target=self._run, args=(key,), name="logt-duplicates", daemon=True).start()
            return self._search

    def close(self) -> None:
        """Stop the search that is running."""
        with self._lock:
            self._key = self._search = None

    def _run(self, key: tuple[Index, int | None, float]) -> None:
        threshold = key[2]

        def report(_: str, done: int, total: int) -> None:
            if not self._publish(key, DuplicateSearch(threshold, done, total)):
                raise _CancelledError

        try:
            found = duplicates(self._collection.photos, threshold, threads=1, progress=report)
            groups = tuple(best_first(group, self._collection.state.library) for group in found)
            self._publish(key, DuplicateSearch(threshold, len(key[0]), len(key[0]), groups))
        except _CancelledError:
            return
        except Exception as error:
            message = to_http_error(error).message
            self._publish(key, DuplicateSearch(threshold, 0, len(key[0]), (), message))

    def _publish(self, key: tuple[Index, int | None, float], search: DuplicateSearch) -> bool:
        """Replace the state of the search; return False if another search has replaced it."""
        with self._lock:
            if self._key == key:
                self._search = search
            return self._key == key


def best_first(group: DuplicateGroup, library: Library) -> DuplicateGroup:
    """Return a group with the photo to keep first: most pixels, a date from the camera, most bytes, oldest."""

    def rank(name: str) -> tuple[int, bool, int, str, int, str]:
        photo = library.find(name)
        if photo is None:
            return 0, True, 0, "", len(name), name
        pixels = photo.width * photo.height
        return -pixels, not photo.taken, -photo.size, library.date(name), len(name), name

    return replace(group, names=tuple(sorted(group.names, key=rank)))

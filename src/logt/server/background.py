"""Values that take long to compute, once per state of a collection of photos, in a thread, with progress."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from logt._internal.threads import Progress
from logt.errors import InvalidInputError
from logt.graph.neighbor_graph import NeighborGraph
from logt.index import Index
from logt.photos.clusters import Clusters, find_clusters
from logt.photos.duplicates import duplicate_graph
from logt.photos.photo_map import PhotoMap, photo_map
from logt.server.errors import to_http_error
from logt.server.photo_collection import PhotoCollection

T = TypeVar("T")
_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Work(Generic[T]):
    """How far a computation is, or why it failed. Until it is ready, the value is that of the last state."""

    done: int
    total: int
    value: T | None = None
    error: str = ""
    ready: bool = False


class _CancelledError(Exception):
    """The value is no longer needed."""


class Background(Generic[T]):
    """At most one computation at a time; the last value is kept until the index changes.

    compute: called with the function that reports progress.
    """

    def __init__(self, collection: PhotoCollection, compute: Callable[[Progress], T]):
        self._collection, self._compute = collection, compute
        self._lock = threading.Lock()
        self._key: tuple[Index, int | None] | None = None
        self._work = Work[T](0, 0)

    def get(self) -> Work[T]:
        """Return the work for the present state of the index, running or done; start it if it is not there."""
        collection = self._collection
        key = collection.index, collection.generation
        with self._lock:
            if self._key != key:
                self._key, self._work = key, Work(0, len(collection.index), self._work.value)
                threading.Thread(target=self._run, args=(key,), name="logt-background", daemon=True).start()
            return self._work

    def wait(self, report: Progress) -> T:
        """Return the value for the present state of the index when it is there; report the progress until then."""
        while not (work := self.get()).ready:
            if work.error:
                raise InvalidInputError(work.error)
            time.sleep(_LOOK_SECONDS)
            report("", work.done, work.total)  # ends this if the value is no longer needed
        assert work.value is not None
        return work.value

    def close(self) -> None:
        with self._lock:
            self._key = None

    def _run(self, key: tuple[Index, int | None]) -> None:
        total = len(key[0])

        def report(_: str, done: int, total: int) -> None:
            if not self._publish(key, Work(done, total, self._work.value)):
                raise _CancelledError

        try:
            self._publish(key, Work(total, total, self._compute(report), ready=True))
        except _CancelledError:
            return
        except Exception as error:
            self._publish(key, replace(self._work, error=to_http_error(error).message))

    def _publish(self, key: tuple[Index, int | None], work: Work[T]) -> bool:
        """Replace the state of the work; return False if the index has changed meanwhile."""
        with self._lock:
            if self._key == key:
                self._work = work
            return self._key == key


class Overview:
    """Each part is computed when it is first asked for, in the background."""

    def __init__(self, collection: PhotoCollection):
        self.graph: Background[NeighborGraph] = Background(
            collection, lambda report: duplicate_graph(collection.index, threads=1, progress=report)
        )
        self.clusters: Background[Clusters] = Background(
            collection, lambda report: find_clusters(self.graph.wait(report))
        )
        self.map: Background[tuple[PhotoMap, Clusters]] = Background(
            collection,
            lambda report: (
                photo_map(self.graph.wait(report), collection.photos.path, report),
                self.clusters.wait(report),
            ),
        )

    def close(self) -> None:
        for part in (self.map, self.clusters, self.graph):
            part.close()

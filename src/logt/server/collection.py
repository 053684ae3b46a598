"""The index that a server works on: searches run in parallel, changes one group at a time."""

from __future__ import annotations

import copy
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np

from logt._internal.params import SearchSettings
from logt._internal.types import Array, Floats
from logt.descriptors import Box, Model
from logt.descriptors.image_io import ImageDetails
from logt.engine.rerank import ScoreFunction
from logt.errors import ReadOnlyError
from logt.index import Index
from logt.photos.progress_file import IndexingProgress
from logt.results import ItemResult, Report, SearchResult
from logt.server.errors import HTTPError

T = TypeVar("T")
Id = int | str
Rerank = Literal["diffusion", "function"] | None
UNLOCK_AFTER = 2.0
"""Seconds without a change after which the folder is unlocked for other writers."""

SAMPLE_SIZE = 12
"""Ids on the start page of an index of vectors."""

_log = logging.getLogger("logt.server")


class Hit(NamedTuple):
    """One search result: the id and the score of a vector, and its item in a search for items.

    box: the region of a photo that matched, as fractions, if regions were compared.
    """

    id: Id
    score: float
    item: Id | None = None
    box: Box | None = None


@dataclass(frozen=True)
class SearchOptions:
    """How to search. wanted: only these ids can be found; all if None. unwanted: these ids are not among the hits.

    by: what is found, vectors or items.
    """

    effort: float | None = None
    recall: float | None = None
    like: str | None = None
    rerank: Rerank = None
    wanted: Sequence[Id] | None = None
    unwanted: Sequence[Id] = ()
    by: Literal["vector", "item"] = "vector"


@dataclass(frozen=True, eq=False)
class Change:
    """A change of a collection. run: makes it, and returns its result. nbytes: what it holds while it waits."""

    run: Callable[[Any], Any]
    nbytes: int = 0

    def attempt(self, collection: BaseCollection) -> Any:
        """Return the result, or the exception that was raised; then nothing was changed."""
        try:
            return self.run(collection)
        except Exception as error:
            return error


@dataclass(frozen=True, eq=False)
class Upload:
    """Store and index a photo. The result is its id.

    content: the bytes of its file. extension: its format as a file extension. details: from its header.
    descriptors: as models compute them, not whitened, and the models: of the index, named "", and of those inside it.
    """

    content: bytes
    extension: str
    details: ImageDetails
    descriptors: Mapping[str, tuple[Floats, Model]]

    @property
    def nbytes(self) -> int:
        return len(self.content)


AnyChange = Change | Upload
DEFAULT = SearchOptions()


class PerState(Generic[T]):
    """A value that is computed once per state of an index; `compute` is called with the index."""

    def __init__(self, compute: Callable[[Index], T]):
        self._compute, self._lock = compute, threading.Lock()
        self._cached: tuple[Index, int | None, T] | None = None

    def get(self, index: Index, generation: int | None) -> T:
        with self._lock:
            if self._cached is None or self._cached[:2] != (index, generation):
                self._cached = index, generation, self._compute(index)
            return self._cached[2]


class BaseCollection(ABC):
    """A served index. A search never waits: it uses the saved state that is current when it starts."""

    has_photos = False
    allows_uploads = False
    function: ScoreFunction | None = None
    """Re-ranks the results of searches with "rerank": "function"."""

    @property
    def has_text(self) -> bool:
        return False

    def __init__(self) -> None:
        self.is_stale = False
        self._refresh_error = ""
        self._report = PerState(Index.report)

    @property
    @abstractmethod
    def index(self) -> Index:
        """The index to search: a state that is saved."""

    @property
    def generation(self) -> int | None:
        """The number of the saved state that `index` holds."""
        return self.index.generation

    @property
    @abstractmethod
    def title(self) -> str: ...

    @property
    def folders(self) -> list[Path]:
        """The folders of the photos, if there are any."""
        return []

    @property
    def private_paths(self) -> list[Path]:
        """Folders of this machine that errors may name; clients see their last part only."""
        return self.folders

    def apply(self, changes: Sequence[AnyChange]) -> list[Any]:
        """Make some changes, save the index, and return the result of each change, or the exception that it raised.

        A change that raised an exception changed nothing. If the index cannot be saved, nothing is changed, and this
        raises the exception. A collection without this method is for reading.
        """
        raise ReadOnlyError("this index is served for reading only")

    @abstractmethod
    def refresh(self) -> None:
        """Load what other processes have saved."""

    def tidy(self) -> None:  # noqa: B027 - only some collections have such work
        """Do the work that changes left behind; called when their results were sent, before the next changes."""

    @property
    def indexing(self) -> IndexingProgress | None:
        """The progress of a process that updates the index now, if there is one."""
        return None

    def close(self) -> None:  # noqa: B027 - only some collections hold a lock
        """Unlock the folder for other writers."""

    def try_refresh(self) -> None:
        """Call `refresh`; if it fails, keep the current state, set `is_stale`, and log each new reason once.

        The reason may contain paths of this machine, and is not shown to clients.
        """
        try:
            self.refresh()
            self.is_stale, self._refresh_error = False, ""
        except Exception as error:
            reason = str(error) or type(error).__name__
            if reason != self._refresh_error:
                _log.warning("the newest saved index cannot be read, an older one is served: %s", reason)
            self.is_stale, self._refresh_error = True, reason

    def reranked_by(self, rerank: Rerank) -> Any:
        """Return what the searches of the index take as `rerank`."""
        return self.function if rerank == "function" else rerank

    @property
    def has_graph(self) -> bool:
        """Whether searches can be re-ranked by diffusion."""
        return self.index.metric == "cosine" and self.report()["linked"] > 0

    def search(
        self, Q: Any, k: int, options: SearchOptions = DEFAULT, own: Sequence[Id | None] | None = None
    ) -> list[list[Hit]]:
        """Return the k best hits of each row of Q, without the unwanted ids, and without own[i] of row i."""
        Q = np.atleast_2d(Q)
        by, unwanted = options.by, set(options.unwanted)
        if unwanted and by == "item":  # an item may still be found by another of its vectors
            wanted = self.index.ids.tolist() if options.wanted is None else options.wanted
            options = replace(options, wanted=[one for one in wanted if one not in unwanted])
        more = len(unwanted) if by == "vector" else 0
        rows = to_hits(self.find(Q, k + more + (own is not None), options))
        if own is not None and by == "item":
            own = [self._item_of(one) for one in own]
        return [
            [hit for hit in row if hit.id not in unwanted and (hit.id if by == "vector" else hit.item) != mine][:k]
            for row, mine in zip(rows, own or [None] * len(Q), strict=True)
        ]

    def _item_of(self, id: Id | None) -> Id:
        items: Any = self.index.items
        found: Id = items[self.index.ids == id].item()
        return found

    def search_ids(self, ids: list[Id], k: int, options: SearchOptions = DEFAULT) -> list[list[Hit]]:
        self.check_known(ids)
        return self.search(self.index.reconstruct(ids), k, options, ids)

    def find(self, Q: Any, k: int, options: SearchOptions) -> SearchResult:
        """Search the index, also for unwanted ids; uses one thread because requests already run in parallel."""
        limits: SearchSettings = {"effort": options.effort, "recall": options.recall, "like": options.like}
        rerank = self.reranked_by(options.rerank)
        return self.index.search(Q, k, filter=options.wanted, rerank=rerank, threads=1, by=options.by, **limits)

    def check_known(self, ids: Iterable[object]) -> None:
        index = self.index
        for one in ids:
            if one not in index:
                raise HTTPError(404, "not_found", f"id {one!r} is not in the index")

    def report(self) -> Report:
        return self._report.get(self.index, self.generation)

    def sample_ids(self) -> list[Id]:
        """Return some ids, evenly spaced over the index."""
        ids = self.index.ids
        return list(ids[:: max(1, len(ids) // SAMPLE_SIZE)][:SAMPLE_SIZE].tolist())


class VectorCollection(BaseCollection):
    """An index of vectors without photos.

    The first change opens the folder for writing. It stays locked until no change has arrived for a while; at all
    other times other processes can write.
    """

    def __init__(self, folder: Path):
        super().__init__()
        self._folder = folder.resolve()
        self._latest = Index.open(folder)  # with changes that are not saved yet; only used under the lock
        self._writable = False
        self._last_change = 0.0
        self._change_lock = threading.Lock()
        self._publish()

    @property
    def index(self) -> Index:
        return self._saved[0]

    @property
    def generation(self) -> int | None:
        return self._saved[1]

    @property
    def title(self) -> str:
        return self._folder.name

    @property
    def private_paths(self) -> list[Path]:
        return [self._folder]

    def apply(self, changes: Sequence[AnyChange]) -> list[Any]:
        with self._change_lock:
            if not self._writable:
                self._latest.lock()
                self._writable = True
            self._last_change = time.monotonic()
            try:
                results = [change.attempt(self) for change in changes if isinstance(change, Change)]
                self._latest.save()
            except BaseException:
                self._unlock()
                self._latest = Index.open(self._folder)
                self._publish()
                raise
            self._publish()
            return results

    def add(self, X: Array, ids: list[Id] | None, replace: bool) -> list[Id]:
        """Add vectors, as a part of `apply`, and return their ids; `replace` overwrites those with the same ids."""
        return list((self._latest.upsert if replace else self._latest.add)(X, ids).tolist())

    def remove(self, ids: list[Id]) -> int:
        return self._latest.remove(ids)

    def compact(self) -> None:
        self._latest.compact()

    def refresh(self) -> None:
        with self._change_lock:
            if self._writable and time.monotonic() - self._last_change > UNLOCK_AFTER:
                self._unlock()
            if self._latest.refresh():
                self._publish()

    def close(self) -> None:
        with self._change_lock:
            self._unlock()

    def _publish(self) -> None:
        """Let searches use the saved state: a copy, in which later changes do not appear. It shares the vectors."""
        self._saved = copy.copy(self._latest), self._latest.generation

    def _unlock(self) -> None:
        self._latest.close()
        self._writable = False


def to_hits(result: SearchResult) -> list[list[Hit]]:
    """Return the hits of each query."""
    columns = [result.ids.tolist(), result.scores.tolist()]
    if isinstance(result, ItemResult):
        columns.append(result.items.tolist())
    rows = zip(result.counts.tolist(), zip(*columns, strict=True), strict=True)
    return [[Hit(*hit) for hit in islice(zip(*parts, strict=True), count)] for count, parts in rows]

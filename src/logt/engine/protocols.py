"""What an index needs of a method, and what all indexes offer: two protocols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, Unpack

import numpy as np

from logt._internal.params import SearchParams, SearchSettings
from logt._internal.removals import LoggedChange, Removals
from logt._internal.segment import BuildSettings, Segment
from logt._internal.threads import Workers
from logt._internal.types import Array, Filter, Floats, Ids, Mask, Metric, SomeIds, Vectors
from logt.graph.stored_graph import StoredGraph
from logt.results import RangeResult, SearchResult


class SegmentSearch(Protocol):
    """The search of some segments. Scores are those that users see: distances under l2."""

    def search(self, Q: Floats, k: int, limits: Any, workers: Workers = ...) -> SearchResult:
        """Return (scores, integer ids), (nq, at most k) each, best first."""

    def prepare(self, k: int, limits: Any) -> Any:
        """Return a function from one float32 query to a SearchResult, or to None if it is not valid.

        None if the method has none.
        """

    def all_scores(self, q: Floats) -> Iterator[tuple[Floats, Ids]]:
        """Yield (scores, ids) of all visible vectors, block by block."""

    @property
    def nbytes(self) -> int:
        """The bytes of what the search keeps beside the segments and the graph."""


class Method(Protocol):
    """How vectors are encoded and searched: `Sketched`, the default, or `GroupTesting`, the paper's methods.

    segment_size: the rows of a segment of an index with segment_size="auto". model_types: the classes of what its
    segments share, by the name that is stored. thorough: the limits of a search for the neighbors of a vector. Limits
    tell how much a search reads; what they are depends on the method.
    """

    @property
    def segment_size(self) -> int: ...

    @property
    def model_types(self) -> Mapping[str, Any]: ...

    @property
    def thorough(self) -> Any: ...

    def describe(self) -> str:
        """Return the method in a few words."""

    def add(
        self, segments: Any, rows: Array, ids: Ids, settings: BuildSettings, workers: Workers
    ) -> tuple[tuple[Segment, ...], Segment | None]:
        """Return the segments with a batch of new vectors, whose ids increase, and what `repeat` needs of it.

        That is the segment of the batch; None if more has changed than `repeat` does.
        """

    def repeat(
        self, segments: Any, log: Sequence[LoggedChange], removals: Removals, dim: int, settings: BuildSettings
    ) -> tuple[tuple[Segment, ...], int]:
        """Return the segments after the changes of a log, as if they were made one by one, and where to begin.

        That is the number of changes up to the last that left no vectors. Raise InvalidInputError, ValueError or
        others if the log does not fit the segments.
        """

    def encode(
        self, rows: Any, ids: Ids, number: int, codec: Any, settings: BuildSettings, workers: Workers
    ) -> Segment:
        """Return the segment of some vectors on its own. number: of the segment. codec: if the method has one."""

    def compact(self, segments: Any, settings: BuildSettings, workers: Workers) -> tuple[Segment, ...]:
        """Return the segments without the space of removed vectors."""

    def measure_graph(
        self, segments: Any, graph: StoredGraph, rng: np.random.Generator, workers: Workers
    ) -> StoredGraph:
        """Return the graph with the measured accuracy of searches that use it, if they do."""

    def limits(self, params: SearchParams) -> Any:
        """Return how much a search reads; raise InvalidInputError for parameters of another method."""

    def search(
        self, segments: Any, metric: Metric, visible: Sequence[Mask | Ids] | None, graph: StoredGraph | None
    ) -> SegmentSearch:
        """Return the search of some segments. visible: the rows of each that can be found, as a mask or as a list."""

    def operations(self, segments: Any, limits: Any) -> float:
        """Return the operations of a search, apart from those that compare the query with the units."""

    def read_segment(self, model: Any, arrays: Mapping[str, Array]) -> Segment:
        """Build a segment from stored arrays; raise ValueError if they do not fit together."""

    def check_segment(self, segment: Any, dim: int, metric: Metric) -> None:
        """Raise InvalidInputError unless a segment that was read from disk fits the index."""


class Searchable(Protocol):
    """An index that can be searched: in this process, on a device, or in shards."""

    @property
    def dim(self) -> int: ...

    @property
    def metric(self) -> Metric: ...

    @property
    def generation(self) -> int | None: ...

    def __len__(self) -> int: ...

    def __contains__(self, id: object) -> bool: ...

    @property
    def ntotal(self) -> int:
        """The number of vectors, `len(index)`; the name is that of faiss."""
        return len(self)

    def search(
        self,
        Q: Vectors,
        k: int = 10,
        *,
        params: SearchParams | None = ...,
        filter: Filter | None = ...,
        **settings: Unpack[SearchSettings],
    ) -> SearchResult:
        """Return the k best vectors for each row of Q."""

    def range_search(self, Q: Vectors, threshold: float, *, filter: Filter | None = ...) -> RangeResult:
        """Return all vectors with a score of at least `threshold`."""

    def reconstruct(self, ids: SomeIds) -> Floats:
        """Return the vectors of some ids, as the index stores them."""

    def refresh(self) -> bool:
        """Move to the newest state; return whether there was a newer one."""

"""The neighbor graph of an index: computed for users, or stored with the index for its searches."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from logt._index_base import IndexBase
from logt._internal.progress import shown_progress
from logt._internal.threads import Progress, Workers
from logt._internal.validation import check_int
from logt.engine.linking import Linker
from logt.engine.state import IndexState
from logt.errors import InvalidInputError
from logt.gpu.device import Device
from logt.gpu.neighbors import nearest_neighbors as nearest_on_device
from logt.graph.build import nearest_neighbors
from logt.graph.neighbor_graph import NeighborGraph

MAX_NEIGHBORS = 1000
"""The most neighbors per vector that a stored graph has, unless there are more vectors: it reserves their space."""


class LinkedIndex(IndexBase):
    """An index with a neighbor graph; `logt.Index` adds changes of its vectors, and searches."""

    def graph(
        self, k: int = 50, *, threads: int | None = None, progress: Progress | bool | None = None
    ) -> NeighborGraph:
        """Return the k nearest neighbors of every vector by cosine, computed from the stored codes.

        k: neighbors per vector. threads, progress: as in `add`.
        """
        k, snapshot = check_int("k", k), self._snapshot
        with shown_progress(progress) as report:
            workers = self._workers(threads, report)
            ids, neighbors, similarity = nearest_neighbors(snapshot.segments, self._dim, k, workers)
        return NeighborGraph.from_neighbors(snapshot.to_user_ids(ids), neighbors, similarity)

    def link(
        self,
        k: int = 50,
        *,
        device: str | None = None,
        threads: int | None = None,
        progress: Progress | bool | None = None,
    ) -> None:
        """Compute the neighbor graph and keep it with the index; `save` writes it.

        With the graph, searches take less time, because they go from good candidates to their neighbors (`beam` in
        `logt.SearchParams`), and can re-rank by diffusion. From then on, removed vectors leave the graph, and new
        ones join it in groups of more than 1,024 that are more than one in 256 of all vectors. Until then, searches
        read new vectors in addition to the graph. `links`, `rerank` and `compact` add all of them first. `report`
        has the number of vectors in the graph. An index of fewer than two vectors has no graph. If you tuned the
        index with queries, tune it again: until then, searches for a recall do not use the graph.

        k, threads, progress: as in `graph`. device: "cuda" compares the vectors on a GPU; by default, the device
        that the index was created with, if any.
        """
        k, most = check_int("k", k), max(MAX_NEIGHBORS, len(self))
        if k > most:
            raise InvalidInputError(f"k must be at most {most:,}, got {k}")
        target = Device(device) if device is not None else None if self._builder is None else self._builder.device
        neighbors = nearest_neighbors if target is None else partial(nearest_on_device, target)
        with shown_progress(progress) as report, self._change() as snapshot:
            self._snapshot = self._linker(self._workers(threads, report)).compute(snapshot, k, neighbors)
            self._pending.rewrite()

    def _linker(self, workers: Workers) -> Linker:
        return Linker(self._dim, self._metric, self.method, workers)

    def _linked(self, state: IndexState, workers: Workers) -> IndexState:
        """Return a state, or a newer one in which all vectors have joined the graph."""
        graph = state.snapshot.graph
        if graph is None or graph.count == len(state.snapshot):
            return state
        with self._writing:
            self._snapshot = self._linker(workers).link_new(self._snapshot)
            return self._state

    def unlink(self) -> None:
        """Drop the neighbor graph."""
        with self._change() as snapshot:
            self._snapshot = replace(snapshot, graph=None)
            self._pending.rewrite()

    @property
    def links(self) -> NeighborGraph | None:
        """The stored neighbor graph without removed vectors, or None if there is no graph."""
        snapshot = self._linked(self._state, self._workers(None)).snapshot
        graph = None if snapshot.graph is None else snapshot.graph.compact()
        if graph is None:
            return None
        return NeighborGraph.from_neighbors(snapshot.to_user_ids(graph.ids), graph.neighbors, graph.similarity)


def stored_or_new_graph(
    index: LinkedIndex, least: int, k: int, *, threads: int | None = None, progress: Progress | bool | None = None
) -> NeighborGraph:
    """Return the stored neighbor graph if it holds all vectors and enough neighbors, otherwise a new one.

    least: the neighbors that each vector has at least. k: the neighbors per vector of a new graph.
    threads, progress: as in `Index.add`.
    """
    stored = index.links
    least = min(least, max(len(index) - 1, 0))
    if stored is not None and len(stored) == len(index) and np.diff(stored.starts).min(initial=least) >= least:
        return stored
    return index.graph(k, threads=threads, progress=progress)

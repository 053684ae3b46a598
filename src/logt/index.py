"""The index: a list of immutable segments that grows in batches and is searched as one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, Unpack

import numpy as np

from logt._internal.params import SearchParams, SearchSettings, as_search_params, key_of_search
from logt._internal.progress import shown_progress
from logt._internal.threads import Progress, Workers
from logt._internal.types import Array, Filter, Floats, Ids, SomeIds, Vectors
from logt._internal.validation import as_matrix, check_choice, check_name, shown
from logt._linked_index import LinkedIndex
from logt.engine import costs
from logt.engine.items import items_of
from logt.engine.prepared import PreparedFilter
from logt.engine.rerank import Rerank, is_function
from logt.engine.searching import Searched, check_range, search_range
from logt.engine.snapshot import Snapshot
from logt.errors import InvalidInputError
from logt.gpu.index import DeviceIndex
from logt.gpu.rows import DeviceRows
from logt.lists.calibration import (
    EffortPoint,
    calibrate,
    calibrate_graph,
    calibrate_kind,
    check_sample,
    measure_efforts,
)
from logt.lists.method import Sketched
from logt.lists.sampling import sample_vectors
from logt.metrics import check_queries, check_vectors
from logt.results import ItemResult, RangeResult, Report, SearchResult
from logt.storage.changes import Change


class Index(LinkedIndex):
    """Vectors of one dimension, searchable by cosine, inner product or squared L2 distance.

    There is no separate `train` call: `add` trains on the first batch, and later batches can follow at any time. The
    index stores codes, from which `reconstruct` returns approximations, and not the vectors themselves.

    dim: dimension of the vectors. method: one of `logt.methods`, `sketched()` by default. metric: "cosine", "ip"
    (inner product) or "l2" (squared distance). seed: the same vectors and seed give the same index on the same kind
    of processor. threads: the default of all calls; None means all cores. segment_size: larger batches are split
    into equal segments ("auto": of up to a million vectors, or 131,072 for the paper's methods); None keeps each
    batch in one segment, as in the paper. device: "cuda" trains and encodes on a GPU (`logt-search[gpu]`). The
    result is an ordinary index, which any machine can open; use `to` to search on the GPU.
    """

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse attributes that an index does not have, which would be ignored; subclasses may have more."""
        if type(self) is Index and not name.startswith("_") and not hasattr(Index, name):
            setting = f"{name}={shown(value)}" if name in SearchSettings.__annotations__ else "effort=0.5"
            raise AttributeError(
                f"an index has no attribute {name!r}; settings are arguments of a search: search(Q, {setting})"
            )
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"Index(dim={self._dim}, metric={self._metric!r}, ntotal={len(self)})"

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    # ------------------------------------------------------------------------------------------------ changes

    def add(
        self,
        X: Vectors,
        ids: SomeIds | None = None,
        *,
        items: SomeIds | None = None,
        threads: int | None = None,
        progress: Progress | bool | None = None,
    ) -> Array:
        """Add the rows of X, and return their ids: the given ones, or else the next free integers.

        Either all rows are added, or none: if a row is invalid, an id exists, or the call is interrupted, the index
        does not change.

        X: a NumPy array, a tensor (torch, cupy, jax) or a column of vectors (pyarrow, polars, pandas). ids: integers
        or strings. items: what each vector belongs to, integers or strings, such as the photo that contains a
        region; `search` can then return items. Either all vectors of an index have an item, or none has. threads:
        the default of the index if None. progress: True draws bars; a function is called as
        progress(what, done, total).
        """
        rows = self._check_vectors(X)
        with shown_progress(progress) as report, self._change() as snapshot:
            return self._add(snapshot, rows, ids, items, self._workers(threads, report))

    def _check_vectors(self, X: Any) -> Any:
        """Return vectors to add; on a device, they are checked when they are read."""
        if self._builder is not None:
            return DeviceRows(self._builder.device, X, self._dim, self._metric)
        return check_vectors(X, self._dim, self._metric)

    def upsert(
        self,
        X: Vectors,
        ids: SomeIds | None,
        *,
        items: SomeIds | None = None,
        threads: int | None = None,
        progress: Progress | bool | None = None,
    ) -> Array:
        """Add the rows of X under the given ids, replacing vectors with the same ids; all or nothing.

        items, threads, progress: as in `add`.
        """
        rows = self._check_vectors(X)
        if ids is None:
            raise InvalidInputError("upsert needs ids; add assigns new ones")
        with shown_progress(progress) as report, self._change() as snapshot:
            old = snapshot.to_int_ids(ids)
            left = snapshot.remove(old)
            if snapshot.graph is not None:  # also if all vectors are replaced: the new ones join the graph
                left = replace(left, graph=snapshot.graph.remove(old))
            return self._add(left, rows, ids, items, self._workers(threads, report), removed=old)

    def _add(
        self, snapshot: Snapshot, rows: Array, ids: Any, items: Any, workers: Workers, removed: Ids | None = None
    ) -> Array:
        snapshot, new_ids = snapshot.assign_ids(ids, len(rows))
        snapshot = snapshot.assign_items(new_ids, items)
        strings = None if snapshot.strings is None else tuple(snapshot.to_user_ids(new_ids).tolist())
        snapshot, segment = self._with_vectors(snapshot, rows, new_ids, workers)
        linked = self._linker(workers).link_many(snapshot)
        if linked is not snapshot:  # the log has no neighbors
            self._pending.rewrite()
        self._snapshot = snapshot = linked
        if removed is not None and len(removed):
            self._pending.record(Change.remove(removed))
        if segment is not None:
            of_new = None if snapshot.items is None else snapshot.items.keep(new_ids)
            self._pending.record(Change.add(segment, strings, of_new))
        elif len(rows):
            self._pending.rewrite()
        if removed is not None:
            self._free_waste()
        return snapshot.to_user_ids(new_ids)

    def remove(self, ids: SomeIds) -> int:
        """Remove the vectors with these ids, and return how many were removed; unknown ids are ignored.

        Ids never shift and are not reused. The memory of removed vectors is freed by `compact`, or automatically when
        it exceeds a quarter of that of the other vectors.
        """
        with self._change() as snapshot:
            numbers = snapshot.to_int_ids(ids)
            self._snapshot = left = snapshot.remove(numbers)
            if len(snapshot) > len(left):
                self._pending.record(Change.remove(numbers))
                self._free_waste()
            return len(snapshot) - len(left)

    def _free_waste(self) -> None:
        """Free the space of removed vectors where it is more than a quarter of that of the others."""
        snapshot = self._snapshot.without_waste()
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            self._pending.rewrite()

    @property
    def _logged(self) -> int:
        """The number of changes in the write-ahead log."""
        return 0 if self._store is None else self._store.position.changes

    def _fold(self) -> None:
        """Save what is in the write-ahead log as new files, so that the next saves append to an empty log."""
        self._pending.rewrite()
        self.save()

    def compact(self, vectors: Vectors | None = None, *, relearn: bool = False, threads: int | None = None) -> None:
        """Free the memory of removed vectors and merge small segments; the scores of other vectors do not change.

        If the index has grown by half or lost a third since its recall was last measured, it is measured again.

        With `relearn`, the whole index is built again as one batch: from `vectors`, the original vectors in the order
        of `index.ids`, or else from the output of `reconstruct`, which costs some accuracy.
        threads: the default of the index if None.
        """
        with self._change() as snapshot:
            workers = self._workers(threads)
            if relearn or vectors is not None:
                self._snapshot = self._relearn(snapshot, vectors, workers)
            else:
                self._snapshot = self._merge_segments(snapshot, workers)
            self._pending.rewrite()

    def _merge_segments(self, snapshot: Snapshot, workers: Workers) -> Snapshot:
        linker = self._linker(workers)
        snapshot = linker.link_new(snapshot)
        return linker.refill(snapshot.compact(self.method.compact(snapshot.segments, self._settings, workers)))

    def _relearn(self, snapshot: Snapshot, vectors: Vectors | None, workers: Workers) -> Snapshot:
        if vectors is None:
            parts = [segment.reconstruct_live() for segment in snapshot.segments]
            rows: Any = np.concatenate([np.empty((0, self._dim), np.float32), *parts])
        else:
            rows = self._check_vectors(vectors)
            if len(rows) != len(snapshot):
                raise InvalidInputError(
                    f"the index holds {len(snapshot)} vectors, but {len(rows)} were given; nothing was changed"
                )
        new, _ = self._with_vectors(snapshot.without_vectors(), rows, snapshot.ids, workers)
        return new if snapshot.graph is None else self._linker(workers).compute(new, snapshot.graph.k)

    def merge_from(self, other: Index) -> None:
        """Add the vectors of another index of the same dimension, metric and method, which does not change."""
        if not isinstance(other, Index):
            raise InvalidInputError(f"only an Index can be merged, got {type(other).__name__}")
        for name in ("dim", "metric", "method"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise InvalidInputError(f"{name} differs: {mine} here, {theirs} there; nothing was merged")
        with self._change() as snapshot:
            self._snapshot = self._linker(self._workers(None)).link_many(snapshot.merge(other._snapshot))
            self._pending.rewrite()

    # ------------------------------------------------------------------------------------------------- search

    def to(self, device: str) -> DeviceIndex:
        """Return a copy of the index that searches on a GPU ("cuda", "cuda:1"); this needs `logt-search[gpu]`.

        The copy has the methods that search, and `refresh`, which copies later changes of this index. "cpu" runs the
        same code without a GPU; it is slow and meant for tests.
        """
        self._refuse_damage()
        return DeviceIndex(self, device)

    def search(
        self,
        Q: Vectors,
        k: int = 10,
        *,
        params: SearchParams | None = None,
        filter: Filter | PreparedFilter | None = None,
        rerank: Rerank | None = None,
        threads: int | None = None,
        on_invalid: Literal["raise", "ignore"] = "raise",
        by: Literal["vector", "item"] = "vector",
        **settings: Unpack[SearchSettings],
    ) -> SearchResult:
        """Return the k best vectors for each row of Q, or for one query of shape (dim,).

        params: how much to read, a `logt.SearchParams`; its fields can also be passed as keyword arguments, such as
        recall=0.99 or effort=0.5. filter: the vectors that can be found: ids, a mask over `index.ids`, a function
        from an array of ids to a mask, or what `prepare` returned. rerank: "diffusion" or a `logt.Diffusion`
        re-ranks the results on the neighbor graph that `link` computed (cosine only); scores are then those of the
        diffusion. A function (query, ids, scores) -> scores re-ranks the max(k, 100) best results of each query.
        threads: the default of the index if None. on_invalid: "ignore" returns ids of -1 for queries with NaN,
        infinity, or a norm that is too large or too small (0 under cosine), instead of raising an error. by: "item"
        returns the k best items that were passed to `add`, each with the id and score of its best vector, as a
        `logt.ItemResult`.
        """
        self._refuse_damage()
        key, state = None, self._state  # one state, read once
        any_threads = threads is None or (type(threads) is int and threads > 0)  # one query uses one
        searches = state.known(filter)
        if searches and rerank is None and any_threads and on_invalid == "raise" and by == "vector":
            key = key_of_search(Q, self._dim, k, params, settings)
            if key is not None and (known := searches.repeat(key, Q)) is not None:
                return known
        check_choice("by", by, ("vector", "item"))
        workers = self._workers(threads)
        if rerank is not None and not is_function(rerank):
            state = self._linked(state, workers)
        params = as_search_params(params, settings)
        snapshot, search = state.snapshot, state.search(filter)
        searched = Searched(
            *(self._dim, self._metric, len(snapshot), state.method),
            lambda used, count, limits: search.search(used, count, limits, workers),
            *(snapshot.reconstruct, snapshot.to_user_ids, lambda: snapshot),
            filter,
            workers,
        )
        if by == "item":
            items = items_of(snapshot.items, len(snapshot))
            scores, ids = searched.search(Q, k, params, rerank, on_invalid, items)
            result = ItemResult(scores, snapshot.to_user_ids(ids))
            result.items = items.to_user_items(ids)
            return result
        found = searched.search(Q, k, params, rerank, on_invalid)
        if searches and key is not None and not params.expand:
            searches.keep(key, k, state.method.limits(params))
        return found.with_ids(snapshot.to_user_ids)

    def prepare(self, filter: Filter) -> PreparedFilter:
        """Return a filter for several searches, to pass as `filter`: which vectors pass is found once.

        It belongs to the present state of the index: prepare it again after a change.
        """
        self._refuse_damage()
        if filter is None:
            raise InvalidInputError("filter must be a mask, ids or a function, got None")
        return self._state.prepare(filter)

    def range_search(
        self,
        Q: Vectors,
        threshold: float,
        *,
        filter: Filter | PreparedFilter | None = None,
        threads: int | None = None,
    ) -> RangeResult:
        """Return all vectors with a score of at least `threshold` (under l2, with at most this squared distance).

        All vectors are scanned, without a correction. Scores are estimates: to find copies of a vector under cosine,
        pass a little less than 1. Scores equal those of a search for one query; in a batch, the paper's methods round
        the last digits differently. Q, filter, threads: as in `search`.
        """
        self._refuse_damage()
        queries, threshold = check_range(Q, threshold, self._dim, self._metric)
        state = self._state
        search, l2 = state.search(filter), self._metric == "l2"
        limits, scores, ids = search_range(search.all_scores, queries, threshold, self._workers(threads), l2=l2)
        return RangeResult(limits, scores, state.snapshot.to_user_ids(ids))

    def tune(
        self, Q: Vectors | None = None, *, name: str | None = None, threads: int | None = None
    ) -> list[EffortPoint]:
        """Measure recall and time by effort; later searches for a recall use the result.

        This also measures how many candidates searches must compare by their refinements.

        An index measures itself when it is built, and again when it has grown by half or lost a third of its vectors
        (with a neighbor graph, a quarter and a fifth). Pass queries Q of your own, 100 or more, if they differ from
        the vectors of the collection. They should not be in the index: such queries find themselves, and are easier
        than others. The index then no longer measures itself, so tune it again when it has changed much. An index
        that is open for reading returns the measurements, but does not keep them.

        name: the name of this kind of queries, such as "text". Only searches with `like=name` then use the result,
        and an index can have several kinds. threads: as in `search`.
        """
        snapshot, workers, rng = self._snapshot, self._workers(threads), np.random.default_rng(self._seed)
        if not isinstance(self.method, Sketched):
            raise InvalidInputError("tune is for methods with inverted lists, such as logt.methods.sketched()")
        queries = None if Q is None else check_queries(as_matrix(Q, self._dim, "Q"), self._metric, ignore=False)[0]
        if queries is not None:
            check_sample(queries)
        if name is not None:
            check_name("name", name)
            if queries is None:
                raise InvalidInputError(f"pass queries of the kind {name!r} as Q")
        if not len(snapshot):
            return []
        segments: Any = snapshot.segments  # with inverted lists
        graph, own = snapshot.graph, None
        if self._store is None or self._store.writable:
            with self._change() as snapshot:
                graph, segments = snapshot.graph, snapshot.segments
                if name is not None and queries is not None:
                    segments = calibrate_kind(segments, graph, name, queries, rng, workers)
                else:
                    segments = calibrate(segments, queries, rng, workers)
                    if graph is not None:
                        graph = calibrate_graph(segments, graph, queries, rng, workers)
                        graph = replace(graph, measured=graph.count)
                self._snapshot = replace(snapshot, segments=segments, graph=graph)
                self._pending.rewrite()
        if queries is None:
            queries, own = sample_vectors(segments, 128, rng)
        return measure_efforts(segments, queries, own, workers, graph, like=name)

    def reconstruct(self, ids: SomeIds) -> Floats:
        """Return the stored approximations of the vectors with these ids, (len(ids), dim)."""
        self._refuse_damage()
        snapshot = self._snapshot
        return snapshot.reconstruct(snapshot.to_int_ids(ids, strict=True), self._dim)

    def report(self) -> Report:
        """Return the size and cost of the index: vectors, bytes in total and by part, segments, units, and more.

        "bytes" are in memory, and "bytes mapped" in files that searches read from disk. "linked" is the number of
        vectors in the neighbor graph, and "rho" the complexity ratio of the paper.
        """
        state = self._state
        return costs.report(state.snapshot, self._dim, self._metric, state.method, state.graph_bytes)

    def complexity(self, params: SearchParams | None = None, **settings: Unpack[SearchSettings]) -> float:
        """Return the paper's complexity ratio ρ of a search with `params`: operations per query over dim·N.

        The neighbor graph is not counted: of a linked index, this is the ratio of a search with `beam=0`.
        """
        state = self._state
        limits = state.method.limits(as_search_params(params, settings))
        return costs.complexity(state.snapshot.segments, self._dim, state.method, limits)

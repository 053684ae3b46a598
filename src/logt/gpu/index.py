"""An index on a device: the same searches with the same arguments, on a copy of one state of an index."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Literal, Never, Unpack

import numpy as np

from logt._internal.arrays import array_module, to_numpy
from logt._internal.params import SearchParams, SearchSettings, as_search_params, check_k
from logt._internal.threads import SERIAL
from logt._internal.types import Array, Filter, Floats, Ids, Metric, SomeIds, Vectors
from logt._internal.validation import (
    as_matrix,
    check_choice,
    check_int,
    check_rows,
    normalize_rows,
    row_norms,
)
from logt.engine.protocols import Searchable
from logt.engine.rerank import as_diffusion
from logt.engine.searching import check_range, expand_queries, search_range
from logt.engine.snapshot import Snapshot
from logt.errors import InvalidInputError, ReadOnlyError
from logt.gpu.captured import CapturedSearch, as_users_see, can_capture
from logt.gpu.device import Device
from logt.gpu.diffusion import DeviceGraph, diffuse
from logt.gpu.filters import DeviceFilter, Numbers
from logt.gpu.search import DeviceSearcher
from logt.graph.diffusion import Diffusion
from logt.lists.calibration import check_sample
from logt.lists.method import Sketched
from logt.lists.search import user_scores
from logt.metrics import check_queries, worst_score
from logt.results import RangeResult, Report, SearchResult

_KEPT_SEARCHES = 8  # each has up to 256 MB of the device, and some


def _refused(name: str) -> Callable[..., Never]:
    """Return a method that tells how to change an index that is on a device."""

    def method(self: DeviceIndex, *args: Any, **settings: Any) -> Never:
        raise ReadOnlyError(
            f"an index on {self.device} cannot {name}: change the index that it was made from, and call refresh()"
        )

    method.__name__, method.__doc__ = name, f"Raise ReadOnlyError: {name} the index that this one was made from."
    return method


class DeviceIndex(Searchable):
    """A copy of one state of an index in the memory of a GPU, as `Index.to` and `logt.open(..., device=)` return it.

    It is searched as the index itself: ids and scores are the same, but for differences of rounding. Queries are
    NumPy arrays, or tensors on the device (torch, cupy, jax), which are not copied; results are where queries are.
    The neighbor graph serves `rerank` only: reading lists is faster here. `refresh` copies the newest state.
    """

    def __init__(self, host: Any, device: str):
        """host: the `logt.Index` whose state is copied. device: "cuda", "cuda:1", or "cpu" for tests."""
        if not isinstance(host.method, Sketched):
            raise InvalidInputError(
                f"only an index of logt.methods.sketched() can be on a GPU, not one of {host.method.describe()}"
            )
        self._host, self._device, self._refreshing = host, Device(device), threading.Lock()
        self._copy = self._new_copy()

    def _new_copy(self) -> DeviceCopy:
        """Copy the state of the host, in which all vectors have joined the graph, once all its bytes are checked."""
        host = self._host
        host.verify()
        generation, state = host.generation, host._linked(host._state, host._workers(None))
        return DeviceCopy(self._device, state.method, state.metric, host.dim, state.snapshot, generation)

    def __repr__(self) -> str:
        return f"DeviceIndex(dim={self.dim}, metric={self.metric!r}, ntotal={len(self)}, device={self.device!r})"

    @property
    def dim(self) -> int:
        """The dimension of the vectors."""
        return self._copy.dim

    @property
    def metric(self) -> Metric:
        """What vectors are compared by."""
        return self._copy.metric

    @property
    def device(self) -> str:
        """Where the index is."""
        return self._device.name

    def __len__(self) -> int:
        return len(self._copy.snapshot)

    def __contains__(self, id: object) -> bool:
        return id in self._copy.snapshot

    @property
    def ids(self) -> Array:
        """The ids of all vectors, in the order of a mask that filters them."""
        return self._copy.ids

    @property
    def generation(self) -> int | None:
        """The number of the saved state that was copied last; None if the index was not opened."""
        return self._copy.generation

    def refresh(self) -> bool:
        """Copy the newest state of the index that this one was made from; return whether it had changed.

        An index that is open for reading moves to its newest saved state first. Searches use the copy before until
        the new one is complete; the device needs the memory of both.
        """
        with self._refreshing:
            if self._host.generation is not None:
                self._host.refresh()
            if self._host._snapshot is self._copy.snapshot:
                return False
            self._copy = self._new_copy()
            return True

    add: Callable[..., Never] = _refused("add")
    upsert: Callable[..., Never] = _refused("upsert")
    remove: Callable[..., Never] = _refused("remove")
    compact: Callable[..., Never] = _refused("compact")
    link: Callable[..., Never] = _refused("link")
    unlink: Callable[..., Never] = _refused("unlink")
    merge_from: Callable[..., Never] = _refused("merge_from")

    def search(
        self,
        Q: Vectors,
        k: int = 10,
        *,
        params: SearchParams | None = None,
        filter: Filter | DeviceFilter | None = None,
        rerank: Literal["diffusion"] | Diffusion | None = None,
        threads: int | None = None,
        on_invalid: Literal["raise", "ignore"] = "raise",
        by: Literal["vector"] = "vector",
        **settings: Unpack[SearchSettings],
    ) -> SearchResult:
        """Return the k best vectors for each row of Q, or for one query of shape (dim,): see `Index.search`.

        threads: has no effect here. by: items are not searched for here.
        """
        if by != "vector":
            raise InvalidInputError(
                f"a device finds vectors; search by {by!r} in the index itself, opened without one"
            )
        if threads is not None:
            check_int("threads", threads)
        return self._copy.search(Q, k, as_search_params(params, settings), filter, rerank, on_invalid)

    def range_search(
        self, Q: Vectors, threshold: float, *, filter: Filter | DeviceFilter | None = None
    ) -> RangeResult:
        """Return all vectors with a score of at least `threshold`, as NumPy arrays: see `Index.range_search`."""
        return self._copy.range_search(Q, threshold, filter)

    def prepare(self, filter: Filter) -> DeviceFilter:
        """Return a filter for several searches here, to pass as `filter`: it is sent to the device once.

        It belongs to the state that was copied last: prepare it again after `refresh`.
        """
        prepared = self._copy.prepare(filter)
        if prepared is None:
            raise InvalidInputError("filter must be a mask, ids or a function, got None")
        return prepared

    def tune(self, Q: Vectors | None = None) -> None:
        """Measure the recall of searches here by effort, with queries Q, or with vectors of the index if None.

        The first search for a recall measures it with vectors of the index. Later ones follow from that until the
        next `refresh`.
        """
        self._copy.tune(Q)

    def reconstruct(self, ids: SomeIds) -> Floats:
        """Return the approximations (len(ids), dim) of the vectors that the index stores."""
        snapshot = self._copy.snapshot
        return snapshot.reconstruct(snapshot.to_int_ids(ids, strict=True), self.dim)

    def report(self) -> Report:
        """Return what the index holds: that of the host, with the bytes on the device."""
        return Report({**self._host.report(), "device": self.device, "device bytes": self._copy.nbytes})


class DeviceCopy:
    """One state of an index on a device, and its searches."""

    def __init__(
        self,
        device: Device,
        method: Sketched,
        metric: Metric,
        dim: int,
        snapshot: Snapshot,
        generation: int | None = None,
    ):
        segments: Any = snapshot.segments
        self.generation = generation
        self._device, self._method, self.metric, self.dim, self.snapshot = device, method, metric, dim, snapshot
        self.searcher = DeviceSearcher(device, segments, metric)
        self._graph: DeviceGraph | None = None  # copied by the first diffusion
        self._searches: dict[Any, CapturedSearch] = {}

    def tune(self, Q: Any) -> None:
        """Measure the recall of searches by effort: see `DeviceIndex.tune`."""
        queries = None if Q is None else check_queries(as_matrix(Q, self.dim, "Q"), self.metric, ignore=False)[0]
        if queries is not None:
            check_sample(queries)
        self.searcher.measure(queries)

    @property
    def nbytes(self) -> int:
        """The bytes on the device."""
        return self.searcher.nbytes + (0 if self._graph is None else self._graph.nbytes)

    @property
    def ids(self) -> Array:
        """The ids of all vectors, as users know them."""
        return self.snapshot.to_user_ids(self.snapshot.ids)

    def search(self, Q: Any, k: Any, params: SearchParams, filter: Any, rerank: Any, on_invalid: str) -> SearchResult:
        """Return the k best vectors for each row of Q: see `Index.search`."""
        k = check_k(k, len(self.snapshot))
        check_choice("on_invalid", on_invalid, ("raise", "ignore"))
        if params.expand and self.metric != "cosine":
            raise InvalidInputError(f"expand works under cosine, not under {self.metric}")
        probe = self._method.limits(params)
        if probe.like is not None:
            raise InvalidInputError("on a device there are no kinds of queries; tune the index there, and omit like")
        diffusion = as_diffusion(rerank, self.snapshot, self.metric)
        with self._device.active():
            again, chosen = filter is None or isinstance(filter, DeviceFilter), self.prepare(filter)
            if type(Q) is np.ndarray and again and diffusion is None and not params.expand:
                known = self._captured(Q, k, probe, chosen)
                if known is not None:
                    return SearchResult(known[0], self.snapshot.to_user_ids(known[1]))
            X, single = self._queries(Q)
            parts = None if chosen is None else chosen.parts
            if params.expand and len(X):
                first = self._find(X, check_k(params.expand, len(self.snapshot), "expand"), probe, parts, on_invalid)
                X = self._expanded(X, first, params.alpha)
            scores, ids = self._find(X, k if diffusion is None else diffusion.results(k), probe, parts, on_invalid)
            if diffusion is not None:
                scores, ids = self._diffused(diffusion, (scores, ids), k, chosen)
            scores, ids = self._padded(scores, ids, k)
            if single:
                scores, ids = scores[0], ids[0]
            if self._device.holds(Q) and self.snapshot.strings is None:
                return _like(Q, scores, ids)
            return SearchResult(self._device.get(scores), self.snapshot.to_user_ids(self._device.get(ids)))

    def _captured(self, Q: Array, k: int, probe: Any, filter: DeviceFilter | None) -> tuple[Floats, Ids] | None:
        """Return (scores, ids) of few queries by a search that was recorded; None for others."""
        matrix = Q[None] if Q.ndim == 1 else Q
        if matrix.ndim != 2 or matrix.shape[1] != self.dim or Q.dtype != np.float32 or k > len(self.snapshot):
            return None
        limits, parts = self.searcher.limits(probe, k), self.searcher.parts if filter is None else filter.parts
        searches = self._searches if filter is None else filter.searches
        key = len(matrix), k, limits
        search = searches.get(key)
        if search is None:
            if not can_capture(self.searcher, *key, parts):
                return None
            if len(searches) >= _KEPT_SEARCHES:
                searches.clear()
            try:
                search = searches[key] = CapturedSearch(self.searcher, *key, parts)
            except self._device.xp.cuda.memory.OutOfMemoryError:  # there is less than it would keep
                searches.clear()
                return None
        found = search(matrix)
        if found is None:
            return None
        scores, ids = self._padded(found[0], found[1], k)
        return (scores, ids) if Q.ndim == 2 else (scores[0], ids[0])

    def _padded(self, scores: Any, ids: Any, k: int) -> tuple[Any, Any]:
        """Return results with k columns, of which the last ones may be empty."""
        if ids.shape[1] >= k:
            return scores, ids
        xp, missing = array_module(ids), ((0, 0), (0, k - ids.shape[1]))
        worst = worst_score(self.metric)
        return xp.pad(scores, missing, constant_values=worst), xp.pad(ids, missing, constant_values=-1)

    def _queries(self, Q: Any) -> tuple[Any, bool]:
        """Return (queries as float32 on the device, whether Q is one vector)."""
        if self._device.holds(Q):
            matrix = self._device.put(Q)
            single = matrix.ndim == 1
            matrix = matrix[None] if single else matrix
            if matrix.ndim != 2 or matrix.shape[1] != self.dim or matrix.dtype.kind not in "fiub":
                what = f"shape {tuple(Q.shape)} and dtype {Q.dtype}"
                raise InvalidInputError(f"Q has {what}: pass numbers of shape (rows, {self.dim})")
            return self._device.xp.ascontiguousarray(matrix, np.float32), single
        given = to_numpy(Q)
        host = as_matrix(given, self.dim, "Q")
        with np.errstate(over="ignore"):
            return self._device.put(np.ascontiguousarray(host, np.float32)), np.ndim(given) == 1 and len(host) == 1

    def _find(self, X: Any, k: int, probe: Any, parts: Any, on_invalid: str) -> tuple[Any, Any]:
        """Return (scores as users see them, ids) on the device; of queries that are not valid, none, or an error."""
        xp, searcher = self._device.xp, self.searcher
        found = searcher.find(X, min(k, max(len(self.snapshot), 1)), searcher.limits(probe, k), parts)
        scores, ids, wrong = as_users_see(searcher, found)
        if len(X) and bool(wrong.any()):
            if on_invalid == "raise":
                check_rows(self._device.get(X), "Q", "correct it, or pass on_invalid='ignore'", self.metric)
            worst = np.float32(worst_score(self.metric))
            scores, ids = xp.where(wrong[:, None], worst, scores), xp.where(wrong[:, None], -1, ids)
        return scores, ids

    def _expanded(self, X: Any, found: tuple[Any, Any], alpha: float) -> Any:
        queries, scores, ids = (self._device.get(part) for part in (X, *found))
        valid = (ids >= 0).any(axis=1)
        scores, ids = np.where(ids >= 0, scores, 0), np.where(ids >= 0, ids, ids[:, :1])  # fewer pass a filter
        used = normalize_rows(queries[valid], row_norms(queries[valid]))
        queries = queries.copy()
        queries[valid] = expand_queries(self.snapshot.reconstruct, used, scores[valid], ids[valid], alpha)
        return self._device.put(queries)

    # ------------------------------------------------------------------------------------------------ filters

    def prepare(self, filter: Any) -> DeviceFilter | None:
        """Return a filter on the device, None for none; raise InvalidInputError for one of another state."""
        if filter is None:
            return None
        if isinstance(filter, DeviceFilter):
            if filter.owner is not self:
                raise InvalidInputError("the filter was prepared for another index or state: prepare it again")
            return filter
        with self._device.active():
            passing = self._numbers.passing(self.snapshot, filter, self.ids if callable(filter) else None)
            parts = zip(self.searcher.parts, self._numbers_by_position, strict=True)
            found = [lists.filtered(number, passing) for lists, number in parts]
            return DeviceFilter(self, passing, [lists for lists in found if lists is not None])

    @cached_property
    def _numbers(self) -> Numbers:
        return Numbers(self._device, self.snapshot.ids)

    @cached_property
    def _numbers_by_position(self) -> list[Any]:
        return [self._numbers.find(lists.ids) for lists in self.searcher.parts]

    # ---------------------------------------------------------------------------------------------- diffusion

    def _diffused(
        self, how: Diffusion, found: tuple[Any, Any], k: int, filter: DeviceFilter | None
    ) -> tuple[Any, Any]:
        """Return (scores, ids) of the k best by diffusion from the results of a plain search."""
        graph, stored = self._graph, self.snapshot.graph
        if stored is None or not found[1].shape[1]:
            return found
        if graph is None or graph.neighbors != min(how.neighbors, stored.k):
            self._graph = None  # there may not be space for both
            graph = self._graph = DeviceGraph.copy(self._device, stored, how.neighbors)
        visible = graph.live
        if filter is not None:
            number = self._numbers.find(graph.ids)
            passing = (number >= 0) & filter.passing[number]
            visible = passing if visible is None else passing & visible
        return diffuse(self._device, graph, how, *found, k, visible)

    def range_search(self, Q: Any, threshold: float, filter: Any) -> RangeResult:
        """Return all vectors with a score of at least `threshold`: see `Index.range_search`."""
        queries, threshold = check_range(Q, threshold, self.dim, self.metric)
        with self._device.active():
            chosen = self.prepare(filter)
            parts = None if chosen is None else chosen.parts

            def all_scores(q: Floats) -> Iterator[tuple[Floats, Ids]]:
                for scores, ids in self.searcher.all_scores(self._device.put(q), parts):
                    yield user_scores(scores, self.metric), ids

            limits, scores, ids = search_range(all_scores, queries, threshold, SERIAL, l2=self.metric == "l2")
        return RangeResult(limits, scores, self.snapshot.to_user_ids(ids))


def _like(Q: Any, scores: Any, ids: Ids) -> SearchResult:
    """Return results as arrays of the library that the queries are of, without a copy."""
    library = type(Q).__module__.partition(".")[0]
    if library == "cupy":
        return SearchResult(scores, ids)
    import importlib

    module = importlib.import_module("jax.numpy" if library.startswith("jax") else library)
    return SearchResult(module.from_dlpack(scores), module.from_dlpack(ids))

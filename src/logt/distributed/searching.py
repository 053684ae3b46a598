"""An index that is searched in shards on a Ray cluster: the ids and scores of one machine, but for the graph."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, Self, Unpack

import numpy as np

from logt._internal.params import SearchParams, SearchSettings, as_search_params
from logt._internal.recall_curve import RecallCurve
from logt._internal.types import Array, Floats, Ids, Metric, SomeIds, Vectors
from logt._internal.validation import as_int_ids, as_mask, check_choice, check_float, check_int
from logt.distributed.pools import connect
from logt.distributed.replicas import Replicas
from logt.engine.items import items_of
from logt.engine.protocols import Searchable
from logt.engine.rerank import Rerank
from logt.engine.searching import Searched, check_range, merge_ranges
from logt.engine.snapshot import Snapshot
from logt.engine.string_ids import as_strings
from logt.errors import BusyError, ConflictError, InvalidInputError, MissingShardsError
from logt.lists.inverted_lists import CandidateDepths, Probe
from logt.lists.search import search_limits, user_scores
from logt.lists.shards import ListTotals, balance, merge_candidates, split_by_bytes
from logt.results import ItemResult, RangeResult, Report, SearchResult
from logt.storage.locations import is_url, local_path
from logt.storage.shard_files import Outline, read_graph, read_outline

BATCH = 256
"""Queries that are sent to the shards together."""

SHARD_BYTES = 16 << 30
"""The most bytes of a shard, by default."""


class ShardedResult(SearchResult):
    """A `SearchResult`, and the numbers of the shards that were not searched, which needs partial results."""

    missing: tuple[int, ...] = ()


class ShardedItems(ItemResult):
    """An `ItemResult`, and the shards that were not searched, as in `ShardedResult`."""

    missing: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class ShardState:
    """One saved state of an index, and the actors that hold it.

    parts: the segments of each shard. curves: the recall of searches on the neighbor graph, as each shard has
    measured it; none if one could not; None without a graph.
    """

    path: str
    outline: Outline
    parts: Sequence[Sequence[int]]
    actors: Replicas
    curves: Sequence[RecallCurve] | None = None

    @property
    def names(self) -> Snapshot:
        """The string ids, without segments."""
        return Snapshot((), 1, self.outline.strings)

    def to_int_ids(self, ids: Any) -> Ids:
        """Return the integer ids of requested ids; unknown strings are skipped."""
        return as_int_ids(ids) if self.outline.strings is None else self.names.to_int_ids(ids)

    @cached_property
    def linked(self) -> Snapshot:
        """The neighbor graph and the string ids, without segments; read by the first search that re-ranks."""
        graph = read_graph(self.path, self.outline.state)
        if graph is not None and graph.count < len(self.outline):
            raise InvalidInputError(
                f"{len(self.outline) - graph.count:,} vectors are not in the neighbor graph; open the index with "
                "mode='a', link() and save()"
            )
        return replace(self.names, graph=graph)


def open(  # noqa: A001
    path: str,
    replicas: int = 2,
    *,
    shards: int | None = None,
    shard_bytes: int = SHARD_BYTES,
    address: str | None = None,
    seconds: float = 10.0,
    max_searches: int = 64,
) -> DistributedIndex:
    """Open a stored index on a Ray cluster, in shards that are held by actors.

    path: the folder of an index that all nodes can read, or a URL. replicas: actors of each shard, on different
    nodes if there are enough. shards: their number; by default as many as needed so that each has at most
    `shard_bytes`. address: of the cluster, see `logt.distributed.connect`. seconds: after this time without a
    result, another replica of a shard is called. max_searches: how many searches may run at a time; others wait, and
    after `seconds` they raise BusyError.
    """
    name = str(path) if is_url(path) else str(local_path(path))
    if not 0 < check_float("seconds", seconds) < float("inf"):
        raise InvalidInputError(f"seconds must be above 0 and finite, got {seconds!r}")
    check_int("replicas", replicas)
    check_int("shards", 1 if shards is None else shards)
    check_int("shard_bytes", shard_bytes)
    check_int("max_searches", max_searches)
    read_outline(name)  # what cannot be searched in shards is refused before a cluster is started
    load = partial(_load, connect(address), name, replicas, shards, shard_bytes, float(seconds))
    return DistributedIndex(name, load, float(seconds), max_searches)


def _load(
    ray: Any, path: str, replicas: int, shards: int | None, shard_bytes: int, seconds: float, attempts: int = 10
) -> ShardState:
    """Start actors that open the newest state; repeat it if the state is replaced or an actor dies meanwhile."""
    outline = read_outline(path)
    if shards is None:
        parts = split_by_bytes(outline.sizes, shard_bytes)
    else:
        parts = balance(outline.sizes, min(shards, max(1, len(outline.sizes))))
    try:
        actors = Replicas(ray, path, outline.state, parts, replicas, seconds)
        curves = _measured(actors) if outline.linked else None
    except (ConflictError, FileNotFoundError, MissingShardsError):
        if attempts == 1:
            raise
        time.sleep(1)
        return _load(ray, path, replicas, shards, shard_bytes, seconds, attempts - 1)
    state = ShardState(path, outline, parts, actors, curves)
    weakref.finalize(state, actors.close).atexit = False  # when another state is used, and the last search has ended
    return state


def _measured(actors: Replicas) -> list[RecallCurve]:
    """Return the recall of searches on the graph of each shard where it matters; none if one could not measure it."""
    try:
        known = [recall for recall in actors.call_first("measure") if recall is not None]
    except BaseException:
        actors.close()
        raise
    return list(map(RecallCurve, known)) if all(recall.size for recall in known) else []


class DistributedIndex(Searchable):
    """An index in shards; `logt.distributed.open` makes it. Threads may share it. It is open for reading."""

    def __init__(self, path: str, load: Callable[[], ShardState], seconds: float, max_searches: int):
        """Use `open`. load: opens the newest state. seconds, max_searches: as in `open`."""
        self._path, self._load, self._seconds = path, load, seconds
        self._slots = threading.BoundedSemaphore(max_searches)
        self._refreshing = threading.Lock()
        self._state = load()

    # ------------------------------------------------------------------------------------------------- properties

    @property
    def _actors(self) -> Replicas:
        return self._state.actors

    @property
    def dim(self) -> int:
        return self._state.outline.dim

    @property
    def metric(self) -> Metric:
        return self._state.outline.metric

    @property
    def generation(self) -> int:
        """The number of the saved state that is searched."""
        return self._state.outline.generation

    def __len__(self) -> int:
        return len(self._state.outline)

    @property
    def linked(self) -> bool:
        """Whether there is a neighbor graph, which `rerank` needs."""
        return self._state.outline.linked

    def __repr__(self) -> str:
        return (
            f"DistributedIndex({self._path!r}, dim={self.dim}, ntotal={len(self)}, shards={len(self._actors.shards)})"
        )

    def __contains__(self, id: object) -> bool:
        try:
            self.reconstruct(np.array([id]))
        except InvalidInputError:
            return False
        return True

    def info(self) -> Report:
        """Return what the index holds, and of each shard vectors, bytes, calls, failures, mean milliseconds."""
        state = self._state
        outline, parts = state.outline, []
        for shard, (numbers, replicas) in enumerate(zip(state.parts, state.actors.shards, strict=True)):
            calls = sum(replica.calls for replica in replicas)
            parts.append(
                {
                    "shard": shard,
                    "vectors": sum(outline.counts[n] for n in numbers),
                    "bytes": sum(outline.sizes[n] for n in numbers),
                    "replicas": len(replicas),
                    "nodes": sorted({replica.node for replica in replicas}),
                    "calls": calls,
                    "failures": sum(replica.failures for replica in replicas),
                    "milliseconds": 1e3 * sum(replica.seconds for replica in replicas) / max(calls, 1),
                }
            )
        return Report(
            {
                "vectors": len(outline),
                "dim": outline.dim,
                "metric": outline.metric,
                "generation": outline.generation,
                "segments": len(outline.sizes),
                "bytes": sum(outline.sizes),
                "actors replaced": state.actors.replaced,
                "shards": parts,
            }
        )

    # ----------------------------------------------------------------------------------------------------- search

    def search(
        self,
        Q: Vectors,
        k: int = 10,
        *,
        params: SearchParams | None = None,
        filter: Any = None,
        rerank: Rerank | None = None,
        threads: int | None = None,
        on_invalid: Literal["raise", "ignore"] = "raise",
        allow_partial: bool = False,
        by: Literal["vector", "item"] = "vector",
        **settings: Unpack[SearchSettings],
    ) -> ShardedResult | ShardedItems:
        """Return the k best vectors for each row of Q, or for one query; the ids and scores of `Index.search`.

        With a neighbor graph, each shard uses the edges between its vectors, and the results differ from those of
        one machine, unless `beam` is 0.

        A result is complete, or this raises MissingShardsError. allow_partial: leave out shards that do not return;
        `missing` of the result has their numbers. filter: ids, or a mask over all ids; functions cannot be sent to
        the shards. rerank: as of `Index.search`; the graph is read by this process, at the first search that needs
        it, and a filter must be one of ids. threads: has no effect; actors use theirs. params, on_invalid, by: as of
        `Index.search`; the items are known to this process.
        """
        if rerank is not None and as_mask(filter) is not None:
            raise InvalidInputError("an index in shards re-ranks with a filter of ids, not with a mask; pass the ids")
        params = as_search_params(params, settings)
        if params.like is not None:
            raise InvalidInputError("in shards there are no kinds of queries; omit like")
        check_choice("by", by, ("vector", "item"))
        with self._slot():
            state = self._state  # one state, read once
            outline = state.outline
            missing: list[int] | None = [] if allow_partial else None
            search = _Search(state, filter, missing)
            searched = Searched(
                *(outline.dim, outline.metric, len(outline), outline.method),
                search.run,
                *(search.reconstruct, state.names.to_user_ids, lambda: state.linked),
                filter,
            )
            items = items_of(outline.items, len(outline)) if by == "item" else None
            scores, ids = searched.search(Q, k, params, rerank, on_invalid, items)
            result: ShardedResult | ShardedItems = ShardedResult(scores, state.names.to_user_ids(ids))
            if items is not None:
                result = ShardedItems(*result)
                result.items = items.to_user_items(ids)
            result.missing = tuple(sorted(set(missing or ())))
            return result

    def range_search(self, Q: Vectors, threshold: float, *, filter: Any = None) -> RangeResult:
        """Return all vectors with a score of at least `threshold` (under l2: a squared distance of at most that).

        Q, filter: as in `search`.
        """
        with self._slot():
            state = self._state
            queries, threshold = check_range(Q, threshold, state.outline.dim, state.outline.metric)
            limits, scores, ids = _Search(state, filter).ranges(queries, threshold)
            return RangeResult(limits, scores, state.names.to_user_ids(ids))

    def reconstruct(self, ids: SomeIds) -> Floats:
        """Return the approximations (len(ids), dim) of the vectors that the index stores."""
        with self._slot():
            state = self._state
            numbers = state.to_int_ids(ids)
            if state.outline.strings is not None and len(numbers) != len(as_strings(ids) or []):
                raise InvalidInputError(f"some of the ids {ids!r} are not in the index")
            return _Search(state).reconstruct(numbers, state.outline.dim)

    # --------------------------------------------------------------------------------------------------- lifetime

    def refresh(self) -> bool:
        """Move to the newest saved state; return whether there was a newer one. Searches continue meanwhile."""
        with self._refreshing:
            if read_outline(self._path).state == self._state.outline.state:
                return False
            self._state = self._load()
            return True

    def close(self) -> None:
        """Stop the actors."""
        self._actors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @contextmanager
    def _slot(self) -> Iterator[None]:
        if not self._slots.acquire(timeout=self._seconds):
            raise BusyError("too many searches are running; try again later, or add replicas")
        try:
            yield
        finally:
            self._slots.release()


@dataclass(frozen=True)
class _Search:
    """The calls of one search of a state. missing: gets the shards that did not return, if that is allowed."""

    state: ShardState
    filter: Any = None
    missing: list[int] | None = None

    def run(self, Q: Floats, k: int, probe: Probe) -> SearchResult:
        outline = self.state.outline
        filters = self._filters()
        totals: Sequence[ListTotals] | None = None
        count = len(outline)
        if filters is not None:
            each = self._call("totals", lambda shard: (filters[shard],))
            totals = [sum(same[1:], same[0]) for same in zip(*each, strict=True)]
            count = sum(int(total.visible.sum()) + total.scanned for total in totals)
        refine = any(codec.refine for codec in outline.codecs)
        measured = [codec.measured for codec in outline.codecs]
        depths = CandidateDepths.total(known.depths for known in measured) if refine else None
        curves = [known.curve for known in measured if known.curve]
        limits = search_limits(probe, k, depths, curves, self.state.curves if filters is None else None)
        k = min(k, count)
        limits = limits._replace(candidates=max(k, limits.candidates))
        kept = None if limits.results else limits.candidates  # shards that stop by themselves differ from the whole
        if not k or not len(Q):
            return SearchResult(np.empty((len(Q), 0), np.float32), np.empty((len(Q), 0), np.int64))
        found = []
        for start in range(0, len(Q), BATCH):
            batch = Q[start : start + BATCH]
            parts = self._call("candidates", lambda s, q=batch: (q, limits, filters and filters[s], totals))  # type: ignore[misc]
            found.append(merge_candidates(parts, kept, k))
        width = max(ids.shape[1] for _, ids in found)
        scores, ids = (np.concatenate([part[n][:, :width] for part in found]) for n in (0, 1))
        return SearchResult(user_scores(scores, outline.metric), ids)

    def ranges(self, Q: Floats, threshold: float) -> tuple[Array, Floats, Ids]:
        filters, metric = self._filters(), self.state.outline.metric
        parts = self._call("ranges", lambda shard: (Q, threshold, metric, filters and filters[shard]))
        return merge_ranges(parts, l2=metric == "l2")

    def reconstruct(self, ids: Ids, dim: int) -> Floats:
        """Return the vectors with these integer ids, as they are kept."""
        X, here = np.empty((len(ids), dim), np.float32), np.zeros(len(ids), bool)
        for positions, rows in self._call("reconstruct", lambda _: (ids, dim)):
            X[positions], here[positions] = rows, True
        if not here.all() and not self.missing:
            raise InvalidInputError(f"id {self.state.names.to_user_ids(ids[~here])[0]} is not in the index")
        X[~here] = 0
        return X

    def _call(self, method: str, arguments: Callable[[int], tuple[Any, ...]]) -> list[Any]:
        results = self.state.actors.call(method, arguments, self.missing)
        found = [result for result in results if result is not None]
        if not found:
            raise MissingShardsError("no shard has returned a result", tuple(range(len(results))))
        return found

    def _filters(self) -> list[Array] | None:
        if self.filter is None:
            return None
        if callable(self.filter):
            raise InvalidInputError("a function as a filter cannot be sent to the shards; pass ids, or a mask")
        outline, parts = self.state.outline, self.state.parts
        mask = as_mask(self.filter)
        if mask is None:
            wanted = self.state.to_int_ids(self.filter) if len(outline) else np.empty(0, np.int64)
            return [wanted] * len(parts)
        if mask.shape != (len(outline),):
            raise InvalidInputError(f"the mask has shape {mask.shape}, but there are {len(outline)} ids")
        ends = np.cumsum([0, *outline.counts])
        return [np.concatenate([mask[:0], *(mask[ends[n] : ends[n + 1]] for n in part)]) for part in parts]

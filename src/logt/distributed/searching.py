"""An index that is searched in shards on a Ray cluster: the ids and scores of one machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Self, Unpack

import numpy as np

from logt._internal.arrays import to_numpy
from logt._internal.params import SearchParams, SearchSettings, as_search_params, check_k
from logt._internal.types import Array, Floats, Ids, Metric, SomeIds, Vectors
from logt._internal.validation import as_int_ids, as_mask, as_matrix, check_choice, check_float, check_int
from logt.distributed.cluster import connect
from logt.distributed.graph import StateGraph
from logt.distributed.replicas import Layout, Replicas
from logt.engine.expansion import expand_queries
from logt.engine.rerank import as_diffusion, diffuse
from logt.engine.snapshot import Snapshot
from logt.engine.snapshot_search import list_scores
from logt.engine.string_ids import as_strings
from logt.errors import BusyError, ConflictError, InvalidInputError, MissingShardsError
from logt.graph.diffusion import Diffusion
from logt.lists.inverted_lists import Probe, Ranks
from logt.lists.shards import ListTotals, balance, merge_candidates, merge_ranges, split_by_bytes
from logt.metrics import check_queries, worst_score
from logt.results import RangeResult, Report, SearchResult, pad_results
from logt.storage.locations import is_url, local_path
from logt.storage.shard_files import Outline, read_outline

BATCH = 256
"""Queries that are sent to the shards together."""

SHARD_BYTES = 16 << 30
"""The most bytes of a shard, by default."""


class ShardedResult(SearchResult):
    """A `SearchResult`, and the numbers of the shards whose vectors were not searched: () unless partial results are
    allowed."""

    missing: tuple[int, ...] = ()


@dataclass(frozen=True)
class _View:
    """One state of the index, and how it is spread over the shards."""

    outline: Outline
    layout: Layout

    def to_int_ids(self, ids: Any) -> Ids:
        """Return the integer ids of requested ids; unknown strings are skipped."""
        return as_int_ids(ids) if self.outline.strings is None else self._ids.to_int_ids(ids)

    def to_user_ids(self, ids: Ids) -> Array:
        """Return ids as users know them."""
        return self._ids.to_user_ids(ids)

    @property
    def _ids(self) -> Snapshot:
        """Translates ids; it holds no segments."""
        return Snapshot((), 1, self.outline.strings)


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
    check_int("replicas", replicas)
    check_int("max_searches", max_searches)
    if not 0 < check_float("seconds", seconds) < float("inf"):
        raise InvalidInputError(f"seconds must be above 0 and finite, got {seconds!r}")
    outline = read_outline(name)
    count = len(split_by_bytes(outline.sizes, check_int("shard_bytes", shard_bytes)))
    if shards is not None:
        count = min(check_int("shards", shards), max(1, len(outline.sizes)))
    actors = Replicas(connect(address), name, count, replicas, float(seconds))
    try:
        return DistributedIndex(name, actors, float(seconds), max_searches)
    except BaseException:
        actors.close()
        raise


class DistributedIndex:
    """An index in shards; `logt.distributed.open` makes it. Threads may share it. It is open for reading."""

    def __init__(self, path: str, actors: Replicas, seconds: float, max_searches: int):
        """Use `open`. path: of the index. actors: of its shards. seconds, max_searches: as in `open`."""
        self._path, self._actors, self._seconds = path, actors, seconds
        self._graph = StateGraph(path)
        self._slots = threading.BoundedSemaphore(max_searches)
        self._refreshing = threading.Lock()
        self._users: dict[str, int] = {}
        self._user_lock = threading.Condition()
        self._view = self._load()

    # ------------------------------------------------------------------------------------------------- properties

    @property
    def dim(self) -> int:
        return self._view.outline.dim

    @property
    def metric(self) -> Metric:
        return self._view.outline.metric

    @property
    def generation(self) -> int:
        """The number of the saved state that is searched."""
        return self._view.outline.generation

    def __len__(self) -> int:
        return len(self._view.outline)

    @property
    def ntotal(self) -> int:
        """The number of vectors, `len(index)`."""
        return len(self)

    @property
    def linked(self) -> bool:
        """Whether there is a neighbor graph, which `rerank` needs."""
        return self._view.outline.linked

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
        outline, layout = self._view.outline, self._view.layout
        parts = []
        for shard, numbers in enumerate(layout.shards):
            replicas = list(self._actors.shards[shard])
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
                "actors replaced": self._actors.replaced,
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
        rerank: Literal["diffusion"] | Diffusion | None = None,
        threads: int | None = None,
        on_invalid: Literal["raise", "ignore"] = "raise",
        allow_partial: bool = False,
        **settings: Unpack[SearchSettings],
    ) -> ShardedResult:
        """Return the k best vectors for each row of Q, or for one query; the ids and scores of `Index.search`.

        A result is complete, or this raises MissingShardsError. allow_partial: leave out shards that do not return;
        `missing` of the result has their numbers. filter: ids, or a mask over all ids; functions cannot be sent to
        the shards. rerank: as of `Index.search`; the graph is read by this process, at the first search that needs
        it, and a filter must be one of ids. threads: has no effect; actors use theirs. params, on_invalid: as of
        `Index.search`.
        """
        check_choice("on_invalid", on_invalid, ("raise", "ignore"))
        if rerank is not None and as_mask(filter) is not None:
            raise InvalidInputError("an index in shards re-ranks with a filter of ids, not with a mask; pass the ids")
        given = to_numpy(Q)
        with self._slot(), self._using() as view:
            k = check_k(k, len(view.outline))
            matrix = as_matrix(given, view.outline.dim, "Q")
            params = as_search_params(params, settings)
            probe = params.limits(view.outline.method)
            queries, valid = check_queries(matrix, view.outline.metric, ignore=on_invalid == "ignore")
            if params.expand and view.outline.metric != "cosine":
                raise InvalidInputError(f"expand works under cosine, not under {view.outline.metric}")
            missing: list[int] | None = [] if allow_partial else None
            search = _Search(self._actors, view, filter, missing)
            used = queries if valid is None else queries[valid]
            if params.expand and len(used):
                first = search.run(used, check_k(params.expand, len(view.outline), "expand"), probe)
                used = expand_queries(search, used, *first, params.alpha)  # type: ignore[arg-type]
            diffusion = None
            if rerank is not None:
                snapshot = self._graph.snapshot(view.outline)
                diffusion = as_diffusion(rerank, snapshot, view.outline.metric)
            scores, ids = search.run(used, k if diffusion is None else diffusion.results(k), probe)
            if diffusion is not None:
                scores, ids = diffuse(snapshot, diffusion, scores, ids, k, filter)
            scores, ids = pad_results(scores, ids, len(queries), valid, k, worst_score(view.outline.metric))
            user_ids = view.to_user_ids(ids)
            single = np.ndim(given) == 1 and matrix.shape[0] == 1
            result = ShardedResult(scores[0], user_ids[0]) if single else ShardedResult(scores, user_ids)
            result.missing = tuple(sorted(set(missing or ())))
            return result

    def range_search(self, Q: Vectors, threshold: float, *, filter: Any = None) -> RangeResult:
        """Return all vectors with a score of at least `threshold` (under l2: a squared distance of at most that).

        Q, filter: as in `search`.
        """
        with self._slot(), self._using() as view:
            matrix = as_matrix(Q, view.outline.dim, "Q")
            threshold = check_float("threshold", threshold)
            queries, _ = check_queries(matrix, view.outline.metric, ignore=False, hint="correct it")
            limits, scores, ids = _Search(self._actors, view, filter, None).ranges(queries, threshold)
            return RangeResult(limits, scores, view.to_user_ids(ids))

    def reconstruct(self, ids: SomeIds) -> Floats:
        """Return the approximations (len(ids), dim) of the vectors that the index stores."""
        with self._slot(), self._using() as view:
            numbers = view.to_int_ids(ids)
            strings = view.outline.strings
            if strings is not None and len(numbers) != len(as_strings(ids) or []):
                raise InvalidInputError(f"some of the ids {ids!r} are not in the index")
            return _Search(self._actors, view, None, None).reconstruct(numbers, view.outline.dim)

    # --------------------------------------------------------------------------------------------------- lifetime

    def refresh(self) -> bool:
        """Move to the newest saved state; return whether there was a newer one. Searches continue meanwhile."""
        with self._refreshing:
            before = self._view
            if read_outline(self._path).state == before.outline.state:
                return False
            self._view = self._load()
            with self._user_lock:  # searches of the old state end
                self._user_lock.wait_for(lambda: not self._users.get(before.outline.state), 10 * self._seconds)
            self._actors.drop(before.outline.state)
            return True

    def close(self) -> None:
        """Stop the actors."""
        self._actors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _load(self) -> _View:
        """Let the actors open the newest state."""
        for attempt in range(10):
            outline = read_outline(self._path)
            shards = balance(outline.sizes, len(self._actors.shards))
            try:
                layout = self._actors.load(Layout(outline.state, tuple(map(tuple, shards))))
                return _View(outline, layout)
            except (ConflictError, FileNotFoundError, MissingShardsError):
                if attempt == 9:
                    raise
                time.sleep(1)  # a writer has replaced the state meanwhile, or an actor is being replaced
        raise AssertionError

    @contextmanager
    def _slot(self) -> Iterator[None]:
        """Wait for one of the places for searches."""
        if not self._slots.acquire(timeout=self._seconds):
            raise BusyError("too many searches are running; try again later, or add replicas")
        try:
            yield
        finally:
            self._slots.release()

    @contextmanager
    def _using(self) -> Iterator[_View]:
        """Return the current state, which is kept until the end of the block."""
        with self._user_lock:
            view = self._view
            self._users[view.outline.state] = self._users.get(view.outline.state, 0) + 1
        try:
            yield view
        finally:
            with self._user_lock:
                self._users[view.outline.state] -= 1
                if not self._users[view.outline.state]:
                    del self._users[view.outline.state]
                self._user_lock.notify_all()


@dataclass(frozen=True)
class _Search:
    """The calls of one search of a state. missing: gets the shards that did not return, if that is allowed."""

    actors: Replicas
    view: _View
    filter: Any
    missing: list[int] | None

    def run(self, Q: Floats, k: int, probe: Any) -> tuple[Floats, Ids]:
        """Return (scores, ids), (nq, at most k) each, best first."""
        outline = self.view.outline
        if not isinstance(probe, Probe):
            raise InvalidInputError("only methods with inverted lists are searched in shards")
        filters = self._filters()
        totals: Sequence[ListTotals] | None = None
        count = len(outline)
        if filters is not None:
            each = self._call("totals", lambda shard: (filters[shard],))
            totals = [sum(same[1:], same[0]) for same in zip(*each, strict=True)]
            count = sum(int(total.visible.sum()) + total.scanned for total in totals)
        refine = any(codec.refine for codec in outline.codecs)
        ranks = Ranks.total(codec.ranks for codec in outline.codecs) if refine else None
        limits = probe.limits(k, ranks=ranks, curves=[codec.curve for codec in outline.codecs if codec.curve])
        k = min(k, count)
        limits = limits._replace(candidates=max(k, limits.candidates))
        if not k or not len(Q):
            return np.empty((len(Q), 0), np.float32), np.empty((len(Q), 0), np.int64)
        found = []
        for start in range(0, len(Q), BATCH):
            batch = Q[start : start + BATCH]
            parts = self._call(
                "candidates",
                lambda s, q=batch: (q, limits, filters and filters[s], totals),
            )
            found.append(merge_candidates(parts, limits.candidates, k))
        width = max(ids.shape[1] for _, ids in found)
        scores, ids = (np.concatenate([part[n][:, :width] for part in found]) for n in (0, 1))
        return list_scores(scores, outline.metric), ids

    def ranges(self, Q: Floats, threshold: float) -> tuple[Array, Floats, Ids]:
        """Return (limits, scores, ids) of all results within the threshold."""
        filters, metric = self._filters(), self.view.outline.metric
        parts = self._call("ranges", lambda shard: (Q, threshold, metric, filters and filters[shard]))
        return merge_ranges(parts, l2=metric == "l2")

    def reconstruct(self, ids: Ids, dim: int) -> Floats:
        """Return the vectors with these integer ids, as they are kept."""
        X, here = np.empty((len(ids), dim), np.float32), np.zeros(len(ids), bool)
        for places, rows in self._call("reconstruct", lambda _: (ids, dim)):
            X[places], here[places] = rows, True
        if not here.all() and not self.missing:
            raise InvalidInputError(f"id {self.view.to_user_ids(ids[~here])[0]} is not in the index")
        X[~here] = 0
        return X

    def _call(self, method: str, arguments: Any) -> list[Any]:
        state = self.view.outline.state
        results = self.actors.call(method, lambda shard: (state, *arguments(shard)), missing=self.missing)
        found = [result for result in results if result is not None]
        if not found:
            raise MissingShardsError("no shard has returned a result", tuple(range(len(results))))
        return found

    def _filters(self) -> list[Array] | None:
        """Return the filter of each shard."""
        if self.filter is None:
            return None
        if callable(self.filter):
            raise InvalidInputError("a function as a filter cannot be sent to the shards; pass ids, or a mask")
        outline, shards = self.view.outline, self.view.layout.shards
        mask = as_mask(self.filter)
        if mask is None:
            wanted = self.view.to_int_ids(self.filter) if len(outline) else np.empty(0, np.int64)
            return [wanted] * len(shards)
        if mask.shape != (len(outline),):
            raise InvalidInputError(f"the mask has shape {mask.shape}, but there are {len(outline)} ids")
        ends = np.cumsum([0, *outline.counts])
        return [
            np.concatenate([np.empty(0, bool), *(mask[ends[n] : ends[n + 1]] for n in shard)]) for shard in shards
        ]

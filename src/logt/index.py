"""The index: a list of immutable segments that grows in batches and is searched as one."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np

from logt._threads import Progress, Workers, available_cores, split_range
from logt._types import Array, Floats, Ids
from logt._validation import NormalizedRows, as_matrix, check_choice, check_float, check_int, row_norms
from logt.engine import costs
from logt.engine.expansion import expand_queries
from logt.engine.method import Method
from logt.engine.params import SearchParams, SearchSettings
from logt.engine.prefixes import PrefixCache
from logt.engine.search import TILE, search
from logt.engine.segment import Segment
from logt.engine.snapshot import Snapshot, check_snapshot
from logt.engine.training import TrainedCodebook, codebook_for_batch
from logt.errors import CorruptIndexError, InvalidInputError, ReadOnlyError
from logt.methods import sketched
from logt.metrics import (
    Metric,
    check_queries,
    check_vectors,
    parse_metric,
    scale_queries,
    to_distances,
    worst_score,
)
from logt.results import RangeResult, Report, SearchResult, pad_results
from logt.storage import format as storage
from logt.storage.lock import OpenFolder, lock_folder


class Index:
    """Vectors of one dimension, searchable by cosine, inner product or squared L2 distance.

    No training step is needed: `add` turns each batch into new segments and changes nothing else. The vectors
    themselves are not kept.

    dim: dimension of the vectors. method: one of `logt.methods`, `sketched()` by default. metric: "cosine", "ip" or
    "l2" (squared distance). seed: the same vectors and seed give the same index. threads: default of all calls, all
    cores if None. segment_size: a larger batch is split into equal segments ("auto": a million vectors, or 131,072
    for the paper's methods); None keeps each batch in one segment, as the paper does.
    """

    def __init__(
        self,
        dim: int,
        *,
        method: Method | None = None,
        metric: str = "cosine",
        seed: int = 0,
        threads: int | None = None,
        segment_size: int | Literal["auto"] | None = "auto",
    ):
        self._metric = parse_metric(metric)
        self._dim = check_int("dim", dim)
        self._method = sketched() if method is None else method
        if not isinstance(self._method, Method):
            raise InvalidInputError(f"method must be a Method, such as logt.methods.lo_gt(), got {method!r}")
        self._seed = check_int("seed", seed, least=0)
        self._threads = None if threads is None else check_int("threads", threads)
        if isinstance(segment_size, str) and segment_size == "auto":
            segment_size = 1 << 20 if self._method.shares_codebook else 1 << 17
        self._segment_size = None if segment_size is None else check_int("segment_size", segment_size)
        self._snapshot = Snapshot()
        self._prefixes = PrefixCache()
        self._writing = threading.RLock()
        self._folder: OpenFolder | None = None

    @property
    def dim(self) -> int:
        return self._dim

    @property
    def method(self) -> Method:
        return self._method

    @property
    def metric(self) -> Metric:
        return self._metric

    def __len__(self) -> int:
        return len(self._snapshot)

    def __contains__(self, id: object) -> bool:
        return id in self._snapshot

    @property
    def ids(self) -> Array:
        """The ids of all vectors, in the order of a mask that filters them."""
        snapshot = self._snapshot
        return snapshot.to_user_ids(snapshot.ids)

    def __repr__(self) -> str:
        return f"Index(dim={self._dim}, vectors={len(self)}, metric={self._metric!r}, method={self._method!r})"

    # ------------------------------------------------------------------------------------------------ changes

    def add(self, X: Any, ids: Any = None, *, threads: int | None = None, progress: Progress | None = None) -> Array:
        """Add the rows of X and return their ids: those given, integers or strings, or the next free integers.

        All or nothing: invalid rows, existing ids or an interrupt leave the index unchanged. `progress` is called as
        progress(what, done, total).
        """
        rows = check_vectors(X, self._dim, self._metric)
        with self._change() as snapshot:
            snapshot, new_ids = snapshot.assign_ids(ids, len(rows))
            self._snapshot = self._add(snapshot, rows, new_ids, Workers(self._thread_count(threads), progress))
            return self._snapshot.to_user_ids(new_ids)

    def upsert(self, X: Any, ids: Any, *, threads: int | None = None, progress: Progress | None = None) -> Array:
        """Add the rows of X under the given ids, replacing vectors with the same ids; all or nothing."""
        rows = check_vectors(X, self._dim, self._metric)
        if ids is None:
            raise InvalidInputError("upsert needs ids; add assigns new ones")
        with self._change() as snapshot:
            snapshot, new_ids = snapshot.remove(snapshot.to_int_ids(ids)).assign_ids(ids, len(rows))
            self._snapshot = self._add(snapshot, rows, new_ids, Workers(self._thread_count(threads), progress))
            return self._snapshot.to_user_ids(new_ids)

    def remove(self, ids: Any) -> int:
        """Remove the vectors with these ids and return how many there were; unknown ids are ignored.

        Ids never shift and are not reused. `compact` frees the memory of removed vectors.
        """
        with self._change() as snapshot:
            self._snapshot = snapshot.remove(snapshot.to_int_ids(ids))
            return len(snapshot) - len(self._snapshot)

    def compact(self, vectors: Any = None, *, relearn: bool = False, threads: int | None = None) -> None:
        """Free the memory of removed vectors and merge small segments; the estimates of the others do not change.

        With `relearn`, everything is built again as one batch: from `vectors`, the originals in the order of
        `index.ids`, or without them from the output of `reconstruct`, which costs some accuracy.
        """
        with self._change() as snapshot:
            if vectors is None and not relearn:
                self._snapshot = snapshot.compact(self._method.probe, self._segment_size)
                return
            ids = snapshot.ids
            if vectors is None:
                rows: Any = snapshot.reconstruct_all(self._dim)
            else:
                rows = check_vectors(vectors, self._dim, self._metric)
                if len(rows) != len(ids):
                    raise InvalidInputError(
                        f"the index holds {len(ids)} vectors, but {len(rows)} were given; nothing was changed"
                    )
            empty = replace(snapshot, segments=())
            self._snapshot = self._add(empty, rows, ids, Workers(self._thread_count(threads)))

    def merge_from(self, other: Index) -> None:
        """Add everything that another index of the same kind holds; the other is unchanged."""
        if not isinstance(other, Index):
            raise InvalidInputError(f"only an Index can be merged, got {type(other).__name__}")
        for name in ("dim", "metric", "method"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise InvalidInputError(f"{name} differs: {mine} here, {theirs} there; nothing was merged")
        with self._change() as snapshot:
            self._snapshot = snapshot.merge(other._snapshot)

    # ------------------------------------------------------------------------------------------------- search

    def search(
        self,
        Q: Any,
        k: int = 10,
        *,
        params: SearchParams | None = None,
        filter: Any = None,
        threads: int | None = None,
        on_invalid: Literal["raise", "ignore"] = "raise",
        **settings: Unpack[SearchSettings],
    ) -> SearchResult:
        """Return the k best vectors for each row of Q, or for one query of shape (dim,).

        params: what the search reads, a `logt.SearchParams`; its fields can also be passed as keyword arguments, such
        as effort=0.5. filter: only these can be found: ids, a mask over `index.ids`, or a function from an array of
        ids to a mask. on_invalid: "ignore" returns ids of -1 for queries with NaN, infinity or, under cosine, norm 0,
        instead of raising.
        """
        check_choice("on_invalid", on_invalid, ("raise", "ignore"))
        k = check_int("k", k)
        matrix = as_matrix(Q, self._dim, "Q")
        params = _search_params(params, settings)
        reading = params.reading(self._method)
        workers = Workers(self._thread_count(threads))
        queries, valid = check_queries(matrix, self._metric, ignore=on_invalid == "ignore")
        if params.expand and self._metric != "cosine":
            raise InvalidInputError(f"expand works under cosine, not under {self._metric}")
        snapshot = self._snapshot
        views = snapshot.views(filter, l2=self._metric == "l2")
        correction = self._method.correct if params.correct else None
        all_valid = bool(valid.all())
        used = queries if all_valid else queries[valid]
        if params.expand and len(used):
            first = search(views, used, params.expand, reading, correction, workers, self._prefixes)
            used = expand_queries(snapshot, used, *first, params.alpha)
        scaled = scale_queries(used, self._metric)
        scores, ids = search(views, scaled, k, reading, correction, workers, self._prefixes)
        scores = to_distances(used, scores, self._metric)
        if not all_valid or ids.shape[1] < k:
            scores, ids = pad_results(scores, ids, valid, k, worst_score(self._metric))
        user_ids = snapshot.to_user_ids(ids)
        single = np.ndim(Q) == 1 and matrix.shape[0] == 1
        return SearchResult(scores[0], user_ids[0]) if single else SearchResult(scores, user_ids)

    def range_search(
        self, Q: Any, threshold: float, *, filter: Any = None, threads: int | None = None
    ) -> RangeResult:
        """Return all vectors with a score of at least `threshold` (under l2: a squared distance of at most that).

        Everything is scanned, and nothing is corrected.
        """
        matrix = as_matrix(Q, self._dim, "Q")
        threshold = check_float("threshold", threshold)
        queries, _ = check_queries(matrix, self._metric, ignore=False, hint="correct it")
        snapshot = self._snapshot
        views = snapshot.views(filter, l2=self._metric == "l2")
        total = max(1, sum(view.count for view in views))
        workers = Workers(self._thread_count(threads))
        limits = [0]
        parts = [(np.empty(0, np.float32), np.empty(0, np.int64))]
        for block in split_range(len(queries), TILE * workers.threads):
            scores, ids = search(views, scale_queries(queries[block], self._metric), total, None, None, workers)
            scores = to_distances(queries[block], scores, self._metric)
            inside = scores <= threshold if self._metric == "l2" else scores >= threshold
            limits += (limits[-1] + inside.sum(axis=1).cumsum()).tolist()
            parts.append((scores[inside], ids[inside]))
        all_scores, all_ids = (np.concatenate(part) for part in zip(*parts, strict=True))
        return RangeResult(np.array(limits), all_scores, snapshot.to_user_ids(all_ids))

    def reconstruct(self, ids: Any) -> Floats:
        """Return the approximations (len(ids), dim) of the vectors that the index stores."""
        snapshot = self._snapshot
        return snapshot.reconstruct(snapshot.to_int_ids(ids, strict=True), self._dim)

    def report(self) -> Report:
        """Return vectors, units, segments, the paper's complexity ratio rho, and true bytes, in total and by part."""
        snapshot, segments = self._snapshot, self._snapshot.segments
        about = costs.costs(segments, self._dim)
        parts = about.pop("bytes by part")
        parts["prefixes"] = self._prefixes.nbytes(segment.codes for segment in segments)
        parts["string ids"] = 0 if snapshot.strings is None else snapshot.strings.nbytes
        total = sum(parts.values())
        return Report(
            {
                "vectors": len(snapshot),
                "dim": self._dim,
                "metric": self._metric,
                **about,
                "bytes": total,
                "bytes per vector": total / len(snapshot) if len(snapshot) else 0.0,
                "bytes by part": parts,
                "method": repr(self._method),
            }
        )

    def complexity(self, params: SearchParams | None = None, **settings: Unpack[SearchSettings]) -> float:
        """Return the paper's complexity ratio ρ of a search: operations per query over dim·N."""
        reading = _search_params(params, settings).reading(self._method)
        return costs.complexity(self._snapshot.segments, self._dim, reading)

    # ------------------------------------------------------------------------------------------------ storage

    def save(self, path: str | os.PathLike[str] | None = None) -> None:
        """Write the index to a folder; without a path, to the one it was opened from in mode "a".

        The previous state stays valid until the new one is complete, and stays with its readers after that.
        """
        if path is None and self._folder is None:
            raise InvalidInputError("no path to save to: pass one, or open the index with mode='a'")
        with self._writing:
            folder = self._folder.folder if path is None and self._folder else Path(path or "").resolve()
            snapshot = self._snapshot
            stored = storage.StoredIndex(self._settings(), self._method, snapshot.segments, snapshot.strings)
            if self._folder and folder == self._folder.folder:
                self._refuse_read_only()
                self._folder = replace(self._folder, generation=storage.write(folder, stored))
            else:
                with lock_folder(folder):
                    storage.write(folder, stored)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], mode: Literal["r", "a"] = "r", *, threads: int | None = None
    ) -> Index:
        """Open an index that `save` wrote; every byte is checked, and the arrays are memory-mapped.

        Mode "r" keeps the state that it found (`refresh` moves on) and refuses changes; any number of processes may
        read. Mode "a" may change and save; it locks the folder until `close`.
        """
        check_choice("mode", mode, ("r", "a"))
        folder = Path(path).resolve()
        storage.generation(folder)  # do not leave a lock file where there is no index
        lock = lock_folder(folder) if mode == "a" else None
        try:
            stored, generation = storage.read(folder)
            index = cls._from_stored(stored, folder, threads)
        except BaseException:
            if lock:
                lock.close()
            raise
        index._folder = OpenFolder(folder, generation, lock)
        return index

    @property
    def generation(self) -> int | None:
        """The number of the saved state that was opened, refreshed to or saved last; None for a new index."""
        return self._folder.generation if self._folder else None

    def refresh(self) -> bool:
        """Move an index opened in mode "r" to the newest saved state; return whether there was a newer one."""
        if self._folder is None:
            raise InvalidInputError("only an index that was opened from a folder can be refreshed")
        with self._writing:
            folder = self._folder.folder
            if self._folder.writable or storage.generation(folder) == self._folder.generation:
                return False
            stored, generation = storage.read(folder)
            fresh = type(self)._from_stored(stored, folder, self._threads)
            if (fresh.dim, fresh.metric) != (self.dim, self.metric):
                raise InvalidInputError(f"{folder} now holds another kind of index; open it again")
            self._method, self._seed, self._segment_size = fresh._method, fresh._seed, fresh._segment_size
            self._snapshot = fresh._snapshot
            self._folder = replace(self._folder, generation=generation)
            return True

    def close(self) -> None:
        """Unlock the folder of an index opened in mode "a"; unsaved changes are lost."""
        if self._folder:
            self._folder.close()

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @classmethod
    def _from_stored(cls, stored: storage.StoredIndex, folder: Path, threads: int | None) -> Index:
        settings = dict(stored.settings)
        try:
            next_id = check_int("next_id", settings.pop("next_id"), least=0)
            snapshot = Snapshot(stored.segments, next_id, stored.strings)
            index = cls(**settings, method=stored.method)
            check_snapshot(
                snapshot,
                index.dim,
                needs_norms=index.metric != "cosine",
                needs_units=stored.method.correct is not None,
                needs_lists=stored.method.probe is not None,
            )
        except (TypeError, KeyError, InvalidInputError) as error:
            raise CorruptIndexError(f"{folder}: the settings cannot be used: {error}") from error
        index._threads = None if threads is None else check_int("threads", threads)
        index._snapshot = snapshot
        return index

    def _settings(self) -> dict[str, Any]:
        return {
            "dim": self._dim,
            "metric": self._metric,
            "seed": self._seed,
            "segment_size": self._segment_size,
            "next_id": self._snapshot.next_id,
        }

    # ------------------------------------------------------------------------------------------------ details

    @contextmanager
    def _change(self) -> Iterator[Snapshot]:
        """Allow one change at a time, from the snapshot it starts with."""
        self._refuse_read_only()
        with self._writing:
            yield self._snapshot

    def _refuse_read_only(self) -> None:
        if self._folder and not self._folder.writable:
            raise ReadOnlyError(f"{self._folder.folder} is open for reading; open it with mode='a' to change it")

    def _add(self, snapshot: Snapshot, rows: Any, ids: Ids, workers: Workers) -> Snapshot:
        by_id = None if (np.diff(ids) > 0).all() else np.argsort(ids)  # ties are broken by row
        first = len(snapshot.segments)
        trained = None
        if self._method.shares_codebook and len(rows):
            rng = np.random.default_rng([self._seed, first, 1])
            batch = NormalizedRows(rows, row_norms(rows))
            trained = codebook_for_batch(snapshot.segments, batch, self._method, rng, workers)
        new: list[Segment] = []
        for part in self._parts(len(rows)):
            chosen = part if by_id is None else by_id[part]
            rng = np.random.default_rng([self._seed, first + len(new)])
            new.append(self._build(rows[chosen], ids[chosen], rng, workers, trained))
        return snapshot.add_segments(new)

    def _parts(self, N: int) -> list[slice]:
        """Return the segments of one batch: none for no vectors, else equal parts of at most segment_size."""
        count = -(-N // (self._segment_size or max(N, 1)))
        cuts = np.linspace(0, N, count + 1).astype(int)
        return [slice(a, b) for a, b in pairwise(cuts)]

    def _build(
        self, rows: Any, ids: Ids, rng: np.random.Generator, workers: Workers, trained: TrainedCodebook | None
    ) -> Segment:
        norms = row_norms(rows)
        unit: Any = NormalizedRows(rows, norms)
        if trained is None:
            segment = self._method.build(unit[:], ids, rng, workers)
        else:
            segment = self._method.build(unit, ids, rng, workers, trained.codebook)
            segment = replace(segment, captured=trained.captured)
        return segment if self._metric == "cosine" else replace(segment, norms=norms.astype(np.float32))

    def _thread_count(self, threads: int | None) -> int:
        return check_int("threads", threads) if threads is not None else self._threads or available_cores()


def _search_params(params: SearchParams | None, settings: SearchSettings) -> SearchParams:
    """Return the parameters with some fields replaced."""
    known = [field.name for field in fields(SearchParams)]
    unknown = [name for name in settings if name not in known]
    if unknown:
        raise TypeError(f"search has no parameter {unknown[0]!r}; search parameters are {', '.join(known)}")
    if params is None:
        return SearchParams(**settings)
    if not isinstance(params, SearchParams):
        raise InvalidInputError(f"params must be a logt.SearchParams, got {params!r}")
    return replace(params, **settings) if settings else params

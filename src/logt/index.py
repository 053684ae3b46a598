"""The index: a list of immutable segments that grows by batches and searches as one."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from logt._threads import Progress, Workers, available, spans
from logt._types import Array, Floats, Ids
from logt._validation import UnitRows, checked_matrix, row_norms
from logt.engine.search import TILE, search
from logt.engine.segment import Method, Segment
from logt.engine.snapshot import State
from logt.engine.training import Learned, memory_for
from logt.errors import CorruptIndexError, InvalidInputError, ReadOnlyError, one_of, power, real, whole
from logt.methods import sketched
from logt.metrics import Metric, answered, asked, checked_queries, checked_vectors, named, worst
from logt.results import RangeResult, Report, SearchResult, padded
from logt.stages.decoder import Cascade
from logt.stages.inverted_lists import Open
from logt.storage import format as storage
from logt.storage.lock import Home, lock


class Index:
    """Vectors of one dimension, searchable by cosine, inner product or squared L2 distance.

    Nothing is trained beforehand: `add` turns each batch into new segments and touches nothing else. The vectors
    themselves are not kept. A batch above `segment_size` vectors (a million, or 131,072 for the paper's methods) is
    cut into equal segments; None keeps each batch whole, as the paper does.
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
        self._metric = named(metric)
        self._dim = whole("dim", dim)
        self._method = sketched() if method is None else method
        if not isinstance(self._method, Method):
            raise InvalidInputError(f"method must be a Method, such as logt.methods.lo_gt(), got {method!r}")
        self._seed = whole("seed", seed, least=0)
        self._threads = None if threads is None else whole("threads", threads)
        if isinstance(segment_size, str) and segment_size == "auto":
            segment_size = 1 << 20 if self._method.shares else 1 << 17
        self._segment_size = None if segment_size is None else whole("segment_size", segment_size)
        self._state = State()
        self._changing = threading.RLock()
        self._home: Home | None = None

    @classmethod
    def of_segments(
        cls,
        segments: Sequence[Segment],
        dim: int,
        *,
        method: Method,
        seed: int = 0,
        threads: int | None = None,
    ) -> Index:
        """An index by cosine over segments that were built apart from it, each `add` one segment."""
        index = cls(dim, method=method, seed=seed, threads=threads, segment_size=None)
        index._state = State().with_segments(list(segments))
        return index

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
        return len(self._state)

    def __contains__(self, id: object) -> bool:
        return self._state.holds(id)

    @property
    def ids(self) -> Array:
        """The ids of all vectors, in the order of a mask that filters them."""
        state = self._state
        return state.shown(state.ids)

    def __repr__(self) -> str:
        return f"Index(dim={self._dim}, vectors={len(self)}, metric={self._metric!r}, method={self._method!r})"

    def add(self, X: Any, ids: Any = None, *, threads: int | None = None, progress: Progress | None = None) -> Array:
        """Add the rows of X and return their ids: those given, whole numbers or text, or the next free numbers.

        All or nothing: bad rows, taken ids or an interrupt leave the index as it was. `progress` is called as
        progress(what, done, total).
        """
        rows = checked_vectors(X, self._dim, self._metric)
        with self._change() as state:
            named, numbers = state.numbered(ids, len(rows))
            self._state = self._added(named, rows, numbers, Workers(self._thread_count(threads), progress))
            return self._state.shown(numbers)

    def upsert(self, X: Any, ids: Any, *, threads: int | None = None, progress: Progress | None = None) -> Array:
        """Add the rows of X under the given ids, in place of the vectors that have them; all or nothing."""
        rows = checked_vectors(X, self._dim, self._metric)
        if ids is None:
            raise InvalidInputError("upsert needs ids; add gives new ones")
        with self._change() as state:
            left = state.without(state.known(ids))
            named, numbers = left.numbered(ids, len(rows))
            self._state = self._added(named, rows, numbers, Workers(self._thread_count(threads), progress))
            return self._state.shown(numbers)

    def remove(self, ids: Any) -> int:
        """Remove the vectors with these ids and say how many there were; other ids are passed over.

        Ids never shift and are not given again. The memory of removed vectors comes back with `compact`.
        """
        with self._change() as state:
            self._state = state.without(state.known(ids))
            return len(state) - len(self._state)

    def compact(self, vectors: Any = None, *, relearn: bool = False, threads: int | None = None) -> None:
        """Give back the memory of removed vectors, and join small segments; what is left is found as before.

        With `relearn`, everything is built anew as one batch: from `vectors`, the originals in the order of
        `index.ids`, or without them from what `reconstruct` gives, which costs some accuracy.
        """
        with self._change() as state:
            if vectors is None and not relearn:
                self._state = state.compacted(self._method.open, self._segment_size)
                return
            ids = state.ids
            if vectors is None:
                rows: Any = state.relearnable(self._dim)
            else:
                rows = checked_vectors(vectors, self._dim, self._metric)
                if len(rows) != len(ids):
                    raise InvalidInputError(
                        f"{len(ids)} vectors are held, {len(rows)} were given; nothing was changed"
                    )
            self._state = self._added(replace(state, segments=()), rows, ids, Workers(self._thread_count(threads)))

    def merge_from(self, other: Index) -> None:
        """Take in all that another index of the same kind holds; the other is unchanged."""
        if not isinstance(other, Index):
            raise InvalidInputError(f"only an Index can be merged, got {type(other).__name__}")
        for name in ("dim", "metric", "method"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise InvalidInputError(f"{name} differs: {mine} here, {theirs} there; nothing was merged")
        with self._change() as state:
            self._state = state.merged(other._state)

    def reconstruct(self, ids: Any) -> Floats:
        """The vectors that the index stands for, (len(ids), dim): what is left of those that were added."""
        state = self._state
        return state.reconstructed(state.known(ids, all_of_them=True), self._dim)

    def search(
        self,
        Q: Any,
        k: int,
        *,
        effort: float | None = None,
        units: int | None = None,
        p: float | None = None,
        R: int | None = None,
        correct: bool = True,
        expand: int = 0,
        alpha: float = 3.0,
        filter: Any = None,
        threads: int | None = None,
        on_invalid: Literal["raise", "ignore"] = "raise",
    ) -> SearchResult:
        """The k best vectors for each row of Q, or for one query of shape (dim,).

        `effort`, from 0 to 1, trades time for accuracy: with 1, everything is decoded. For experts: `units` is how
        many units are opened; for methods without sketches, p and R set the cascade (U⁰ with the part p of each
        vector's energy ranks all vectors, all of U the R best of them), and correct=False leaves out the
        method's correction.

        With `expand`, each query is searched a second time, with so many of its best results added to it, weighted
        by score^alpha (query expansion; under cosine).

        Only what `filter` lets through is found: ids, a mask over `index.ids`, or a function from an array of ids
        to a mask. A narrow filter loses nothing. on_invalid="ignore" answers queries with NaN, infinity or, under
        cosine, zero length by ids of -1, instead of raising.
        """
        one_of("on_invalid", on_invalid, ("raise", "ignore"))
        k = whole("k", k)
        matrix = checked_matrix(Q, self._dim, "Q")
        workers = Workers(self._thread_count(threads))
        queries, valid = checked_queries(matrix, self._metric, ignore=on_invalid == "ignore")
        read = self._read(effort, units, p, R)
        expand, alpha = whole("expand", expand, least=0), power("alpha", alpha)
        if expand and self._metric != "cosine":
            raise InvalidInputError(f"expand works under cosine, not under {self._metric}")
        state = self._state
        views = state.views(filter, l2=self._metric == "l2")
        correction = self._method.correct if correct else None
        every = bool(valid.all())
        used = queries if every else queries[valid]
        if expand and len(used):
            used = state.expanded(used, *search(views, used, expand, read, correction, workers), alpha)
        scores, ids = search(views, asked(used, self._metric), k, read, correction, workers)
        scores = answered(used, scores, self._metric)
        if not every or ids.shape[1] < k:
            scores, ids = padded(scores, ids, valid, k, worst(self._metric))
        single = np.ndim(Q) == 1 and matrix.shape[0] == 1
        shown = state.shown(ids)
        return SearchResult(scores[0], shown[0]) if single else SearchResult(scores, shown)

    def range_search(
        self, Q: Any, threshold: float, *, filter: Any = None, threads: int | None = None
    ) -> RangeResult:
        """All vectors whose score is at least `threshold` (under l2: whose squared distance is at most that).

        Everything is decoded in full, and nothing is corrected.
        """
        matrix = checked_matrix(Q, self._dim, "Q")
        threshold = real("threshold", threshold)
        queries, _ = checked_queries(matrix, self._metric, ignore=False, way_out="correct it")
        state = self._state
        views = state.views(filter, l2=self._metric == "l2")
        everything = max(1, sum(view.count for view in views))
        workers = Workers(self._thread_count(threads))
        limits = [0]
        parts = [(np.empty(0, np.float32), np.empty(0, np.int64))]
        for block in spans(len(queries), TILE * workers.threads):
            scores, ids = search(views, asked(queries[block], self._metric), everything, None, None, workers)
            scores = answered(queries[block], scores, self._metric)
            inside = scores <= threshold if self._metric == "l2" else scores >= threshold
            limits += (limits[-1] + inside.sum(axis=1).cumsum()).tolist()
            parts.append((scores[inside], ids[inside]))
        scores_of_all, ids_of_all = (np.concatenate(part) for part in zip(*parts, strict=True))
        return RangeResult(np.array(limits), scores_of_all, state.shown(ids_of_all))

    def report(self) -> Report:
        """vectors, units, segments, the paper's complexity ratio rho, and true bytes, in all and by part."""
        state = self._state
        about = {"vectors": len(state), "dim": self._dim, "metric": self._metric}
        return Report({**about, **state.costs(self._dim), "method": repr(self._method)})

    def complexity(
        self, *, effort: float | None = None, units: int | None = None, p: float | None = None, R: int | None = None
    ) -> float:
        """The paper's complexity ratio ρ of a search with these settings: operations per query over dim·N."""
        return self._state.complexity(self._dim, self._read(effort, units, p, R))

    def save(self, path: str | os.PathLike[str] | None = None) -> None:
        """Write the index to a folder; without a path, to the one it was opened from in mode "a".

        What stood there before stays whole until the new state is complete, and stays with its readers after.
        """
        if path is None and self._home is None:
            raise InvalidInputError("save where? pass a path, or open the index with mode='a'")
        with self._changing:
            folder = self._home.folder if path is None and self._home else Path(path or "").resolve()
            stored = storage.Stored(self._settings(), self._method, self._state.segments, self._state.names)
            if self._home and folder == self._home.folder:
                self._refuse_reading()
                self._home = replace(self._home, generation=storage.write(folder, stored))
            else:
                with lock(folder):
                    storage.write(folder, stored)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], mode: Literal["r", "a"] = "r", *, threads: int | None = None
    ) -> Index:
        """Read an index that `save` wrote, checking every byte; its arrays stay in the file and are mapped.

        Mode "r" keeps the state that it found (`refresh` moves on) and refuses changes; any number may read.
        Mode "a" may change and save; it holds the folder for itself until `close`.
        """
        one_of("mode", mode, ("r", "a"))
        folder = Path(path).resolve()
        storage.generation(folder)  # no lock is left where no index is
        held = lock(folder) if mode == "a" else None
        try:
            stored, generation = storage.read(folder)
            index = cls._restored(stored, folder, threads)
        except BaseException:
            if held:
                held.close()
            raise
        index._home = Home(folder, generation, held)
        return index

    @property
    def generation(self) -> int | None:
        """The number of the saved state that was opened, or refreshed to or saved since; None for a new index."""
        return self._home.generation if self._home else None

    def refresh(self) -> bool:
        """Move an index opened in mode "r" on to the newest saved state; say whether there was a newer one."""
        if self._home is None:
            raise InvalidInputError("only an index that was opened from a folder can be refreshed")
        with self._changing:
            if self._home.writing or storage.generation(self._home.folder) == self._home.generation:
                return False
            stored, generation = storage.read(self._home.folder)
            fresh = type(self)._restored(stored, self._home.folder, self._threads)
            if (fresh.dim, fresh.metric) != (self.dim, self.metric):
                raise InvalidInputError(f"{self._home.folder} now holds another kind of index; open it anew")
            self._method, self._seed, self._segment_size = fresh._method, fresh._seed, fresh._segment_size
            self._state = fresh._state
            self._home = replace(self._home, generation=generation)
            return True

    def close(self) -> None:
        """Give up the folder of an index opened in mode "a"; what was not saved is lost to it."""
        if self._home:
            self._home.close()

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @classmethod
    def _restored(cls, stored: storage.Stored, folder: Path, threads: int | None) -> Index:
        settings = dict(stored.settings)
        try:
            state = State(stored.segments, whole("next_id", settings.pop("next_id"), least=0), stored.names)
            index = cls(**settings, method=stored.method)
            state.check(
                index.dim,
                needs_norms=index.metric != "cosine",
                needs_units=stored.method.correct is not None,
                needs_sketches=stored.method.sketch is not None,
            )
        except (TypeError, KeyError, InvalidInputError) as error:
            raise CorruptIndexError(f"{folder}: the settings cannot be used: {error}") from error
        index._threads = None if threads is None else whole("threads", threads)
        index._state = state
        return index

    def _settings(self) -> dict[str, Any]:
        return {
            "dim": self._dim,
            "metric": self._metric,
            "seed": self._seed,
            "segment_size": self._segment_size,
            "next_id": self._state.next_id,
        }

    @contextmanager
    def _change(self) -> Iterator[State]:
        """One change at a time, from the state it starts with."""
        self._refuse_reading()
        with self._changing:
            yield self._state

    def _refuse_reading(self) -> None:
        if self._home and not self._home.writing:
            raise ReadOnlyError(f"{self._home.folder} is not open for writing; open it with mode='a' to change it")

    def _added(self, state: State, rows: Any, numbers: Ids, workers: Workers) -> State:
        by_id = None if (np.diff(numbers) > 0).all() else np.argsort(numbers)  # ties are ranked by row
        first = len(state.segments)
        learned = None
        if self._method.shares and len(rows):
            rng = np.random.default_rng([self._seed, first, 1])
            learned = memory_for(state.segments, UnitRows(rows, row_norms(rows)), self._method, rng, workers)
        new: list[Segment] = []
        for part in self._parts(len(rows)):
            chosen = part if by_id is None else by_id[part]
            rng = np.random.default_rng([self._seed, first + len(new)])
            new.append(self._build(rows[chosen], numbers[chosen], rng, workers, learned))
        return state.with_segments(new)

    def _thread_count(self, asked: int | None) -> int:
        return whole("threads", asked) if asked is not None else self._threads or available()

    def _read(self, effort: float | None, units: int | None, p: float | None, R: int | None) -> Cascade | Open | None:
        """How much of U a search reads: the method's own choice, with what the caller sets."""
        start = self._method.open
        if start is not None:
            if p is not None or R is not None:
                raise InvalidInputError("p and R set a cascade; this method opens units: set effort or units")
            read = start if effort is None else replace(start, effort=effort, units=None)
            return read if units is None else replace(read, units=units)
        if units is not None:
            raise InvalidInputError("units are opened by methods with sketches; set effort, or p and R")
        if effort is not None:
            p = max(Open(effort).effort, 1e-3) if p is None else p
        if p is None and R is None:
            return self._method.cascade
        cascade = self._method.cascade or Cascade()
        return replace(cascade, p=cascade.p if p is None else p, R=cascade.R if R is None else whole("R", R))

    def _parts(self, N: int) -> list[slice]:
        """The segments of one batch: none for no vectors, else equal parts of at most segment_size."""
        count = -(-N // (self._segment_size or max(N, 1)))
        cuts = np.linspace(0, N, count + 1).astype(int)
        return [slice(a, b) for a, b in pairwise(cuts)]

    def _build(
        self, rows: Any, ids: Ids, rng: np.random.Generator, workers: Workers, learned: Learned | None
    ) -> Segment:
        norms = row_norms(rows)
        unit: Any = UnitRows(rows, norms)
        if learned is None:
            segment = self._method.build(unit[:], ids, rng, workers)
        else:
            segment = replace(self._method.build(unit, ids, rng, workers, learned.memory), fit=learned.fit)
        return segment if self._metric == "cosine" else replace(segment, norms=norms.astype(np.float32))

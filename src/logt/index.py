"""The index: a list of immutable segments that grows by batches and searches as one."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from logt import storage
from logt._types import Array, Floats, Ids
from logt.decoder import Cascade
from logt.errors import CorruptIndexError, InvalidInputError, ReadOnlyError, one_of, real, whole
from logt.inputs import (
    LONGEST,
    checked_matrix,
    checked_rows,
    row_norms,
    unit_rows,
)
from logt.methods import cascaded, compact, lo_gt
from logt.results import RangeResult, Report, SearchResult
from logt.search import TILE, search
from logt.segment import Method, Segment
from logt.state import State
from logt.threads import Progress, Workers, available, spans

Metric = Literal["cosine", "ip", "l2"]

_METRIC_NAMES: dict[str, Metric] = {
    **dict.fromkeys(("cosine", "cos", "angular"), "cosine"),
    **dict.fromkeys(("ip", "inner_product", "dot"), "ip"),
    **dict.fromkeys(("l2", "euclidean", "sqeuclidean"), "l2"),
}


class Index:
    """Vectors of one dimension, searchable by cosine, inner product or squared L2 distance.

    Nothing needs training: `add` turns each batch into new segments and touches nothing else. The vectors
    themselves are not kept. A batch above `segment_size` vectors is cut into equal segments; None keeps each
    batch whole, as the paper does.
    """

    def __init__(
        self,
        dim: int,
        *,
        method: Method | None = None,
        metric: str = "cosine",
        seed: int = 0,
        threads: int | None = None,
        segment_size: int | None = 1 << 17,
    ):
        one_of("metric", metric, tuple(_METRIC_NAMES))
        self._dim = whole("dim", dim)
        self._method = cascaded(compact(lo_gt())) if method is None else method
        if not isinstance(self._method, Method):
            raise InvalidInputError(f"method must be a Method, such as logt.methods.lo_gt(), got {method!r}")
        self._metric: Metric = _METRIC_NAMES[metric]
        self._seed = whole("seed", seed, least=0)
        self._threads = None if threads is None else whole("threads", threads)
        self._segment_size = None if segment_size is None else whole("segment_size", segment_size)
        self._state = State()
        self._changing = threading.RLock()
        self._home: storage.Home | None = None

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
        rows = self._checked(X)
        with self._change() as state:
            named, numbers = state.numbered(ids, len(rows))
            self._state = self._added(named, rows, numbers, Workers(self._thread_count(threads), progress))
            return self._state.shown(numbers)

    def upsert(self, X: Any, ids: Any, *, threads: int | None = None, progress: Progress | None = None) -> Array:
        """Add the rows of X under the given ids, in place of the vectors that have them; all or nothing."""
        rows = self._checked(X)
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

    def compact(self) -> None:
        """Give back the memory of removed vectors; what is left is found exactly as before."""
        with self._change() as state:
            self._state = state.compacted()

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
        p: float | None = None,
        R: int | None = None,
        correct: bool = True,
        filter: Any = None,
        threads: int | None = None,
        on_invalid: Literal["raise", "ignore"] = "raise",
    ) -> SearchResult:
        """The k best vectors for each row of Q, or for one query of shape (dim,).

        Only what `filter` lets through is found: ids, a mask over `index.ids`, or a function from an array of ids
        to a mask. A narrow filter loses nothing: up to R vectors are all decoded in full.

        p and R set the cascade (the method's by default): U⁰ with the part p of each vector's energy ranks
        all vectors, all of U the R best of them; p=1 decodes everything. correct=False leaves out the
        method's correction. on_invalid="ignore" answers queries with NaN, infinity or, under cosine, zero
        length by ids of -1, instead of raising.
        """
        one_of("on_invalid", on_invalid, ("raise", "ignore"))
        k = whole("k", k)
        matrix = checked_matrix(Q, self._dim, "Q")
        workers = Workers(self._thread_count(threads))
        queries, valid = self._queries(matrix, ignore=on_invalid == "ignore")
        state = self._state
        views = state.views(filter, l2=self._metric == "l2")
        worst = np.float32(np.inf if self._metric == "l2" else -np.inf)
        scores = np.full((len(queries), k), worst, np.float32)
        ids = np.full((len(queries), k), -1, np.int64)
        if valid.any():
            used = queries if valid.all() else queries[valid]
            correction = self._method.correct if correct else None
            found = search(views, self._asked(used), k, self._cascade(p, R), correction, workers)
            width = found[1].shape[1]
            scores[valid, :width], ids[valid, :width] = self._answered(used, found[0]), found[1]
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
        queries, _ = self._queries(matrix, ignore=False, way_out="correct it")
        state = self._state
        views = state.views(filter, l2=self._metric == "l2")
        everything = max(1, sum(view.count for view in views))
        workers = Workers(self._thread_count(threads))
        limits = [0]
        parts = [(np.empty(0, np.float32), np.empty(0, np.int64))]
        for block in spans(len(queries), TILE * workers.threads):
            scores, ids = search(views, self._asked(queries[block]), everything, None, None, workers)
            scores = self._answered(queries[block], scores)
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
                with storage.lock(folder):
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
        held = storage.lock(folder) if mode == "a" else None
        try:
            stored, generation = storage.read(folder)
            index = cls._restored(stored, folder, threads)
        except BaseException:
            if held:
                held.close()
            raise
        index._home = storage.Home(folder, generation, held)
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
                index.dim, needs_norms=index.metric != "cosine", needs_units=stored.method.correct is not None
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

    def _checked(self, X: Any) -> Any:
        rows = checked_rows(checked_matrix(X, self._dim, "X"), "X", "nothing was added")
        if self._metric == "cosine":
            _refuse_zero(row_norms(rows), "X", "nothing was added; or use metric='ip' or 'l2'")
        return rows

    def _added(self, state: State, rows: Any, numbers: Ids, workers: Workers) -> State:
        by_id = None if (np.diff(numbers) > 0).all() else np.argsort(numbers)  # ties are ranked by row
        new: list[Segment] = []
        for part in self._parts(len(rows)):
            chosen = part if by_id is None else by_id[part]
            number = len(state.segments) + len(new)
            new.append(self._build(rows[chosen], numbers[chosen], number, workers))
        return state.with_segments(new)

    def _asked(self, Q: Floats) -> Floats:
        """Queries as segments are asked: doubled under l2, for 2·q·x − ‖x‖²."""
        return Q * np.float32(2) if self._metric == "l2" else Q

    def _answered(self, Q: Floats, scores: Floats) -> Floats:
        """Scores as users see them: ‖q − x‖² under l2, never below 0 though the estimate may be."""
        if self._metric != "l2":
            return scores
        own = np.square(Q, dtype=np.float64).sum(axis=1, keepdims=True)
        distances: Floats = np.maximum(own - scores, 0).astype(np.float32)
        return distances

    def _thread_count(self, asked: int | None) -> int:
        return whole("threads", asked) if asked is not None else self._threads or available()

    def _cascade(self, p: float | None, R: int | None) -> Cascade | None:
        if p is None and R is None:
            return self._method.cascade
        start = self._method.cascade or Cascade()
        return replace(start, p=start.p if p is None else p, R=start.R if R is None else whole("R", R))

    def _parts(self, N: int) -> list[slice]:
        """The segments of one batch: none for no vectors, else equal parts of at most segment_size."""
        count = -(-N // (self._segment_size or max(N, 1)))
        cuts = np.linspace(0, N, count + 1).astype(int)
        return [slice(a, b) for a, b in pairwise(cuts)]

    def _build(self, rows: Any, ids: Ids, number: int, workers: Workers) -> Segment:
        norms = row_norms(rows)
        segment = self._method.build(
            unit_rows(rows, norms), ids, np.random.default_rng([self._seed, number]), workers
        )
        return segment if self._metric == "cosine" else replace(segment, norms=norms.astype(np.float32))

    def _queries(
        self, matrix: Any, ignore: bool, way_out: str = "correct it, or pass on_invalid='ignore'"
    ) -> tuple[Floats, Any]:
        """(Q as float32, of unit length under cosine; which rows are valid)."""
        with np.errstate(over="ignore"):
            Q = np.array(matrix, np.float32)
        norms = row_norms(Q)
        valid = norms <= LONGEST  # neither NaN nor infinity is
        if not ignore and not valid.all():
            checked_rows(matrix, "Q", way_out)
        if self._metric == "cosine":
            if not ignore:
                _refuse_zero(norms, "Q", way_out)
            valid &= norms > 0
            Q[valid] = unit_rows(Q[valid], norms[valid])
        return Q, valid


def _refuse_zero(norms: Any, what: str, way_out: str) -> None:
    if (norms == 0).any():
        row = int(np.flatnonzero(norms == 0)[0])
        raise InvalidInputError(f"row {row} of {what} is all zeros and has no direction; {way_out}")

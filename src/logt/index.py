"""The index: a list of immutable segments that grows by batches and searches as one."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from logt import storage
from logt._types import Floats, Ids
from logt.decoder import Cascade
from logt.errors import CorruptIndexError, InvalidInputError, one_of
from logt.inputs import (
    LONGEST,
    checked_count,
    checked_ids,
    checked_matrix,
    checked_rows,
    row_norms,
    unit_rows,
)
from logt.methods import cascaded, compact, lo_gt
from logt.search import search
from logt.segment import Method, Segment
from logt.threads import Progress, Workers, available

Metric = Literal["cosine", "ip", "l2"]

_METRIC_NAMES: dict[str, Metric] = {
    **dict.fromkeys(("cosine", "cos", "angular"), "cosine"),
    **dict.fromkeys(("ip", "inner_product", "dot"), "ip"),
    **dict.fromkeys(("l2", "euclidean", "sqeuclidean"), "l2"),
}


class SearchResult(NamedTuple):
    """`scores, ids = index.search(...)`: (nq, k) each, best first; (k,) each for a single query.

    Scores are estimated cosines or inner products (larger is better), or squared L2 distances (smaller is
    better). Where there are fewer than k vectors, ids end in -1 and scores in -inf (+inf for distances).
    """

    scores: Floats
    ids: Ids

    @property
    def counts(self) -> Any:
        """How many results of each query are real."""
        return (self.ids >= 0).sum(axis=-1)


class Report(Mapping[str, Any]):
    """What an index holds and costs; prints as a table."""

    def __init__(self, values: Mapping[str, Any]):
        self._values = dict(values)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Report({self._values!r})"

    def __str__(self) -> str:
        width = max(map(len, self._values))
        return "\n".join(f"{name:<{width}}  {_shown(value)}" for name, value in self._values.items())


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
        self._dim = checked_count("dim", dim)
        self._method = cascaded(compact(lo_gt())) if method is None else method
        self._metric: Metric = _METRIC_NAMES[metric]
        self._seed = checked_count("seed", seed, least=0)
        self._threads = None if threads is None else checked_count("threads", threads)
        self._segment_size = None if segment_size is None else checked_count("segment_size", segment_size)
        self._segments: tuple[Segment, ...] = ()
        self._adding = threading.Lock()

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
        return sum(map(len, self._segments))

    def __repr__(self) -> str:
        return f"Index(dim={self._dim}, vectors={len(self)}, metric={self._metric!r}, method={self._method!r})"

    def add(self, X: Any, ids: Any = None, *, threads: int | None = None, progress: Progress | None = None) -> Ids:
        """Add the rows of X and return their ids: those given, or the next free numbers.

        All or nothing: bad rows, taken ids or an interrupt leave the index as it was. `progress` is called as
        progress(what, done, total).
        """
        rows = checked_rows(checked_matrix(X, self._dim, "X"), "X", "nothing was added")
        workers = Workers(self._thread_count(threads), progress)
        with self._adding:
            present = [segment.ids for segment in self._segments]
            numbers = checked_ids(ids, len(rows), present)
            if self._metric == "cosine":
                _refuse_zero(row_norms(rows), "X", "nothing was added; or use metric='ip' or 'l2'")
            by_id = None if (np.diff(numbers) > 0).all() else np.argsort(numbers)  # ties are ranked by row
            new: list[Segment] = []
            for part in self._parts(len(rows)):
                chosen = part if by_id is None else by_id[part]
                number = len(self._segments) + len(new)
                new.append(self._build(rows[chosen], numbers[chosen], number, workers))
            self._segments += tuple(new)
        return numbers

    def search(
        self,
        Q: Any,
        k: int,
        *,
        p: float | None = None,
        R: int | None = None,
        correct: bool = True,
        threads: int | None = None,
        on_invalid: Literal["raise", "ignore"] = "raise",
    ) -> SearchResult:
        """The k best vectors for each row of Q, or for one query of shape (dim,).

        p and R set the cascade (the method's by default): U⁰ with the part p of each vector's energy ranks
        all vectors, all of U the R best of them; p=1 decodes everything. correct=False leaves out the
        method's correction. on_invalid="ignore" answers queries with NaN, infinity or, under cosine, zero
        length by ids of -1, instead of raising.
        """
        one_of("on_invalid", on_invalid, ("raise", "ignore"))
        k = checked_count("k", k)
        matrix = checked_matrix(Q, self._dim, "Q")
        workers = Workers(self._thread_count(threads))
        queries, valid = self._queries(matrix, ignore=on_invalid == "ignore")
        segments = self._segments
        worst = np.float32(np.inf if self._metric == "l2" else -np.inf)
        scores = np.full((len(queries), k), worst, np.float32)
        ids = np.full((len(queries), k), -1, np.int64)
        if segments and valid.any():
            used = queries if valid.all() else queries[valid]
            doubled = used * np.float32(2) if self._metric == "l2" else used
            correction = self._method.correct if correct else None
            found = search(segments, doubled, k, self._cascade(p, R), correction, workers)
            width = found[1].shape[1]
            ids[valid, :width] = found[1]
            scores[valid, :width] = found[0] if self._metric != "l2" else _distances(used, found[0])
        single = np.ndim(Q) == 1 and matrix.shape[0] == 1
        return SearchResult(scores[0], ids[0]) if single else SearchResult(scores, ids)

    def report(self) -> Report:
        """vectors, units, segments, the paper's complexity ratio rho, and true bytes, in all and by part."""
        segments = self._segments
        N, d = len(self), self._dim
        memories = {id(segment.memory): segment.memory for segment in segments}.values()
        M = sum(memory.shape[0] for memory in memories)
        nonzeros = sum(segment.nonzeros for segment in segments)
        by_part = {"memory vectors": sum(a.nbytes for memory in memories for a in memory.arrays.values())}
        for segment in segments:
            for part, size in segment.bytes_by_part().items():
                by_part[part] = by_part.get(part, 0) + size
        total = sum(by_part.values())
        return Report(
            {
                "vectors": N,
                "dim": d,
                "metric": self._metric,
                "units": M,
                "segments": len(segments),
                "entries per vector": nonzeros / N if N else 0.0,
                "rho": (M * d + nonzeros) / (d * N) if N else 0.0,
                "bytes": total,
                "bytes per vector": total / N if N else 0.0,
                "bytes by part": by_part,
                "method": repr(self._method),
            }
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index to a folder. What stood there before stays whole until the new state is complete."""
        settings = {
            "dim": self._dim,
            "metric": self._metric,
            "seed": self._seed,
            "segment_size": self._segment_size,
        }
        storage.write(Path(path), storage.Stored(settings, self._method, self._segments))

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, threads: int | None = None) -> Index:
        """Read an index that `save` wrote, checking every byte."""
        stored = storage.read(Path(path))
        try:
            index = cls(**stored.settings, method=stored.method, threads=threads)
        except (TypeError, InvalidInputError) as error:
            raise CorruptIndexError(f"{path}: the settings cannot be used: {error}") from error
        if any(segment.memory.shape[1] != index.dim for segment in stored.segments):
            raise CorruptIndexError(f"{path}: a segment is not of dimension {index.dim}")
        index._segments = stored.segments
        return index

    def _thread_count(self, asked: int | None) -> int:
        return checked_count("threads", asked) if asked is not None else self._threads or available()

    def _cascade(self, p: float | None, R: int | None) -> Cascade | None:
        if p is None and R is None:
            return self._method.cascade
        start = self._method.cascade or Cascade()
        return replace(start, p=start.p if p is None else p, R=start.R if R is None else checked_count("R", R))

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
        if self._metric == "cosine":
            return segment
        scale = (segment.codes.scale * norms).astype(np.float32)
        bias = (-np.square(norms)).astype(np.float32) if self._metric == "l2" else None
        return replace(segment, codes=replace(segment.codes, scale=scale), bias=bias)

    def _queries(self, matrix: Any, ignore: bool) -> tuple[Floats, Any]:
        """(Q as float32, of unit length under cosine; which rows are valid)."""
        way_out = "correct it, or pass on_invalid='ignore'"
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


def _distances(Q: Floats, scores: Floats) -> Floats:
    """‖q − x‖² from 2·q·x − ‖x‖², never below 0 though the estimate may be."""
    own = np.square(Q, dtype=np.float64).sum(axis=1, keepdims=True)
    distances: Floats = np.maximum(own - scores, 0).astype(np.float32)
    return distances


def _refuse_zero(norms: Any, what: str, way_out: str) -> None:
    if (norms == 0).any():
        row = int(np.flatnonzero(norms == 0)[0])
        raise InvalidInputError(f"row {row} of {what} is all zeros and has no direction; {way_out}")


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_shown(v)}" for name, v in value.items() if v)
    if isinstance(value, float):
        return f"{value:,.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)

"""What bench.py measures on: vectors, queries, vectors held out as queries, and their exact neighbors."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from logt.datasets import Benchmark
from logt.datasets.benchmark import NEIGHBORS_PROTOCOL
from logt.evaluation import GroundTruth, evaluate

HELD_OUT = 200

_BLOCK = 20_000  # vectors that are compared at a time


@dataclass(frozen=True)
class Queries:
    """Queries, and the score of the k-th exact neighbor of each of them."""

    Q: np.ndarray
    kth: np.ndarray


@dataclass(frozen=True)
class Task:
    """Vectors to index and queries to search them with.

    queries: those of the data, if it has any. held: vectors of the data that are not indexed. truths: relevant rows
    of the queries by protocol, empty if the data has none. k: results per search. file: what X is mapped from.
    """

    name: str
    X: np.ndarray
    metric: str
    k: int
    queries: Queries
    held: Queries
    truths: dict[str, GroundTruth] = field(default_factory=dict)
    file: Path | None = None

    def recall(self, ids: np.ndarray, queries: Queries) -> float:
        """Return the fraction of results that are among the k nearest; vectors at the same distance count alike."""
        found = 0
        for q, row, kth in zip(queries.Q, ids, queries.kth, strict=True):
            rows = np.unique(row[row >= 0][: self.k])
            x = self.X[rows].astype(np.float64)
            found += int((exact_scores(q[None], x, self.metric)[0] >= kth).sum())
        return found / (self.k * len(ids))

    def sets(self) -> dict[str, Queries]:
        """Return the sets of queries that there are, by name."""
        return {name: of for name, of in (("queries", self.queries), ("held", self.held)) if len(of.Q)}

    def mean_ap(self, ids: np.ndarray, protocol: str) -> float:
        return evaluate(ids, self.truths[protocol]).mean_ap

    def timed_queries(self) -> np.ndarray:
        """Return queries of both kinds in random order, to measure times with."""
        Q = np.concatenate([self.queries.Q, self.held.Q])
        return np.ascontiguousarray(Q[np.random.default_rng(1).permutation(len(Q))])

    def fingerprint(self) -> str:
        digest = hashlib.blake2b(f"{self.X.shape} {self.metric} {self.k}".encode(), digest_size=16)
        for matrix in (self.X, self.queries.Q, self.held.Q):
            digest.update(np.ascontiguousarray(matrix).data)
        return digest.hexdigest()


def make_task(data: Benchmark, *, k: int = 10, rows: int | None = None, queries: int = 1000) -> Task:
    """Return a task on the first `rows` vectors and `queries` queries of the data; 200 vectors are held out."""
    X, Q = data.X[:rows], np.ascontiguousarray(data.Q[:queries], np.float32)
    truths = {name: _cut(truth, len(X), len(Q)) for name, truth in data.truths.items() if name != NEIGHBORS_PROTOCOL}
    free = np.ones(len(X), bool)
    for truth in truths.values():
        free[np.concatenate([*truth.positives, *truth.junk]).astype(np.int64)] = False
    chosen = np.random.default_rng(5).permutation(np.flatnonzero(free))[: min(HELD_OUT, len(X) // 10)]
    kept = np.ones(len(X), bool)
    kept[chosen] = False
    held, X = np.ascontiguousarray(X[~kept], np.float32), np.ascontiguousarray(X[kept], np.float32)
    return Task(
        name=f"{data.name.split(',')[0]}, {len(X):,} × {X.shape[1]}",
        X=X,
        metric=data.metric,
        k=k,
        queries=with_neighbors(Q, X, data.metric, k),
        held=with_neighbors(held, X, data.metric, k),
        truths={name: _renumber(truth, np.cumsum(kept) - 1) for name, truth in truths.items()},
    )


def save_task(task: Task, folder: Path) -> None:
    """Write what a process that builds and searches needs."""
    if task.file:
        (folder / "vectors.npy").symlink_to(task.file.resolve())
    else:
        np.save(folder / "vectors.npy", task.X)
    for name, queries in task.sets().items():
        np.save(folder / f"{name}.npy", queries.Q)
    np.save(folder / "timed.npy", task.timed_queries())


def exact_scores(Q: np.ndarray, X: np.ndarray, metric: str) -> np.ndarray:
    """Return the scores (nq, N): products, or negative squared distances less those of the origin under l2."""
    products = Q.astype(X.dtype, copy=False) @ X.T
    return 2 * products - np.square(X).sum(axis=1) if metric == "l2" else products


def with_neighbors(Q: np.ndarray, X: np.ndarray, metric: str, k: int) -> Queries:
    """Return the queries with the score of their k-th neighbor, less a tolerance for rounding."""
    _, ids = nearest(Q, X, metric, 2 * k)
    kth = np.empty(len(Q))
    for q in range(len(Q)):
        x = X[ids[q]].astype(np.float64)
        precise = np.sort(exact_scores(Q[q : q + 1], x, metric)[0])[::-1]
        kth[q] = precise[min(k, len(precise)) - 1] - 1e-10 * max(1.0, float(np.abs(precise).max(initial=0)))
    return Queries(Q, kth)


def nearest(Q: np.ndarray, X: np.ndarray, metric: str, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (scores, rows) of the k best vectors, best first; X is read in blocks and may be a mapped file."""
    best, rows = np.empty((len(Q), 0), np.float32), np.empty((len(Q), 0), np.int64)
    for first in range(0, len(X), _BLOCK):
        scores = exact_scores(Q, np.asarray(X[first : first + _BLOCK], np.float32), metric)
        top = np.argpartition(-scores, min(k, scores.shape[1] - 1), axis=1)[:, :k]
        best = np.concatenate([best, np.take_along_axis(scores, top, axis=1)], axis=1)
        rows = np.concatenate([rows, top + first], axis=1)
        order = np.argsort(-best, axis=1, kind="stable")[:, :k]
        best, rows = np.take_along_axis(best, order, axis=1), np.take_along_axis(rows, order, axis=1)
    return best, rows


def _cut(truth: GroundTruth, rows: int, queries: int) -> GroundTruth:
    """Return the ground truth of the first queries in the first rows."""
    lists = ([part[part < rows] for part in kind[:queries]] for kind in (truth.positives, truth.junk))
    return GroundTruth.from_lists(*lists)


def _renumber(truth: GroundTruth, position: np.ndarray) -> GroundTruth:
    """Return the ground truth after rows were taken out; position: the new number of each row."""
    lists = ([position[part] for part in kind] for kind in (truth.positives, truth.junk))
    return GroundTruth.from_lists(*lists)

"""Estimators for scikit-learn: neighbors graphs, nearest neighbors and a classifier, all over an `Index`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from logt._internal.extras import needs_extra
from logt._internal.threads import split_range
from logt._internal.types import Array, Ids
from logt._internal.validation import check_choice, check_float, check_int
from logt.errors import InvalidInputError
from logt.index import Index
from logt.methods import sketched

with needs_extra("sklearn", "logt.sklearn needs scikit-learn"):
    from scipy.sparse import csr_matrix
    from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data

__all__ = ["LogtClassifier", "LogtNeighbors", "LogtTransformer"]

Distances = NDArray[np.float64]
Mode = Literal["connectivity", "distance"]

_METRICS = ("euclidean", "sqeuclidean", "cosine")
_BLOCK = 1 << 22  # numbers that are compared at once
_SAMPLE = 256  # training vectors that the error of the estimates is measured on


@dataclass(eq=False, repr=False)
class _IndexEstimator(BaseEstimator):  # type: ignore[misc]
    """What the estimators share: training vectors in an index, and neighbors with their distances.

    Results are compared as squared Euclidean distances or as 1 - cosine, here called gaps.
    """

    n_neighbors: int = 5
    _: KW_ONLY
    metric: str = "euclidean"
    bits: int | None = None
    effort: float | None = None
    candidates: int = 4
    random_state: Any = 0
    n_jobs: int | None = None

    def _fit_index(self, X: Array) -> None:
        check_choice("metric", self.metric, _METRICS)
        check_int("n_neighbors", self.n_neighbors)
        exact = check_int("candidates", self.candidates, least=0) > 0
        metric = "cosine" if self.metric == "cosine" else "l2"
        seed = int(check_random_state(self.random_state).randint(1 << 31))
        self.index_: Index = Index(X.shape[1], method=sketched(bits=self.bits), metric=metric, seed=seed)
        self.index_.add(X, threads=self._threads())
        self.n_samples_fit_: int = len(X)
        self._fit_X = X if exact else None

    def _threads(self) -> int | None:
        return None if self.n_jobs is None or self.n_jobs < 0 else check_int("n_jobs", self.n_jobs)

    def _queries(self, X: Any) -> Array:
        check_is_fitted(self)
        if X is not None:
            X = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        elif self._fit_X is not None:
            X = self._fit_X
        else:
            X = self.index_.reconstruct(np.arange(self.n_samples_fit_))
        queries: Array = X
        return queries

    def _nearest(self, X: Any, n_neighbors: int | None) -> tuple[Distances, Ids]:
        """Return (distances, rows) of the neighbors of X, or of the training vectors without themselves if None."""
        queries = self._queries(X)
        k = check_int("n_neighbors", self.n_neighbors if n_neighbors is None else n_neighbors)
        own = int(X is None)
        if k + own > self.n_samples_fit_:
            raise InvalidInputError(
                f"Expected n_neighbors {'<' if own else '<='} n_samples_fit, "
                f"but n_neighbors = {k}, n_samples_fit = {self.n_samples_fit_}"
            )
        distances, rows = self._search(queries, k + own)
        if own:
            others = rows != np.arange(len(rows))[:, None]
            others[others.all(axis=1), -1] = False  # equal vectors have filled the list
            distances, rows = distances[others].reshape(-1, k), rows[others].reshape(-1, k)
        return distances, rows

    def _search(self, Q: Array, k: int) -> tuple[Distances, Ids]:
        wanted = min(self.n_samples_fit_, k * max(1, self.candidates))
        scores, rows = self.index_.search(Q, wanted, effort=self.effort, threads=self._threads())
        if self._fit_X is None:
            return self._to_distances(self._to_gaps(scores[:, :k])), rows[:, :k]
        gaps = self._exact_gaps(Q, np.repeat(np.arange(len(Q)), wanted), rows.ravel()).reshape(rows.shape)
        best = np.lexsort((rows, gaps), axis=-1)[:, :k]
        return self._to_distances(np.take_along_axis(gaps, best, axis=1)), np.take_along_axis(rows, best, axis=1)

    def _exact_gaps(self, Q: Array, at: Ids, rows: Ids) -> Distances:
        """Return the gaps between Q[at[i]] and the training vector rows[i], for each i."""
        assert self._fit_X is not None
        gaps = np.empty(len(rows))
        for block in split_range(len(rows), max(1, _BLOCK // Q.shape[1])):
            x, y = np.asarray(Q[at[block]], np.float64), np.asarray(self._fit_X[rows[block]], np.float64)
            if self.metric == "cosine":  # half the square is 1 - cos, and exactly 0 for equal vectors
                x, y = (v / (np.sqrt(2) * np.linalg.norm(v, axis=1, keepdims=True)) for v in (x, y))
            gaps[block] = np.square(x - y).sum(axis=1)
        return gaps

    def _to_gaps(self, scores: Array) -> Distances:
        values = np.asarray(scores, np.float64)
        return np.maximum(1 - values if self.metric == "cosine" else values, 0)

    def _to_distances(self, gaps: Distances) -> Distances:
        return np.sqrt(gaps) if self.metric == "euclidean" else gaps

    def _graph(self, distances: Distances, rows: Ids, counts: Ids, mode: Mode) -> Any:
        """Return neighbors as a CSR matrix of distances, or of ones. counts: neighbors of each query."""
        check_choice("mode", mode, ("connectivity", "distance"))
        data = distances if mode == "distance" else np.ones(len(rows))
        shape = len(counts), self.n_samples_fit_
        return csr_matrix((data, rows, np.concatenate([[0], np.cumsum(counts)])), shape=shape)

    def _nearest_graph(self, distances: Distances, rows: Ids, mode: Mode) -> Any:
        return self._graph(distances.ravel(), rows.ravel(), np.full(len(rows), rows.shape[1]), mode)


@dataclass(eq=False, repr=False)
class LogtNeighbors(_IndexEstimator):
    """Nearest neighbors with the methods of scikit-learn's `NearestNeighbors`.

    n_neighbors: the default of `kneighbors`.
    radius: the default of `radius_neighbors`.
    metric: "euclidean", "sqeuclidean" or "cosine".
    bits: per dimension, see `logt.methods.sketched`.
    effort: from 0 (fastest) to 1 (everything is scanned); None is the default of the method.
    candidates: for each neighbor, compare this many vectors exactly. The estimator keeps a reference to the training
    vectors for it. 0 keeps none and returns the estimates of the index.
    random_state: seed of the index.
    n_jobs: the number of threads; all cores if None or -1.
    """

    _: KW_ONLY
    radius: float = 1.0

    def fit(self, X: Any, y: Any = None) -> Self:
        """Build the index of the vectors X, (n_samples, n_features); y is ignored."""
        self._fit_index(validate_data(self, X, dtype=(np.float64, np.float32)))
        return self

    def kneighbors(self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True) -> Any:
        """Return (distances, rows), or the rows alone without `return_distance`.

        X: queries; None searches with the training vectors, which are not their own neighbors. n_neighbors: that of
        the estimator if None.
        """
        distances, rows = self._nearest(X, n_neighbors)
        return (distances, rows) if return_distance else rows

    def kneighbors_graph(self, X: Any = None, n_neighbors: int | None = None, mode: Mode = "connectivity") -> Any:
        """Return the result of `kneighbors` as a CSR matrix.

        X, n_neighbors: as in `kneighbors`. mode: "connectivity" has ones, "distance" the distances.
        """
        return self._nearest_graph(*self._nearest(X, n_neighbors), mode)

    def radius_neighbors(
        self, X: Any = None, radius: float | None = None, return_distance: bool = True, sort_results: bool = False
    ) -> Any:
        """Return (distances, rows) of all vectors within a distance, one array per query.

        X: as in `kneighbors`. radius: that of the estimator if None. return_distance: False returns the rows alone.
        sort_results: order by distance; otherwise by row.
        """
        distances, rows, counts = self._within(X, radius, sort_results)
        found = _split(rows, counts)
        return (_split(distances, counts), found) if return_distance else found

    def radius_neighbors_graph(
        self, X: Any = None, radius: float | None = None, mode: Mode = "connectivity", sort_results: bool = False
    ) -> Any:
        """Return the result of `radius_neighbors` as a CSR matrix.

        X, radius, sort_results: as in `radius_neighbors`. mode: "connectivity" has ones, "distance" the distances.
        """
        return self._graph(*self._within(X, radius, sort_results), mode)

    def _within(self, X: Any, radius: float | None, sort: bool) -> tuple[Distances, Ids, Ids]:
        """Return the distances and rows of all queries, one after the other, and how many each query has."""
        queries = self._queries(X)
        limit = check_float("radius", self.radius if radius is None else radius)
        largest = max(limit, 0.0) ** 2 if self.metric == "euclidean" else limit
        largest += self._estimation_error()
        threshold = 1 - largest if self.metric == "cosine" else largest
        limits, scores, rows = self.index_.range_search(queries, threshold, threads=self._threads())
        at = np.repeat(np.arange(len(queries)), np.diff(limits))
        gaps = self._to_gaps(scores) if self._fit_X is None else self._exact_gaps(queries, at, rows)
        distances = self._to_distances(gaps)
        kept = distances <= limit
        if X is None:
            kept &= rows != at
        distances, rows, at = distances[kept], rows[kept], at[kept]
        order = np.lexsort((rows, distances, at) if sort else (rows, at))
        return distances[order], rows[order], np.bincount(at, minlength=len(queries))

    def _estimation_error(self) -> float:
        """Return twice the largest error of the scores of the neighbors of some training vectors."""
        if self._fit_X is None:
            return 0.0
        sample = self._fit_X[:: -(-self.n_samples_fit_ // _SAMPLE)]
        k = min(self.n_samples_fit_, 20)
        scores, rows = self.index_.search(sample, k, effort=1.0, threads=self._threads())
        exact = self._exact_gaps(sample, np.repeat(np.arange(len(sample)), k), rows.ravel())
        return 2 * float(np.abs(self._to_gaps(scores).ravel() - exact).max())


def _split(values: Array, counts: Ids) -> Array:
    parts = np.empty(len(counts), object)
    parts[:] = np.split(values, np.cumsum(counts)[:-1])
    return parts


@dataclass(eq=False, repr=False)
class LogtTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _IndexEstimator):  # type: ignore[misc]
    """Transform vectors into the sparse graph of their nearest neighbors, as `KNeighborsTransformer` does.

    n_neighbors: the number of neighbors.
    mode: "distance" or "connectivity". With "distance", each row has n_neighbors + 1 entries, because a training
    vector is its own first neighbor.
    metric, bits, effort, candidates, random_state, n_jobs: as in `LogtNeighbors`.
    """

    _: KW_ONLY
    mode: Mode = "distance"

    def fit(self, X: Any, y: Any = None) -> Self:
        """Build the index of the vectors X, (n_samples, n_features); y is ignored."""
        check_choice("mode", self.mode, ("connectivity", "distance"))
        self._fit_index(validate_data(self, X, dtype=(np.float64, np.float32)))
        self._n_features_out = self.n_samples_fit_
        return self

    def transform(self, X: Any) -> Any:
        """Return the neighbors of X as a CSR matrix (n_queries, n_samples_fit)."""
        return self._nearest_graph(*self._nearest(X, self.n_neighbors + (self.mode == "distance")), self.mode)


@dataclass(eq=False, repr=False)
class LogtClassifier(ClassifierMixin, _IndexEstimator):  # type: ignore[misc]
    """Classify by a vote of the nearest training vectors, as `KNeighborsClassifier` does.

    n_neighbors: the number of votes.
    weights: "uniform", or "distance" for votes of weight 1 / distance.
    metric, bits, effort, candidates, random_state, n_jobs: as in `LogtNeighbors`.
    """

    _: KW_ONLY
    weights: Literal["uniform", "distance"] = "uniform"

    def fit(self, X: Any, y: Any) -> Self:
        """Build the index of the vectors X, (n_samples, n_features), with the classes y, (n_samples,)."""
        check_choice("weights", self.weights, ("uniform", "distance"))
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32))
        check_classification_targets(y)
        self._fit_index(X)
        self.classes_: Array
        self.classes_, self._y = np.unique(y, return_inverse=True)
        return self

    def predict_proba(self, X: Any) -> Distances:
        """Return the share of the votes for each class, (n_queries, n_classes), for the queries X."""
        distances, rows = self._nearest(X, None)
        votes = np.ones(rows.shape)
        if self.weights == "distance":
            equal = distances == 0
            votes = np.where(equal.any(axis=1, keepdims=True), equal, 1 / np.where(equal, 1, distances))
        shares = np.zeros((len(rows), len(self.classes_)))
        np.add.at(shares, (np.arange(len(rows))[:, None], self._y[rows]), votes)
        shares /= shares.sum(axis=1, keepdims=True)
        return shares

    def predict(self, X: Any) -> Array:
        """Return the class with most votes for each of the queries X."""
        best = self.predict_proba(X).argmax(axis=1)
        classes: Array = self.classes_[best]
        return classes

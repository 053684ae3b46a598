"""Estimators for scikit-learn: neighbors graphs, nearest neighbors and a classifier, all over an `Index`."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from logt._internal.threads import split_range
from logt._internal.types import Array, Ids
from logt._internal.validation import check_choice, check_float, check_int
from logt.errors import InvalidInputError, MissingExtraError
from logt.index import Index
from logt.methods import sketched

try:
    from scipy.sparse import csr_matrix
    from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise MissingExtraError(
        f"logt.sklearn needs scikit-learn ({error}): pip install 'logt-search[sklearn]'"
    ) from error

__all__ = ["LogtClassifier", "LogtNeighbors", "LogtTransformer"]

Distances = NDArray[np.float64]
Mode = Literal["connectivity", "distance"]

_METRICS = ("euclidean", "sqeuclidean", "cosine")
_BLOCK = 1 << 22  # numbers that are compared at once
_SAMPLE = 256  # training vectors that the error of the estimates is measured on


class _IndexEstimator(BaseEstimator):  # type: ignore[misc]
    """What the estimators share: training vectors in an index, and neighbors with their distances."""

    n_neighbors: int
    metric: str
    bits: int | None
    effort: float | None
    candidates: int
    random_state: Any
    n_jobs: int | None

    def _fit_index(self, X: Any) -> None:
        check_choice("metric", self.metric, _METRICS)
        check_int("n_neighbors", self.n_neighbors)
        kept = check_int("candidates", self.candidates, least=0) > 0
        seed = int(check_random_state(self.random_state).randint(1 << 31))
        index = Index(
            X.shape[1],
            method=sketched(bits=self.bits),
            metric="cosine" if self.metric == "cosine" else "l2",
            seed=seed,
        )
        index.add(X, threads=self._threads())
        self.index_ = index
        self.n_samples_fit_ = len(X)
        self._fit_X = X if kept else None

    def _threads(self) -> int | None:
        return None if self.n_jobs is None or self.n_jobs < 0 else check_int("n_jobs", self.n_jobs)

    def _queries(self, X: Any) -> Array:
        check_is_fitted(self)
        queries: Array = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        return queries

    def _nearest(self, X: Any, n_neighbors: int | None) -> tuple[Distances, Ids]:
        """Return (distances, rows) of the neighbors of X, or of the training vectors without themselves if None."""
        check_is_fitted(self)
        k = check_int("n_neighbors", self.n_neighbors if n_neighbors is None else n_neighbors)
        if X is not None:
            return self._search(self._queries(X), k)
        if k >= self.n_samples_fit_:
            raise InvalidInputError(
                f"Expected n_neighbors < n_samples_fit, but n_neighbors = {k}, n_samples_fit = {self.n_samples_fit_}"
            )
        distances, rows = self._search(self._training_vectors(), k + 1)
        own = rows == np.arange(self.n_samples_fit_)[:, None]
        own[~own.any(axis=1), -1] = True  # equal vectors have filled the list
        return distances[~own].reshape(-1, k), rows[~own].reshape(-1, k)

    def _training_vectors(self) -> Array:
        if self._fit_X is not None:
            vectors: Array = self._fit_X
            return vectors
        return self.index_.reconstruct(np.arange(self.n_samples_fit_))

    def _search(self, Q: Array, k: int) -> tuple[Distances, Ids]:
        total = self.n_samples_fit_
        if k > total:
            raise InvalidInputError(
                f"Expected n_neighbors <= n_samples_fit, but n_neighbors = {k}, n_samples_fit = {total}"
            )
        wanted = min(total, k * max(1, self.candidates))
        scores, rows = self.index_.search(Q, wanted, effort=self.effort, threads=self._threads())
        if self._fit_X is None:
            return self._from_scores(scores[:, :k]), rows[:, :k]
        distances = self._exact(Q, rows)
        best = np.lexsort((rows, distances), axis=-1)[:, :k]
        return np.take_along_axis(distances, best, axis=1), np.take_along_axis(rows, best, axis=1)

    def _from_scores(self, scores: Array) -> Distances:
        values = np.asarray(scores, np.float64)
        if self.metric == "cosine":
            return np.maximum(1 - values, 0)
        return np.sqrt(values) if self.metric == "euclidean" else values

    def _exact(self, Q: Array, rows: Ids) -> Distances:
        """Return the distances (nq, c) of each query to the training vectors with these rows."""
        assert self._fit_X is not None
        distances = np.empty(rows.shape)
        for block in split_range(len(Q), max(1, _BLOCK // max(1, rows.shape[1] * Q.shape[1]))):
            found = np.asarray(self._fit_X[rows[block]], np.float64)
            queries = np.asarray(Q[block], np.float64)[:, None]
            distances[block] = self._compare(queries, found)
        return distances

    def _compare(self, x: Distances, y: Distances) -> Distances:
        """Return the distances between vectors in the last axis."""
        if self.metric != "cosine":
            squares: Distances = np.square(x - y).sum(axis=-1)
            return np.sqrt(squares) if self.metric == "euclidean" else squares
        x, y = (v / np.linalg.norm(v, axis=-1, keepdims=True) for v in (x, y))
        halves: Distances = np.square(x - y).sum(axis=-1) / 2
        return halves  # 1 - cos, exactly 0 for equal vectors


def _graph(distances: Distances, rows: Ids, columns: int, mode: Mode) -> Any:
    """Return neighbors as a CSR matrix (nq, columns) of distances, or of ones."""
    check_choice("mode", mode, ("connectivity", "distance"))
    data = distances.ravel() if mode == "distance" else np.ones(rows.size)
    starts = np.arange(len(rows) + 1) * rows.shape[1]
    return csr_matrix((data, rows.ravel(), starts), shape=(len(rows), columns))


class LogtTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _IndexEstimator):  # type: ignore[misc]
    """Transform vectors into the sparse graph of their nearest neighbors, as `KNeighborsTransformer` does.

    mode: "distance" or "connectivity". With "distance", each row has n_neighbors + 1 entries, because a training
    vector is its own first neighbor.
    n_neighbors: the number of neighbors.
    metric: "euclidean", "sqeuclidean" or "cosine".
    bits: per dimension, see `logt.methods.sketched`.
    effort: from 0 (fastest) to 1 (everything is scanned); None is the default of the method.
    candidates: for each neighbor, compare this many vectors exactly. The estimator keeps a reference to the training
    vectors for it. 0 keeps none and returns the estimates of the index.
    random_state: seed of the index.
    n_jobs: the number of threads; all cores if None or -1.
    """

    def __init__(
        self,
        *,
        mode: Mode = "distance",
        n_neighbors: int = 5,
        metric: str = "euclidean",
        bits: int | None = None,
        effort: float | None = None,
        candidates: int = 4,
        random_state: Any = 0,
        n_jobs: int | None = None,
    ):
        self.mode = mode
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.bits = bits
        self.effort = effort
        self.candidates = candidates
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None) -> LogtTransformer:
        """Build the index of the vectors X, (n_samples, n_features); y is ignored."""
        check_choice("mode", self.mode, ("connectivity", "distance"))
        self._fit_index(validate_data(self, X, dtype=(np.float64, np.float32)))
        self._n_features_out = self.n_samples_fit_
        return self

    def transform(self, X: Any) -> Any:
        """Return the neighbors of X as a CSR matrix (n_queries, n_samples_fit)."""
        queries = self._queries(X)
        distances, rows = self._search(queries, self.n_neighbors + (self.mode == "distance"))
        return _graph(distances, rows, self.n_samples_fit_, self.mode)

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Fit to X and return the graph of its own neighbors; y is ignored."""
        return self.fit(X).transform(X)


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

    def __init__(
        self,
        *,
        n_neighbors: int = 5,
        radius: float = 1.0,
        metric: str = "euclidean",
        bits: int | None = None,
        effort: float | None = None,
        candidates: int = 4,
        random_state: Any = 0,
        n_jobs: int | None = None,
    ):
        self.n_neighbors = n_neighbors
        self.radius = radius
        self.metric = metric
        self.bits = bits
        self.effort = effort
        self.candidates = candidates
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None) -> LogtNeighbors:
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
        distances, rows = self._nearest(X, n_neighbors)
        return _graph(distances, rows, self.n_samples_fit_, mode)

    def radius_neighbors(
        self, X: Any = None, radius: float | None = None, return_distance: bool = True, sort_results: bool = False
    ) -> Any:
        """Return (distances, rows) of all vectors within a distance, one array per query.

        X: as in `kneighbors`. radius: that of the estimator if None. return_distance: False returns the rows alone.
        sort_results: order by distance; otherwise by row.
        """
        distances, rows = self._within(X, radius, sort_results)
        found = _object_array(rows)
        return (_object_array(distances), found) if return_distance else found

    def radius_neighbors_graph(
        self, X: Any = None, radius: float | None = None, mode: Mode = "connectivity", sort_results: bool = False
    ) -> Any:
        """Return the result of `radius_neighbors` as a CSR matrix.

        X, radius, sort_results: as in `radius_neighbors`. mode: "connectivity" has ones, "distance" the distances.
        """
        check_choice("mode", mode, ("connectivity", "distance"))
        distances, rows = self._within(X, radius, sort_results)
        starts = np.cumsum([0, *map(len, rows)])
        columns = np.concatenate([*rows, np.empty(0, np.int64)])
        data = np.concatenate([*distances, np.empty(0)]) if mode == "distance" else np.ones(len(columns))
        return csr_matrix((data, columns, starts), shape=(len(rows), self.n_samples_fit_))

    def _within(self, X: Any, radius: float | None, sort: bool) -> tuple[list[Distances], list[Ids]]:
        check_is_fitted(self)
        limit = check_float("radius", self.radius if radius is None else radius)
        queries = self._training_vectors() if X is None else self._queries(X)
        limits, scores, ids = self.index_.range_search(queries, self._threshold(limit), threads=self._threads())
        distances, rows = [], []
        for q in range(len(queries)):
            part = slice(limits[q], limits[q + 1])
            row, distance = ids[part], self._from_scores(scores[part])
            if self._fit_X is not None:
                distance = self._exact(queries[q : q + 1], row[None])[0]
            kept = distance <= limit
            if X is None:
                kept &= row != q
            row, distance = row[kept], distance[kept]
            order = np.lexsort((row, distance)) if sort else np.argsort(row)
            distances.append(distance[order])
            rows.append(row[order])
        return distances, rows

    def _threshold(self, radius: float) -> float:
        """Return the score from which on vectors may be within the radius, given the error of the estimates."""
        error = self._estimation_error()
        if self.metric == "cosine":
            return 1 - radius - error
        return (max(radius, 0.0) ** 2 if self.metric == "euclidean" else radius) + error

    def _estimation_error(self) -> float:
        """Return twice the largest error of the scores of the neighbors of some training vectors."""
        if self._fit_X is None:
            return 0.0
        rows = np.linspace(0, self.n_samples_fit_ - 1, min(self.n_samples_fit_, _SAMPLE)).astype(np.int64)
        scores, ids = self.index_.search(
            self._fit_X[rows], min(self.n_samples_fit_, 20), effort=1.0, threads=self._threads()
        )
        exact = self._exact(self._fit_X[rows], ids)
        if self.metric == "cosine":
            exact = 1 - exact
        elif self.metric == "euclidean":
            exact = np.square(exact)
        return 2 * float(np.abs(scores - exact).max())


def _object_array(parts: list[Any]) -> Array:
    array = np.empty(len(parts), object)
    array[:] = parts
    return array


class LogtClassifier(ClassifierMixin, _IndexEstimator):  # type: ignore[misc]
    """Classify by a vote of the nearest training vectors, as `KNeighborsClassifier` does.

    n_neighbors: the number of votes.
    weights: "uniform", or "distance" for votes of weight 1 / distance.
    metric: "euclidean", "sqeuclidean" or "cosine".
    bits: per dimension, see `logt.methods.sketched`.
    effort: from 0 (fastest) to 1 (everything is scanned); None is the default of the method.
    candidates: for each neighbor, compare this many vectors exactly. The estimator keeps a reference to the training
    vectors for it. 0 keeps none and returns the estimates of the index.
    random_state: seed of the index.
    n_jobs: the number of threads; all cores if None or -1.
    """

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        weights: Literal["uniform", "distance"] = "uniform",
        metric: str = "euclidean",
        bits: int | None = None,
        effort: float | None = None,
        candidates: int = 4,
        random_state: Any = 0,
        n_jobs: int | None = None,
    ):
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.metric = metric
        self.bits = bits
        self.effort = effort
        self.candidates = candidates
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any) -> LogtClassifier:
        """Build the index of the vectors X, (n_samples, n_features), with the classes y, (n_samples,)."""
        check_choice("weights", self.weights, ("uniform", "distance"))
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32))
        check_classification_targets(y)
        self._fit_index(X)
        self.classes_, self._y = np.unique(y, return_inverse=True)
        return self

    def predict_proba(self, X: Any) -> Distances:
        """Return the share of the votes for each class, (n_queries, n_classes), for the queries X."""
        distances, rows = self._nearest(self._queries(X), None)
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

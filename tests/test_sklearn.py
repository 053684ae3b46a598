"""The estimators: the checks of scikit-learn, which clone and pickle them, and exact distances in its pipelines."""

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier, KNeighborsTransformer, NearestNeighbors
from sklearn.utils.estimator_checks import check_estimator

import logt
from logt.sklearn import LogtClassifier, LogtNeighbors, LogtTransformer

METRICS = ["euclidean", "sqeuclidean", "cosine"]


@pytest.mark.parametrize(
    "estimator", [LogtTransformer(), LogtNeighbors(), LogtNeighbors(candidates=0), LogtClassifier()], ids=repr
)
def test_the_checks_of_scikit_learn_pass(estimator):
    check_estimator(estimator, on_skip=None)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:900], y[:900]


@pytest.fixture(scope="module")
def blobs():
    """Ten groups of sixty vectors that are far from each other."""
    rng = np.random.default_rng(0)
    centers = 10 * rng.standard_normal((10, 32))
    labels = np.repeat(np.arange(10), 60)
    return (centers[labels] + rng.standard_normal((600, 32))).astype(np.float32), labels


@pytest.mark.parametrize("metric", METRICS)
def test_kneighbors_finds_the_exact_neighbors_and_distances(digits, metric):
    X = digits[0]
    distances, rows = LogtNeighbors(metric=metric, n_neighbors=10).fit(X).kneighbors(X[:200])
    exact, truth = NearestNeighbors(metric=metric, n_neighbors=10).fit(X).kneighbors(X[:200])
    hits = np.mean([len(np.intersect1d(a, b)) for a, b in zip(rows, truth, strict=True)]) / 10
    assert hits > 0.97
    right = (rows == truth).all(axis=1)
    assert right.mean() > 0.8
    np.testing.assert_allclose(distances[right], exact[right], atol=1e-6)


def test_a_training_vector_is_not_its_own_neighbor(blobs):
    X = np.concatenate([blobs[0], blobs[0][:1].repeat(30, axis=0)])  # equal vectors too
    rows = LogtNeighbors().fit(X).kneighbors(return_distance=False)
    assert rows.shape == (len(X), 5)
    assert not (rows == np.arange(len(X))[:, None]).any()


@pytest.mark.parametrize("metric", METRICS)
def test_radius_neighbors_are_those_of_scikit_learn(blobs, metric):
    X = blobs[0]
    radius = {"euclidean": 7.0, "sqeuclidean": 49.0, "cosine": 0.03}[metric]
    ours = LogtNeighbors(metric=metric, radius=radius).fit(X)
    theirs = NearestNeighbors(metric=metric, radius=radius).fit(X)
    for queries in (X[:50], None):
        found, expected = ours.radius_neighbors_graph(queries), theirs.radius_neighbors_graph(queries)
        assert expected.nnz > 500
        assert (found != expected).nnz <= 0.002 * expected.nnz
    distances, rows = ours.radius_neighbors(X[:3], sort_results=True)
    assert all(np.all(np.diff(d) >= 0) and len(d) == len(r) for d, r in zip(distances, rows, strict=True))


def test_without_candidates_no_vectors_are_kept_and_distances_are_estimates(blobs):
    X = blobs[0]
    small = LogtNeighbors(candidates=0, n_neighbors=5).fit(X)
    full = LogtNeighbors(n_neighbors=5).fit(X)
    estimated, _ = small.kneighbors(X)
    exact, _ = full.kneighbors(X)
    assert small._fit_X is None
    assert not np.array_equal(estimated, exact)
    assert np.median(np.abs(estimated[:, 1:] - exact[:, 1:])) < 0.1 * np.median(exact[:, 1:])
    assert small.radius_neighbors_graph(radius=7.0).nnz > 500


def test_the_graph_is_that_of_the_transformer_of_scikit_learn(blobs):
    X = blobs[0]
    for mode in ("distance", "connectivity"):
        ours = LogtTransformer(mode=mode, n_neighbors=8).fit_transform(X)
        theirs = KNeighborsTransformer(mode=mode, n_neighbors=8).fit_transform(X)
        assert ours.shape == theirs.shape
        assert ours.nnz == theirs.nnz
        ours.data[:] = theirs.data[:] = 1
        assert ours.multiply(theirs).nnz >= 0.97 * theirs.nnz
    np.testing.assert_array_equal(LogtTransformer().fit_transform(X).diagonal(), 0)


def test_a_radius_search_uses_the_threads_of_the_estimator(blobs, monkeypatch):
    neighbors = LogtNeighbors(n_jobs=1).fit(blobs[0])
    used, workers = [], logt.Index._workers

    def spy(self, threads, *args):
        used.append(threads)
        return workers(self, threads, *args)

    monkeypatch.setattr(logt.Index, "_workers", spy)
    neighbors.radius_neighbors(blobs[0][:5], 7.0)
    assert set(used) == {1}


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_the_classifier_agrees_with_that_of_scikit_learn(digits, weights):
    X_train, X_test, y_train, y_test = train_test_split(*digits, random_state=0)
    ours = LogtClassifier(weights=weights).fit(X_train, y_train)
    theirs = KNeighborsClassifier(weights=weights).fit(X_train, y_train)
    assert np.mean(ours.predict(X_test) == theirs.predict(X_test)) > 0.985
    assert ours.score(X_test, y_test) > 0.97
    np.testing.assert_allclose(ours.predict_proba(X_test).sum(axis=1), 1)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"metric": "manhattan"}, "metric must be one of 'euclidean', 'sqeuclidean', 'cosine', got 'manhattan'"),
        ({"n_neighbors": 0}, "n_neighbors must be >= 1, got 0"),
        ({"candidates": -1}, "candidates must be >= 0, got -1"),
        ({"n_jobs": 0}, "n_jobs must be >= 1, got 0"),
        ({"bits": 9}, "bits"),
    ],
)
def test_bad_parameters_are_named(blobs, parameters, message):
    with pytest.raises(logt.InvalidInputError, match=message):
        LogtNeighbors(**parameters).fit(blobs[0])


def test_more_neighbors_than_vectors_are_refused(blobs):
    with pytest.raises(logt.InvalidInputError, match="n_neighbors = 7, n_samples_fit = 6"):
        LogtNeighbors(n_neighbors=7).fit(blobs[0][:6]).kneighbors(blobs[0][:2])
    message = "Expected n_neighbors < n_samples_fit, but n_neighbors = 6, n_samples_fit = 6"
    for estimator in (LogtNeighbors(n_neighbors=6), NearestNeighbors(n_neighbors=6)):
        with pytest.raises(ValueError, match=message):
            estimator.fit(blobs[0][:6]).kneighbors()

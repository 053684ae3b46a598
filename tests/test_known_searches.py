"""A search of one query is kept, and repeated for the next query in one compiled call. It must find the same."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
from exact_index import METRICS, built

import logt


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).standard_normal((2000, 40)).astype(np.float32)


@pytest.fixture(scope="module")
def whole(X):
    return built(X)


@pytest.fixture
def index(whole):
    """An index of X that keeps no searches yet."""
    fresh = copy.copy(whole)
    fresh._state = replace(whole._state)
    return fresh


def keeps(index):
    return len(index._state.known(None).kept)


@pytest.mark.parametrize(
    ("metric", "linked"), [*((metric, False) for metric in METRICS), ("cosine", True), ("l2", True)]
)
def test_it_finds_the_same_as_a_batch(X, metric, linked):
    index = built(X, link=50 if linked else 0, metric=metric)
    Q = X[:9] * np.float32(3) + np.float32(0.1)
    for settings in ({}, {"effort": 0.3}, {"recall": 0.8}, {"nprobe": 4}, {"effort": 1}):
        scores, ids = index.search(Q, 7, **settings)
        index.search(Q[0], 7, **settings)
        for i, q in enumerate(Q):
            one, row = index.search(q, 7, **settings), index.search(Q[i : i + 1], 7, **settings)
            assert one.scores.shape == (7,)
            assert row.scores.shape == (1, 7)
            for found in (one, row):
                np.testing.assert_array_equal(found.ids.ravel(), ids[i])
                np.testing.assert_array_equal(found.scores.ravel(), scores[i])
                assert (found.scores.dtype, found.ids.dtype) == (scores.dtype, ids.dtype)
    assert keeps(index) == 5


def test_the_query_is_not_changed_and_may_have_gaps(index, X):
    wide = np.repeat(X[:4] * 5, 2, axis=1)
    before = wide.copy()
    expected = index.search(X[:4], 5)
    for i in range(4):
        q = wide[i, ::2]
        assert not q.flags.c_contiguous
        np.testing.assert_array_equal(index.search(q, 5).ids, expected.ids[i])
    np.testing.assert_array_equal(wide, before)


def test_a_change_is_seen(X):
    index = built(X[:1000], [f"photo {i}" for i in range(1000)])
    for _ in range(2):
        assert index.search(X[5], 1).ids[0] == "photo 5"
    index.remove(["photo 5"])
    assert index.search(X[5], 1).ids[0] != "photo 5"
    index.add(X[5:6], ids=["again"])
    for _ in range(2):
        assert index.search(X[5], 1).ids[0] == "again"
    index.link()
    assert not keeps(index)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_what_is_refused_is_refused_again(index, X, value):
    bad = X[0].copy()
    bad[3] = value
    for _ in range(2):
        index.search(X[0], 5)
        with pytest.raises(logt.InvalidInputError, match="row 0"):
            index.search(bad, 5)
    with pytest.raises(logt.InvalidInputError, match="all zeros"):
        index.search(np.zeros_like(bad), 5)


def test_equal_settings_of_other_types_are_checked(index, X):
    index.search(X[0], 1, effort=1)
    for k, settings in ((True, {}), (1, {"effort": True}), (1, {"effort": [1]}), (1, {"effort": "1"}), ([1], {})):
        with pytest.raises(logt.InvalidInputError):
            index.search(X[0], k, **settings)
    with pytest.raises(TypeError, match="no parameter"):
        index.search(X[0], 1, ef=1)


def test_more_results_than_vectors(X):
    index = built(X[:6])
    for _ in range(2):
        scores, ids = index.search(X[0], 9)
        assert ids.tolist()[6:] == [-1] * 3
        assert np.isneginf(scores[6:]).all()
    assert not keeps(index)


def test_only_plain_searches_are_kept(index, X):
    index.search(X[:2], 5)
    index.search(X[0].tolist(), 5)
    index.search(X[0], 5, filter=[1, 2])
    index.search(X[0], 5, expand=3)
    assert not keeps(index)
    exhaustive = built(X[:200], method=logt.methods.lo_gt())
    exhaustive.search(X[0], 5)
    assert not keeps(exhaustive)


def test_the_number_of_threads_does_not_matter_but_is_checked(index, X):
    expected = index.search(X[0], 5)
    np.testing.assert_array_equal(index.search(X[0], 5, threads=1).ids, expected.ids)
    np.testing.assert_array_equal(index.search(X[0], 5, threads=np.int64(2)).ids, expected.ids)
    assert keeps(index) == 1
    for threads in (0, -1, 1.5, True, "2"):
        with pytest.raises(logt.InvalidInputError, match="threads must be"):
            index.search(X[0], 5, threads=threads)


def test_not_more_than_a_few_are_kept(index, X):
    for k in range(1, 100):
        index.search(X[0], k)
    assert 0 < keeps(index) <= 64


def test_pickling_leaves_them_out(index, X):
    expected = index.search(X[0], 5)
    copied = pickle.loads(pickle.dumps(index))
    assert keeps(index) == 1
    assert not keeps(copied)
    np.testing.assert_array_equal(copied.search(X[0], 5).ids, expected.ids)

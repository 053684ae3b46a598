"""What each query took: `SearchResult.effort` and `SearchResult.unlike`."""

import pickle

import numpy as np
import pytest

import logt
from logt.lists.inverted_lists import efforts_of_lists


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(3)
    centers = rng.standard_normal((150, 32))
    return (centers[rng.integers(0, 150, 8000)] + 0.4 * rng.standard_normal((8000, 32))).astype(np.float32)


@pytest.fixture(scope="module")
def index(vectors):
    index = logt.Index(32)
    index.add(vectors)
    return index


@pytest.fixture(scope="module")
def queries(vectors):
    """Five like the collection, and five directions at random."""
    return np.concatenate([vectors[:5], np.random.default_rng(4).standard_normal((5, 32))]).astype(np.float32)


def test_queries_unlike_the_collection_are_told_and_take_more(index, queries):
    result = index.search(queries)
    assert result.unlike.shape == result.effort.shape == (10,)
    assert (result.unlike[:5] == 0).all()
    assert (result.unlike[5:] > 0).all()
    assert result.effort[5:].min() > result.effort[:5].max()
    scores, ids = result  # still a pair
    assert scores is result.scores
    assert ids is result.ids


def test_the_effort_is_that_of_the_lists_that_were_read(index, queries):
    assert (index.search(queries, effort=1).effort == 1).all()
    lists = index.report()["units"]
    np.testing.assert_allclose(index.search(queries, nprobe=7).effort, (np.log(7) / np.log(lists)) ** 1.5, atol=0.002)
    efforts = [index.search(queries, effort=effort).effort.mean() for effort in (0.0, 0.2, 0.5, 0.8)]
    assert efforts == sorted(efforts)


def test_one_query_has_numbers_and_a_kept_search_has_the_same(index, queries):
    for query in (queries[0], queries[9]):
        first, again, batch = index.search(query), index.search(query), index.search(query[None])
        assert np.ndim(first.effort) == np.ndim(first.unlike) == 0
        assert (first.effort, first.unlike) == (again.effort, again.unlike) == (batch.effort[0], batch.unlike[0])
        assert batch.effort.shape == index.search(query[None]).effort.shape == (1,)
    copy = pickle.loads(pickle.dumps(first))
    assert (copy.effort, copy.unlike) == (first.effort, first.unlike)


def test_queries_that_are_not_valid_took_nothing(index, queries):
    queries = queries.copy()
    queries[1] = np.nan
    result = index.search(queries, on_invalid="ignore")
    assert result.effort[1] == 0
    np.testing.assert_array_equal(np.delete(result.effort, 1), index.search(np.delete(queries, 1, axis=0)).effort)


def test_what_is_not_in_lists_is_read_whole(index, vectors, queries):
    assert (index.search(queries, filter=np.arange(50)).effort == 1).all()  # row by row
    small = logt.Index(32)
    small.add(vectors[:100])
    assert small.search(queries[0]).effort == 1


def test_it_is_not_known_for_other_methods(vectors, queries):
    index = logt.Index(32, method=logt.methods.lo_gt())
    index.add(vectors[:500])
    result = index.search(queries)
    assert result.effort is None
    assert result.unlike is None


@pytest.mark.parametrize("linked", [False, True])
def test_efforts_of_lists_invert_the_lists_of_an_effort(linked):
    efforts = efforts_of_lists([1000], linked=linked)
    assert efforts[0] == efforts[1] == 0
    assert efforts[1000] == 1
    assert (np.diff(efforts) >= 0).all()
    effort = 0.6
    lists = 1000 ** (0.8 * effort + 0.2 * effort**8 if linked else effort ** (2 / 3))
    assert abs(efforts[round(lists)] - effort) < 0.005
    np.testing.assert_allclose(efforts_of_lists([1000, 1000], linked=linked)[::2], efforts, atol=1e-6)

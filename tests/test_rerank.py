"""Re-ranking by a function of the user: what it is called with, what becomes of its scores, what is refused."""

import numpy as np
import pytest
from exact_index import built

import logt

METHODS = [logt.methods.sketched(), logt.methods.rnd(n=10, m=2, L=8)]


@pytest.mark.parametrize("method", METHODS, ids=["sketched", "rnd"])
@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
def test_results_are_ranked_by_the_scores_of_the_function(vectors, method, metric):
    X = vectors(300, 16)
    names = [f"{number}.jpg" for number in range(300)]
    index = built(X, names, method=method, metric=metric)
    plain = index.search(X[:4] * 2, 100)
    calls = []

    def by_number(query, ids, scores):
        calls.append((query, ids, scores))
        return [int(name.removesuffix(".jpg")) for name in ids]

    scores, ids = index.search(X[:4] * 2, 5, rerank=by_number)
    for row, (query, given, old) in enumerate(calls):
        assert (given.tolist(), old.tolist()) == (plain.ids[row].tolist(), plain.scores[row].tolist())
        np.testing.assert_allclose(query, X[row] / np.linalg.norm(X[row]) if metric == "cosine" else X[row] * 2, 1e-5)
        numbers = sorted((int(name.removesuffix(".jpg")) for name in given), reverse=metric != "l2")
        assert scores[row].tolist() == numbers[:5]
        assert ids[row].tolist() == [f"{number}.jpg" for number in numbers[:5]]


def test_equal_scores_keep_the_order_of_the_plain_search_and_k_may_be_more_than_there_is(vectors):
    X = vectors(20, 8)
    index = built(X)
    flat = index.search(X[:2], 30, rerank=lambda query, ids, scores: np.zeros(len(ids)))
    assert np.array_equal(flat.ids, index.search(X[:2], 30).ids)
    assert flat.counts.tolist() == [20, 20]
    one = index.search(X[0], 3, filter=[4, 5], rerank=lambda query, ids, scores: -scores)
    assert sorted(one.ids.tolist()) == [-1, 4, 5]
    assert one.scores.shape == (3,)
    assert built(X).search(X[:0], 3, rerank=lambda *_: 1 / 0).ids.shape == (0, 3)
    assert logt.Index(8).search(X[:1], 3, rerank=lambda *_: 1 / 0).ids.tolist() == [[-1, -1, -1]]


def test_query_expansion_as_a_function_is_the_one_of_the_library(vectors):
    """αQE over the candidates gives the ranking of `expand`, which searches again, where it finds the same ones."""
    X = vectors(100, 16)
    index = built(X)

    def alpha_qe(query, ids, scores, n=5, alpha=3):
        best = index.reconstruct(ids[:n])
        best /= np.linalg.norm(best, axis=1, keepdims=True)
        query = query + np.maximum(scores[:n], 0) ** alpha @ best
        found = index.reconstruct(ids)
        return found @ query / np.linalg.norm(query) / np.linalg.norm(found, axis=1)

    mine = index.search(X[:5], 10, rerank=alpha_qe, effort=1)
    theirs = index.search(X[:5], 10, expand=5, alpha=3, effort=1)
    np.testing.assert_allclose(mine.scores, theirs.scores, atol=0.02)
    assert np.mean([np.isin(a, b).mean() for a, b in zip(mine.ids, theirs.ids, strict=True)]) > 0.9


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (np.zeros(3), r"one score for each of 20 results, got shape \(3,\)"),
        (np.zeros((20, 1)), "got shape"),
        (None, "rerank must return"),
        (["a"] * 20, "rerank must return an array of scores"),
        ([0.0] * 7 + [np.nan] * 13, "rerank returned nan for result 7 of 20; scores must be finite"),
        ([1e300] * 20, "rerank returned inf for result 0 of 20"),
    ],
)
def test_scores_that_cannot_be_ranked_are_refused(vectors, returned, message):
    X = vectors(20, 8)
    with pytest.raises(logt.InvalidInputError, match=message):
        built(X).search(X[0], 3, rerank=lambda *_: returned)


def test_an_error_of_the_function_is_passed_on_and_a_copy_on_a_device_refuses_functions(vectors):
    X = vectors(20, 8)
    index = built(X)
    with pytest.raises(ZeroDivisionError):
        index.search(X[0], 3, rerank=lambda *_: 1 / 0)
    with pytest.raises(logt.InvalidInputError, match="does not re-rank by a function"):
        index.to("cpu").search(X[0], 3, rerank=lambda *_: 1 / 0)

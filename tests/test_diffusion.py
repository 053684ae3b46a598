"""Diffusion: equal to a dense solve, non-negative, local, and the plain ranking where there is nothing to spread."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from exact_index import built, nearest

import logt
from logt.evaluation import GroundTruth, evaluate
from logt.graph import stored_graph
from logt.graph.diffusion import Diffusion, background, transition
from logt.graph.stored_graph import StoredGraph


def unit(X):
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)


def exact_neighbors(X, k):
    S = X @ X.T
    np.fill_diagonal(S, -np.inf)
    best = np.argsort(-S, axis=1, kind="stable")[:, :k].astype(np.int32)
    return best, np.take_along_axis(S, best, axis=1).astype(np.float32)


def listed(neighbors, similarity):
    return StoredGraph.encode(np.arange(len(neighbors)), neighbors, similarity, neighbors.shape[1])


def clusters(seed=0, count=12, size=25, dim=16):
    """Chains: the vectors of a cluster lie along an arc, so that its ends are connected only through the others."""
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((2, count, dim))
    angle = np.linspace(0, 1.4, size)[:, None]
    chains = [np.cos(angle) * a[c] + np.sin(angle) * b[c] for c in range(count)]
    return unit(np.concatenate(chains) + 0.02 * rng.standard_normal((count * size, dim)))


def dense(S):
    """S as the kernel spread reads it."""
    D = np.zeros((len(S.graph), len(S.graph)))
    edge, neighbors = np.unpackbits(S.mutual, axis=1, bitorder="little"), S.graph.neighbors
    for i, a in zip(*edge.nonzero(), strict=True):
        j = neighbors[i, a]
        D[i, j] = S.cube[S.graph.level[i, a]] * S.gain[i] * S.gain[j]
    return np.minimum(D, D.T)


def naive_transition(lists, first, b):
    """S as a dense matrix, edge by edge; as the kernel find_mutual."""
    N, neighbors, similarity = len(lists), lists.neighbors, lists.similarity.astype(np.float64)
    value = np.zeros((N, N))
    for i in range(N):
        for j, s in zip(neighbors[i, :first], similarity[i, :first], strict=True):
            if j >= 0 and s > b:
                value[i, j] = s - b
    value = np.minimum(value, value.T)
    scale = np.maximum(np.where(neighbors[:, 0] >= 0, similarity[:, 0] - b, 0), 0.1 * (1 - b))
    W = (value / np.sqrt(np.outer(scale, scale))) ** 3
    root = np.sqrt(np.maximum(W.sum(axis=1), 1))
    return W / np.outer(root, root)


def naive_spread(D, rows, y, alpha, hops, limit, visible):
    """The rows that are reached, and f on them by a dense solve; as the kernel spread."""
    near, front = list(rows), list(rows)
    for _ in range(hops):
        strength = D[front].sum(axis=0) * visible
        strength[near] = 0
        fresh = np.flatnonzero(strength)
        front = sorted(fresh[np.argsort(-strength[fresh], kind="stable")][: max(limit - len(near), 0)])
        near += front
    part = D[np.ix_(near, near)]
    return near, np.linalg.solve(np.eye(len(near)) - alpha * part, np.pad(y, (0, len(near) - len(y))))


@pytest.mark.parametrize(("first", "wide"), [(1, False), (7, True), (20, False)])
def test_the_compiled_transition_equals_the_naive_one(first, wide):
    X = clusters(8)
    neighbors, similarity = exact_neighbors(X, 20)
    neighbors[5:9, 3:] = -1  # short lists
    similarity[5:9, 3:] = 0
    neighbors[9] = -1
    similarity[::2] -= 0.004  # the two lists of a pair may differ
    lists = listed(neighbors, similarity)
    if wide:
        lists = replace(lists, high=lists.high.astype(np.uint16))
    S = transition(lists, first)
    D = dense(S)
    np.testing.assert_allclose(D, naive_transition(lists, first, S.background), atol=1e-5)
    assert np.abs(np.linalg.eigvalsh(D)).max() <= 1 + 1e-6
    assert (np.diag(D) == 0).all()
    assert S.nbytes == len(X) * (4 + -(-first // 8))


@pytest.mark.parametrize(
    ("hops", "limit", "hidden", "alpha"),
    [
        *((0, 1000, False, 0.9), (1, 40, True, 0.9), (1, 60, False, 0.5), (3, 60, True, 0.9)),
        *((3, 1000, True, 0.5), (100, 10_000, False, 0.99)),
    ],
)
def test_the_compiled_solver_equals_the_naive_one(hops, limit, hidden, alpha):
    X = clusters(9)
    S = transition(listed(*exact_neighbors(X, 20)), 12)
    scores = X @ X[60]
    visible = np.random.default_rng(0).random(len(X)) < (0.7 if hidden else 2)
    rows = np.array([row for row in np.argsort(-scores)[:50] if visible[row] and scores[row] > S.background])
    found, f = Diffusion(alpha=alpha, hops=hops, nodes=limit)(S, rows, scores[rows], visible if hidden else None)
    y = ((scores[rows] - S.background) / (1 - S.background)) ** 3
    near, expected = naive_spread(dense(S), rows, y, alpha, hops, limit, visible)
    assert found.tolist() == near
    np.testing.assert_allclose(f, expected, atol=1e-5)


def test_lists_that_name_a_row_twice_do_no_harm():
    """Only a damaged or a made-up file has such lists: row 1 names row 0 first as far away, then as near."""
    rows = np.array([[1, 2, 3], [0, 0, 2], [0, 1, 3], [0, 1, 2]])
    level = np.array([[255, 100, 1], [1, 255, 1], [100, 100, 1], [1, 1, 1]], np.uint8)
    bounds = np.array([0.2, 1], np.float32)
    lists = StoredGraph(np.arange(4), rows.astype(np.uint16), np.zeros((4, 3), np.uint8), level, bounds)
    S = transition(lists, 3)
    assert dense(S)[0, 1] == 0
    assert np.unpackbits(S.mutual, axis=1, bitorder="little")[1].any()  # in one direction only
    found, f = Diffusion()(S, np.array([1, 0]), np.array([0.9, 0.8], np.float32))
    np.testing.assert_allclose(f[:2], (np.array([0.7, 0.6]) / 0.8) ** 3, rtol=0.2)
    assert sorted(found.tolist()) == sorted(set(found.tolist()))


def test_the_background_is_what_the_last_neighbors_have():
    similarity = np.array([[0.9, 0.2], [0.9, 0.3], [0.9, 0.4], [0.9, 0.0]], np.float32)
    neighbors = np.array([[1, 2], [0, 2], [0, 1], [0, -1]], np.int32)
    assert background(listed(neighbors, similarity)) == pytest.approx(0.3, abs=0.002)
    for k in (0, 3):
        assert background(listed(np.full((4, k), -1, np.int32), np.zeros((4, k), np.float32))) == 0


# ------------------------------------------------------------------------------------------------- in an index


@pytest.fixture(scope="module")
def linked():
    X = clusters(2)
    index = built(X, threads=1, link=20)
    return index, X


def test_diffusion_finds_the_far_end_of_a_chain(linked):
    index, X = linked
    plain, found = (index.search(X[0], 25, rerank=rerank).ids for rerank in (None, "diffusion"))
    assert (found < 25).sum() > (plain < 25).sum()


def test_without_spreading_the_ranking_is_the_plain_one(linked):
    index, X = linked
    for k in (5, 50, len(X)):
        np.testing.assert_array_equal(
            index.search(X[:9], k, rerank=Diffusion(alpha=0)).ids, index.search(X[:9], k).ids
        )


def test_scores_are_not_negative_and_fall_and_do_not_depend_on_other_queries(linked):
    index, X = linked
    result = index.search(X, len(X), rerank="diffusion")
    for i in (0, 7, 33):
        np.testing.assert_array_equal(index.search(X[i], len(X), rerank="diffusion").ids, result.ids[i])
    assert (result.scores >= 0).all()
    assert (np.diff(result.scores, axis=1) <= 0).all()
    for row in result.ids:
        assert sorted(row.tolist()) == list(range(len(X)))


def test_a_filter_and_removals_hold(linked):
    index, X = linked
    even = np.arange(0, len(X), 2)
    for rule in (even, index.ids % 2 == 0, lambda ids: ids % 2 == 0):
        found = index.search(X[:10], 20, filter=rule, rerank="diffusion").ids
        assert (found % 2 == 0).all()
    changed = copy.copy(index)
    changed.remove(np.arange(1, 12))
    found = changed.search(X[:25], 100, rerank="diffusion").ids
    assert not np.isin(found, np.arange(1, 12)).any()


def test_duplicates_by_the_thousand_do_not_swallow_the_ranking():
    X = clusters(6)
    index = built(np.concatenate([X, np.repeat(X[100:101], 2500, axis=0)]), link=20)
    found = index.search(X[0], 20, rerank="diffusion")
    assert np.isfinite(found.scores).all()
    assert (found.ids < 25).mean() > 0.9  # the chain of the query
    best = index.search(X[100], 10, rerank="diffusion").ids
    assert ((best >= len(X)) | (best == 100)).all()


def test_without_neighbors_the_ranking_loses_at_most_half_a_point():
    """Random directions in many dimensions: the plain ranking has nothing to gain, and must not lose."""
    rng = np.random.default_rng(7)
    X = unit(rng.standard_normal((2000, 128)))
    index = built(X, link=50)
    truth = GroundTruth.from_lists(np.arange(100)[:, None])
    for noise in (0.1, 1.0):
        Q = unit(X[:100] + noise * unit(rng.standard_normal((100, 128))))
        plain = evaluate(nearest(X, Q, len(X)), truth).mean_ap
        assert evaluate(index.search(Q, len(X), rerank="diffusion").ids, truth).mean_ap >= plain - 0.5


@pytest.mark.parametrize("count", [1, 2, 3])
def test_tiny_indexes(count):
    X = unit(np.eye(8)[:count] + 0.1)
    index = built(X)
    assert len(index.graph(50)) == count
    index.link(50)
    if count == 1:
        assert index.links is None
        return
    assert index.search(X[0], 5, rerank="diffusion").ids[:count].tolist()[0] == 0


def test_what_cannot_be_reranked_is_refused(linked):
    index, X = linked
    plain = built(X)
    with pytest.raises(logt.InvalidInputError, match=r"index.link\(\)"):
        plain.search(X[0], rerank="diffusion")
    with pytest.raises(logt.InvalidInputError, match="rerank must be"):
        index.search(X[0], rerank="magic")


def test_invalid_queries_can_be_ignored(linked):
    index, X = linked
    Q = X[:3].copy()
    Q[1] = np.nan
    result = index.search(Q, 4, rerank="diffusion", on_invalid="ignore")
    assert (result.ids[1] == -1).all()
    assert (result.ids[[0, 2]] >= 0).all()


def test_stored_lists_with_a_row_that_does_not_exist_are_refused(monkeypatch):
    """Of collections above 2^24 vectors, `high` has 16 bits: a row may be too large for an int32."""
    lists = StoredGraph.encode(np.arange(2), np.array([[1], [0]], np.int32), np.array([[0.5], [0.4]], np.float32), 1)
    monkeypatch.setattr(stored_graph, "_high_type", lambda count: np.uint16)
    for high in (1, 0x7FFF, 0x8000, 0xFFFF):
        arrays = {**lists.arrays, "high": np.array([[0], [high]], np.uint16)}
        with pytest.raises(ValueError, match="a vector that does not exist"):
            StoredGraph.from_arrays(arrays)
    StoredGraph.from_arrays({**lists.arrays, "high": np.zeros((2, 1), np.uint16)})

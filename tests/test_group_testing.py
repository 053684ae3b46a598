from __future__ import annotations

import numpy as np
import pytest
import reference

from logt.baselines import BackPropagation, Exhaustive, MemoryVectors
from logt.errors import InvalidInputError
from logt.group_testing.grouping import KdTree, Orthogonal, Random
from logt.group_testing.kmeans import KMeans
from logt.group_testing.memory_vectors import Pinv, Sum

GROUPS = [Random(20, 1), Orthogonal(20, 1), KMeans(n=20), KdTree(20, 1)]


@pytest.fixture(scope="module")
def data(vectors):
    return vectors(600, 32), vectors(12, 32, seed=1)


@pytest.mark.parametrize("batches", [1, 3, 10])
def test_verifying_everything_is_exhaustive_search(data, batches):
    X, Q = data
    exact = Exhaustive().build(X)
    built = BackPropagation(20, 3, batches).build(X)
    for k in (1, 20, 600):
        assert (built.search(Q, k, verified=600) == exact.search(Q, k)).all()
    assert (built.search(Q, 603, verified=10**6)[:, 600:] == -1).all()


@pytest.mark.parametrize("verified", [7, 60, 150])
def test_back_propagation_equals_its_equations(data, verified):
    X, Q = data[0][:150].astype(np.float64), data[1][:3].astype(np.float64)
    X, Q = X / np.linalg.norm(X, axis=1)[:, None], Q / np.linalg.norm(Q, axis=1)[:, None]
    assignment = Random(8, 3)(X, np.random.default_rng(5)).assignment
    built = BackPropagation(8, 3, batches=4).build(X, seed=5)
    sizes = np.diff(np.linspace(0, verified, 5).astype(int))
    for q, found in zip(Q, built.search(Q, 150, verified=verified), strict=True):
        naive = reference.back_propagation(X, assignment, q, sizes)
        assert (np.array(naive) == found).mean() > 0.97  # float32 may swap nearly equal scores
        assert naive[:verified] == found[:verified].tolist()


def test_back_propagation_finds_more_than_the_same_verification_without_it(vectors):
    """With one batch, all vectors are picked before anything is propagated."""
    X = vectors(4000, 64)
    Q = X[:60] + 0.6 * vectors(60, 64, seed=2)
    found = [(BackPropagation(20, 3, b).build(X).search(Q, 20, verified=400)) for b in (1, 10)]
    exact = Exhaustive().build(X).search(Q, 20)
    recall = [np.mean([np.isin(e, f).mean() for e, f in zip(exact, ids, strict=True)]) for ids in found]
    assert recall[1] > recall[0]


def test_complexity_counts_verified_vectors(data):
    X, _ = data
    built = BackPropagation(20, 3).build(X)
    N, d, M, R = 600, 32, 90, 100
    assert built.rho(verified=R) == pytest.approx(M / N + 11 * 3 / d + R / N + R * 3 / (d * N))
    assert built.memory_ratio == 1 + M / N
    assert built.nbytes == X.nbytes + 4 * M * d + 4 * 3 * N


@pytest.mark.parametrize("group", GROUPS, ids=repr)
@pytest.mark.parametrize("memory", [Sum(), Pinv()], ids=repr)
def test_probing_all_units_is_exhaustive_search(data, group, memory):
    X, Q = data
    exact = Exhaustive().build(X).search(Q, 600)
    built = MemoryVectors(group, memory).build(X)
    for setting in ({"budget": 600}, {"threshold": -1e9}):
        assert (built.search(Q, 600, **setting) == exact).all()
        assert built.rho(**setting) == pytest.approx(built.memory_ratio)


@pytest.mark.parametrize("group", GROUPS, ids=repr)
def test_probed_units_come_first_and_the_others_follow_by_score(data, group):
    X, Q = data
    units = group(X, np.random.default_rng(0))
    C, S = Q @ Pinv()(X, units).T, Q @ X.T
    built = MemoryVectors(group).build(X, seed=0)
    for budget in (1, 50, 333):
        for q, found in enumerate(built.search(Q, 600, budget=budget)):
            assert len(set(found)) == 600
            unit = units.assignment[found, 0]
            count = next(i for i in range(601) if i == 600 or (i and not set(unit[i:]) & set(unit[:i])))
            probed = set(unit[:count])
            assert count <= max(budget, np.bincount(units.assignment[:, 0]).max())
            assert (np.diff(S[q, found[:count]]) <= 1e-6).all()
            assert min(C[q, list(probed)]) >= C[q, unit[count:]].max(initial=-np.inf) - 1e-5
            assert (np.diff(C[q, unit[count:]]) <= 1e-5).all()


def test_a_threshold_probes_the_units_that_reach_it(data):
    X, Q = data
    built = MemoryVectors(Random(20, 1), Pinv()).build(X)
    Y = Pinv()(X, Random(20, 1)(X, np.random.default_rng(0)))
    low, high = np.quantile(Q @ Y.T, [0.2, 0.9])
    assert built.rho(threshold=low) > built.rho(threshold=high)
    unprobed = built.search(Q, 600, threshold=1e9)
    assert (np.sort(unprobed, axis=1) == np.arange(600)).all()


def test_memory_vectors_find_their_members(vectors):
    """A pinv memory vector has inner product 1 with its members, so a member as query probes its own unit first."""
    X = vectors(600, 512)
    found = MemoryVectors(Random(10, 1), Pinv()).build(X).search(X, 1, budget=30)[:, 0]
    assert (found == np.arange(600)).mean() > 0.95


@pytest.mark.parametrize("setting", [{}, {"budget": 5, "threshold": 0.1}, {"budget": 0}, {"threshold": "much"}])
def test_invalid_budgets_and_thresholds_are_refused(data, setting):
    with pytest.raises(InvalidInputError, match=r"budget|threshold"):
        MemoryVectors().build(data[0]).search(data[1], 5, **setting)


def test_memory_vectors_refuse_more_than_one_unit_per_vector():
    with pytest.raises(InvalidInputError, match="m must be 1"):
        MemoryVectors(Random(50, 4))


def test_results_do_not_depend_on_the_number_of_threads(data):
    X, Q = data
    for system, setting in (
        (BackPropagation(20, 3), {"verified": 50}),
        (MemoryVectors(KMeans(n=20)), {"budget": 90}),
    ):
        one, two = (system.build(X, threads=t).search(Q, 100, threads=t, **setting) for t in (1, 2))
        assert (one == two).all()

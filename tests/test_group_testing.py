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
    assert (built.search(Q, 600, budget=600) == exact).all()
    assert built.rho(budget=600) == pytest.approx(built.memory_ratio)


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


def test_wrong_parameters_are_refused(data):
    with pytest.raises(InvalidInputError, match="budget"):
        MemoryVectors().build(data[0]).search(data[1], 5, budget=0)
    with pytest.raises(InvalidInputError, match="m must be 1"):
        MemoryVectors(Random(50, 4))

import numpy as np
import pytest

from logt.group_testing.grouping import Orthogonal, Random, Units
from logt.group_testing.memory_vectors import Pinv, Sum


@pytest.mark.parametrize("group", [Random(20, 3), Orthogonal(20, 3)])
def test_pinv_memory_vector_answers_one_to_each_member(vectors, group):
    X = vectors(400, 64)
    units = group(X, np.random.default_rng(0))
    Y = Pinv()(X, units)
    for unit in range(units.count):
        assert np.allclose(X[units.rows(unit)] @ Y[unit], 1, atol=1e-4)


def test_measurements_of_sums_are_the_sums_of_similarities(vectors):
    X, q = vectors(300, 32), vectors(1, 32, seed=1)[0]
    units = Random(10, 4)(X, np.random.default_rng(0))
    G = np.zeros((units.count, 300))
    for unit in range(units.count):
        G[unit, units.rows(unit)] = 1
    assert np.allclose(Sum()(X, units) @ q, G @ (X @ q), atol=1e-5)


@pytest.mark.parametrize("noise", [0, 1e-7, 1e-4])
def test_pinv_is_safe_for_duplicates_and_near_duplicates(vectors, noise):
    X = np.repeat(vectors(10, 64), 5, axis=0) + noise * vectors(50, 64, seed=1)
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    Y = Pinv()(X, Units(np.zeros((50, 1), np.int32), 1))
    assert np.isfinite(Y).all()
    assert np.allclose(X @ Y[0], 1, atol=1e-2)
    assert np.linalg.norm(Y) < 20


def test_pinv_of_more_members_than_dimensions_is_least_squares(vectors):
    X = vectors(40, 8)
    Y = Pinv()(X, Units(np.zeros((40, 1), np.int32), 1))
    assert np.allclose(Y[0], np.linalg.lstsq(X.astype(float), np.ones(40), rcond=None)[0], atol=1e-3)

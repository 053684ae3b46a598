import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logt import _kernels
from logt.group_testing.grouping import Orthogonal, Random


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.integers(1, 60), st.integers(1, 5), st.integers(1, 12), st.booleans())
def test_each_vector_is_in_m_units(N, n, m, width, orthogonal):
    X = np.random.default_rng(N).standard_normal((N, 8), np.float32)
    units = (Orthogonal(n, m, width) if orthogonal else Random(n, m))(X, np.random.default_rng(0))
    assert units.assignment.shape == (N, m)
    per_round = units.count // m
    assert per_round * m == units.count
    assert per_round == max(N // n, min(N, 16))
    for r in range(m):
        sizes = np.bincount(units.assignment[:, r] - r * per_round, minlength=per_round)
        assert len(sizes) == per_round
        assert sizes.max() - sizes.min() <= 1


def test_members_are_the_inverse_of_units():
    units = Random(7, 3)(np.empty((100, 1), np.float32), np.random.default_rng(1))
    for unit in range(units.count):
        assert (units.rows(unit) == np.flatnonzero((units.assignment == unit).any(axis=1))).all()


@pytest.mark.parametrize(("m", "size"), [(2, 98.9), (3, 290.4), (4, 572.3), (5, 940.9)])
def test_first_order_supports_are_as_large_as_the_paper_implies(m, size):
    """The distinct |S₁| at n = 50, N = 105,000 that give the complexity ratios of figure 3, on the right."""
    N, rows = 105_000, 400
    units = Random(50, m)(np.empty((N, 1), np.float32), np.random.default_rng(0))
    out, counts = np.zeros((rows, 50 * m * m), np.int32), np.empty(rows, np.int32)
    _kernels.first_order(units.assignment, *units.members, 0, out, counts)
    assert abs(counts.mean() - size) < 4 * counts.std() / np.sqrt(rows) + 0.1


@pytest.mark.parametrize("criterion", ["max_abs", "sum_squares", "max_signed"])
def test_orthogonal_units_are_more_orthogonal_than_random_ones(vectors, criterion):
    X = vectors(2000, 64)

    def cost(units):
        grams = [X[units.rows(u)] @ X[units.rows(u)].T for u in range(units.count)]
        cosines = np.concatenate([gram[np.triu_indices(len(gram), 1)] for gram in grams])
        cost = {"max_abs": np.abs(cosines), "sum_squares": cosines**2, "max_signed": np.maximum(cosines, 0)}
        return cost[criterion].mean()

    rng = np.random.default_rng(0)
    assert cost(Orthogonal(20, 2, criterion=criterion)(X, rng)) < 0.93 * cost(Random(20, 2)(X, rng))


def test_similar_vectors_are_in_different_units(vectors):
    """Two copies of each vector: orthogonal units never hold both, random ones sometimes do."""
    X = np.repeat(vectors(500, 64), 2, axis=0)

    def together(units):
        return (units.assignment[::2] == units.assignment[1::2]).sum()

    rng = np.random.default_rng(0)
    assert together(Random(50, 4)(X, rng)) > 50
    assert together(Orthogonal(50, 4)(X, rng)) == 0

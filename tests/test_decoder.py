import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logt import _kernels
from logt.group_testing import decoder
from logt.group_testing.cascade import prefix_lengths
from logt.group_testing.codes import Codes
from logt.group_testing.decoder import Sparse, Transpose, solve_group_inverse
from logt.group_testing.grouping import Orthogonal, Random, Units
from logt.group_testing.memory_vectors import Pinv, Sum


def small_problem(vectors, N=600, d=96, n=20, m=3):
    X = vectors(N, d)
    units = Orthogonal(n, m)(X, np.random.default_rng(0))
    return X, Pinv()(X, units), units


def dense(codes: Codes, M: int):
    unit, weight = codes.matrices()
    U = np.zeros((len(codes), M))
    np.add.at(U, (np.arange(len(codes))[:, None], unit), weight * codes.scale[:, None])
    return U


def test_transpose_is_the_assignment(vectors):
    X, Y, units = small_problem(vectors)
    U = dense(Transpose()(X, Y, units), units.count)
    assert ((units.assignment[:, :, None] == np.arange(units.count)).any(axis=1) == U).all()


@pytest.mark.parametrize("order", [0, 1])
def test_local_decoders_solve_least_squares_on_their_support(vectors, order):
    X, Y, units = small_problem(vectors, N=300, d=200)
    U = dense(Sparse(None, f"S{order}", weights="float32")(X, Y, units), units.count)
    sharing = (units.assignment[:, None, :, None] == units.assignment[None, :, None, :]).any(axis=(2, 3))
    for i in range(0, 300, 29):
        support = np.unique(units.assignment[i] if order == 0 else units.assignment[sharing[i]])
        best = np.linalg.lstsq(Y[support].T.astype(float), X[i], rcond=None)[0]
        assert np.allclose(U[i, support] @ Y[support], best @ Y[support], atol=2e-3)
        assert np.count_nonzero(U[i]) <= len(support)


def test_zero_order_captures_the_energy_that_theory_predicts(rng):
    """m / (‖y‖² + m − 1) with ‖y‖² = nd/(d − n − 1): 0.0737 at n = 50, m = 4, d = 2048."""
    X = rng.standard_normal((8000, 2048), np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    units = Random(50, 4)(X, rng)
    Y = Pinv()(X, units)
    codes = Sparse(None, "S0", weights="float32")(X, Y, units)
    assert np.square(codes.reconstruct(Y)).sum(axis=1).mean() == pytest.approx(0.0737, abs=0.0015)


@pytest.mark.parametrize("support", ["S1", "free"])
def test_sparse_has_exactly_L_entries_by_decreasing_weight(vectors, support):
    X, Y, units = small_problem(vectors)
    exact, short = (Sparse(25, support, weights=weights)(X, Y, units) for weights in ("float32", "int8"))
    for codes in (exact, short):
        unit, weight = codes.matrices()
        assert weight.shape == (600, 25)
        assert (np.diff(np.abs(weight.astype(float)), axis=1) <= 0).all()
        assert all(len(set(row)) == 25 for row in unit)
    assert (exact.matrices()[1] != 0).all()
    assert np.linalg.norm(exact.reconstruct(Y) - short.reconstruct(Y), axis=1).max() < 0.05


@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_the_codes_of_a_path_are_those_of_each_l_alone(vectors, weights):
    X, Y, units = small_problem(vectors)
    for L, codes in zip((30, 5, 10**6), Sparse(1, weights=weights).path(X, Y, units, (30, 5, 10**6)), strict=True):
        alone = Sparse(L, weights=weights)(X, Y, units)
        assert all((a == b).all() for a, b in zip(codes.matrices(), alone.matrices(), strict=True))
        assert (codes.scale == alone.scale).all()


def test_codes_are_the_same_without_the_complete_gram_matrix(vectors, monkeypatch):
    X, Y, units = small_problem(vectors)
    expected = Sparse(15, weights="float32")(X, Y, units)
    monkeypatch.setattr(decoder, "GRAM_LIMIT", 0)
    alone = Sparse(15, weights="float32")(X, Y, units)
    assert np.allclose(dense(alone, units.count), dense(expected, units.count), atol=1e-4)


def test_prefix_and_remainder_are_all_of_u(vectors):
    """U⁰ + U¹ = U, U⁰ carries at least the fraction p of the energy, and one entry less would not."""
    X, Y, units = small_problem(vectors)
    codes = Sparse(30, weights="float32")(X, Y, units)
    _, weight = codes.matrices()
    energy = np.square(weight).cumsum(axis=1) / np.square(weight).sum(axis=1, keepdims=True)
    for p in (0.1, 0.5, 0.9, 1.0):
        lengths = prefix_lengths(codes, p).astype(int)
        rows = np.arange(len(codes))
        assert (energy[rows, lengths - 1] >= p - 1e-5).all()
        assert (energy[rows, lengths - 2] < p + 1e-5)[lengths > 1].all()
        C = np.random.default_rng(0).standard_normal((1, units.count)).astype(np.float32)
        whole, part = (np.empty(len(codes), np.float32) for _ in range(2))
        at = np.empty(len(codes), np.int32)
        U = (codes.unit, codes.weight, codes.scale, np.empty(0, np.float32))
        _kernels.decode_one(*U, np.empty(0, np.uint16), C[0], whole, at)
        whole = whole[np.argsort(at)]
        _kernels.decode_one(*U, prefix_lengths(codes, p), C[0], part, at)
        part = part[np.argsort(at)]
        _kernels.refine(*U[:3], prefix_lengths(codes, p), C, rows[None].astype(np.int32), part[None])
        assert np.allclose(part, whole, atol=1e-4)


@pytest.mark.parametrize("empty", [0, 2])
@pytest.mark.parametrize("consistent", [True, False])
def test_group_inverse_equals_the_dense_pseudo_inverse(vectors, consistent, empty):
    X, Q = vectors(200, 16), vectors(5, 16, seed=1)
    units = Random(10, 3)(X, np.random.default_rng(0))
    if empty:  # one of them in the middle, the other at the end
        units = Units(units.assignment + (units.assignment >= 7), units.count + empty)
    G = (units.assignment[None] == np.arange(units.count)[:, None, None]).any(axis=2).astype(float)
    C = (Q @ Sum()(X, units).T) if consistent else np.random.default_rng(0).standard_normal((5, units.count))
    estimates = solve_group_inverse(C.astype(np.float32), units) @ G
    assert np.allclose(estimates, C @ np.linalg.pinv(G, rcond=1e-10).T, atol=1e-4)


def test_group_inverse_of_one_query_does_not_depend_on_the_others(vectors, rng):
    units = Random(10, 3)(vectors(200, 16), np.random.default_rng(0))
    C = rng.standard_normal((6, units.count)).astype(np.float32)
    together = solve_group_inverse(C, units)
    for one, expected in zip(C, together, strict=True):
        assert (solve_group_inverse(one[None], units)[0] == expected).all()


@settings(max_examples=40, deadline=None)
@given(
    N=st.integers(1, 40),
    d=st.integers(1, 12),
    n=st.integers(1, 30),
    m=st.integers(1, 4),
    L=st.integers(1, 20),
    equal=st.booleans(),
    decode=st.sampled_from(["S0", "S1", "free", "local0", "local1", "transpose"]),
)
def test_odd_sizes_make_finite_codes(vectors, N, d, n, m, L, equal, decode):
    X = vectors(1, d).repeat(N, axis=0) if equal else vectors(N, d)
    units = Random(n, m)(X, np.random.default_rng(0))
    Y = Pinv()(X, units)
    stages = {"local0": Sparse(None, "S0"), "local1": Sparse(None), "transpose": Transpose()}
    codes = (stages.get(decode) or Sparse(L, decode))(X, Y, units)
    assert len(codes) == N
    assert codes.width >= 1
    assert np.isfinite(codes.reconstruct(Y)).all()
    if decode != "transpose":
        assert (np.linalg.norm(X - codes.reconstruct(Y), axis=1) <= 1.02).all()

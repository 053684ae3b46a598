"""Each kernel agrees with its naive implementation, on every instruction set of this processor."""

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

from logt import _kernels
from logt.group_testing.cascade import Prefix
from logt.group_testing.codes import Codes
from logt.group_testing.grouping import Random

NO_BIAS, ALL = np.empty(0, np.float32), np.empty(0, np.uint16)
NO_FIRST = np.empty(0, np.int32)
WIDE = [(np.uint16, np.float32), (np.uint32, np.int8), (np.uint32, np.float32)]


def some_codes(rng, N, L, M, unit, weight):
    w = rng.integers(-127, 128, (N, L)) if weight == np.int8 else rng.standard_normal((N, L))
    scale = rng.uniform(0.5, 2, N).astype(np.float32)
    return Codes.from_matrices(rng.integers(0, M, (N, L)).astype(unit), w.astype(weight), scale)


@pytest.mark.parametrize("sizes", [[1], [4, 3, 3, 3], [50] * 3])
@pytest.mark.parametrize("criterion", ["max", "sum"])
def test_grow_units(isa, rng, sizes, criterion):
    A = rng.random((sum(sizes), sum(sizes))).astype(np.float32)
    A = np.ascontiguousarray(A + A.T)
    out = np.empty(len(A), np.int32)
    _kernels.grow_units(A, np.array(sizes, np.int32), criterion == "sum", out)
    # float32 sums in the order of arrival, as the kernel adds
    combine = (lambda costs: np.add.accumulate(costs)[-1]) if criterion == "sum" else np.max
    assert (out == reference.grow_units(A, sizes, combine)).all()


def test_first_order(isa, rng):
    units = Random(n=4, m=3)(np.empty((50, 1), np.float32), rng)
    out, counts = np.zeros((50, units.count), np.int32), np.empty(50, np.int32)
    _kernels.first_order(units.assignment, *units.members, 0, out, counts)
    for i in range(50):
        assert out[i, : counts[i]].tolist() == reference.first_order(units.assignment, i)


@pytest.mark.parametrize("dim", [1, 7, 16, 50])
def test_correlate(isa, rng, dim):
    X, A = rng.standard_normal((5, dim), np.float32), rng.standard_normal((30, dim), np.float32)
    support = rng.integers(0, 30, (5, 9)).astype(np.int32)
    counts = np.array([0, 1, 4, 5, 9], np.int32)
    out = np.full((5, 9), 7, np.float32)
    _kernels.correlate(X, A, support, counts, out)
    for b, count in enumerate(counts):
        assert np.allclose(out[b, :count], A[support[b, :count]] @ X[b], atol=1e-5)
        assert (out[b, count:] == 7).all()


@pytest.mark.parametrize(("rows", "width", "units", "dim"), [(1, 1, 1, 1), (20, 3, 8, 5), (50, 7, 12, 33)])
def test_normal_rows(isa, rng, rows, width, units, dim):
    unit = np.array([rng.permutation(units)[:width] for _ in range(rows)], np.uint32)
    weight = rng.standard_normal((rows, width), np.float32)
    weight[rows // 2 :, width - 1] = 0
    X = rng.standard_normal((rows, dim), np.float32)
    A, B = reference.normal_equations(unit, weight, X, units)
    for first, last in ((0, units), (0, units // 2), (units // 2, units)):
        mine = np.zeros((last - first, units), np.float32), np.zeros((last - first, dim), np.float32)
        _kernels.normal_rows(unit, weight, X, first, *mine)
        assert np.allclose(mine[0], A[first:last], atol=1e-4)
        assert np.allclose(mine[1], B[first:last], atol=1e-4)


def unit_rows(rng, count, dim):
    A = rng.standard_normal((count, dim), np.float32)
    return A / np.linalg.norm(A, axis=1, keepdims=True)


def omp_path(A, X, lengths, counts=None, rescale=None):
    """Return (unit, weight) of the paths of X in the atoms A, or in the first `counts` of them."""
    M, nx = len(A), len(X)
    support = np.tile(np.arange(M, dtype=np.int32), (nx, 1))
    counts = np.full(nx, M, np.int32) if counts is None else np.array(counts, np.int32)
    rescale = np.ones(M, np.float32) if rescale is None else rescale
    unit, weight = np.empty((nx, sum(lengths)), np.uint32), np.empty((nx, sum(lengths)), np.float32)
    lengths = np.array(lengths, np.int32)
    _kernels.omp_path(A @ A.T, X @ A.T, support, counts, NO_FIRST, rescale, lengths, unit, weight)
    return unit, weight


@pytest.mark.parametrize(("d", "M", "L"), [(40, 60, 10), (90, 80, 80), (3, 10, 3), (64, 1, 5)])
def test_omp(isa, rng, d, M, L):
    A, X = unit_rows(rng, M, d), unit_rows(rng, 4, d)
    rescale = rng.uniform(0.5, 2, M).astype(np.float32)
    unit, weight = omp_path(A, X, [L], rescale=rescale)
    for b in range(4):
        mine = {int(u): w / rescale[u] for u, w in zip(unit[b], weight[b], strict=True) if w != 0}
        assert (np.diff(np.abs(weight[b])) <= 0).all()
        theirs = reference.omp(A.astype(np.float64), X[b].astype(np.float64), L)
        assert mine.keys() == theirs.keys()
        assert np.allclose([mine[u] for u in theirs], list(theirs.values()), atol=2e-3)


def test_the_path_of_omp_holds_the_solution_after_each_length(isa, rng):
    A, X = unit_rows(rng, 150, 120), rng.standard_normal((5, 120), np.float32)
    lengths, counts = [1, 7, 64, 100], [150, 149, 30, 5, 1]
    path = omp_path(A, X, lengths, counts)
    for L, end in zip(lengths, np.cumsum(lengths), strict=True):
        alone = omp_path(A, X, [L], counts)
        assert all((part[:, end - L : end] == one).all() for part, one in zip(path, alone, strict=True))


def test_omp_skips_atoms_that_repeat_others(isa, rng):
    A, X = np.tile(unit_rows(rng, 6, 20), (3, 1)), rng.standard_normal((4, 20), np.float32)
    unit, weight = omp_path(A, X, [18])
    assert ((weight != 0).sum(axis=1) == 6).all()
    best = np.linalg.lstsq(A[:6].T, X.T, rcond=None)[0].T @ A[:6]
    assert np.allclose((weight[:, :, None] * A[unit]).sum(axis=1), best, atol=1e-4)


@pytest.mark.parametrize(
    ("unit", "weight", "L"),
    [
        *((np.uint16, np.int8, L) for L in (1, 4, 16, 17, 64, 65, 100)),
        *((kind, weight, L) for kind, weight in WIDE for L in (17, 100)),
    ],
)
def test_decode_and_refine(isa, rng, unit, weight, L):
    N, M, R = 100, 50, 37
    codes = some_codes(rng, N, L, M, unit, weight)
    u, w = codes.matrices()
    bias = rng.standard_normal(N).astype(np.float32)
    lengths = rng.integers(0, L + 1, N).astype(np.uint16)
    C = rng.standard_normal((16, M), np.float32)

    def estimates(counts):
        return np.array([reference.estimates(u, w.astype(float), codes.scale, bias, counts, c) for c in C])

    whole = estimates(np.full(N, L))
    atol = 1e-5 * np.abs(whole).max()

    def check(scores, rows, expected):
        assert len(set(rows)) == R
        assert np.allclose(scores, expected[rows], atol=atol)
        assert np.allclose(np.sort(scores), np.sort(expected)[-R:], atol=atol)

    one, row = np.empty(R, np.float32), np.empty(R, np.int32)
    for used, expected in ((ALL, whole), (lengths, estimates(lengths))):
        for queries in (1, 5, 16):
            scores, rows = np.empty((queries, R), np.float32), np.empty((queries, R), np.int32)
            lanes = np.zeros((M, 16), np.float32)
            lanes[:, :queries] = C[:queries].T
            _kernels.decode_tile(codes.unit, codes.weight, codes.scale, bias, used, lanes, scores, rows)
            for found in zip(scores, rows, expected[:queries], strict=True):
                check(*found)
        _kernels.decode_one(codes.unit, codes.weight, codes.scale, bias, used, C[0], one, row)
        check(one, row, expected[0])
    short = np.minimum(lengths, 16)
    prefix = Prefix.from_lengths(codes, short)
    _kernels.decode_prefix(prefix.row, prefix.starts, prefix.unit, prefix.weight, codes.scale, bias, C[0], one, row)
    check(one, row, estimates(short)[0])
    some = rng.integers(-1, N, (16, 20)).astype(np.int32)
    start, final = (np.take_along_axis(of, np.maximum(some, 0).astype(int), axis=1) for of in (expected, whole))
    refined = start.astype(np.float32)
    _kernels.refine(codes.unit, codes.weight, codes.scale, lengths, C, some, refined)
    assert np.allclose(refined, np.where(some >= 0, final, start), atol=atol)


def test_decode_keeps_the_lower_of_equal_rows(isa):
    N = 1000
    codes = Codes.from_matrices(np.zeros((N, 2), np.uint16), np.ones((N, 2), np.int8), np.ones(N, np.float32))
    prefix, lanes = Prefix.of(codes, 0.5), np.ones((1, 16), np.float32)
    U0 = (prefix.row, prefix.starts, prefix.unit, prefix.weight, codes.scale)
    U = (codes.unit, codes.weight, codes.scale)
    for queries, R in [(1, 10), (16, 300), (16, N)]:
        scores, rows = np.empty((queries, R), np.float32), np.empty((queries, R), np.int32)
        _kernels.decode_tile(*U, NO_BIAS, ALL, lanes, scores, rows)
        assert (np.sort(rows, axis=1) == np.arange(R)).all()
        _kernels.decode_one(*U, NO_BIAS, ALL, lanes[0], scores[0], rows[0])
        assert (np.sort(rows[0]) == np.arange(R)).all()
        _kernels.decode_prefix(*U0, NO_BIAS, lanes[0], scores[0], rows[0])
        assert (np.sort(rows[0]) == np.arange(R)).all()


@pytest.mark.parametrize("L", [1, 16, 40, 70])
def test_reconstruct(isa, rng, L):
    codes = some_codes(rng, 20, L, 30, np.uint16, np.float32)
    unit, weight = codes.matrices()
    Y = rng.standard_normal((30, 11), np.float32)
    expected = codes.scale[:, None] * (weight[:, :, None] * Y[unit]).sum(axis=1)
    assert np.allclose(codes.reconstruct(Y), expected, atol=1e-4)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 60))
def test_rank(seed, n, k):
    """Equal scores are ranked by id; NaN counts as -inf, so that it is among the last."""
    rng = np.random.default_rng(seed)
    scores = rng.choice(np.array([0, 1, 2, np.inf, -np.inf, np.nan], np.float32), (3, n))
    ids = np.array([rng.permutation(n) for _ in range(3)])
    order = np.empty((3, min(n, k)), np.int64)
    _kernels.rank(scores, ids, order)
    for q in range(3):
        assert order[q].tolist() == reference.best(np.where(np.isnan(scores[q]), -np.inf, scores[q]), k, ids[q])


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 4), st.integers(1, 50))
def test_suppress(seed, length, m, depth):
    units = np.random.default_rng(seed).integers(0, 40, (3, length, m)) * 1_000_003
    order, counts = np.empty((3, length), np.int64), np.empty(3, np.int64)
    _kernels.suppress(units, depth, order, counts)
    for q in range(3):
        assert 0 < counts[q] <= length
        assert (np.diff(order[q, : counts[q]]) > 0).all()
        assert order[q].tolist() == reference.suppress([set(mine.tolist()) for mine in units[q]], depth)


def test_an_unknown_instruction_set_is_refused():
    with pytest.raises(ValueError, match="no instruction set 'mmx'"):
        _kernels.use_instruction_set("mmx")


@pytest.mark.parametrize("dim", [1, 15, 64, 130])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (4, 3), (7, 9)])
def test_byte_products(isa, rng, rows, columns, dim):
    X, Y = (rng.integers(-127, 128, (count, dim)).astype(np.int8) for count in (rows, columns))
    X[0] = Y[0] = -127  # the largest products
    out = np.empty((rows, columns), np.int32)
    _kernels.byte_products(X, Y, out)
    np.testing.assert_array_equal(out, X.astype(np.int32) @ Y.T.astype(np.int32))


def test_to_int8(rng):
    V = rng.standard_normal((20, 37), np.float32) * np.logspace(-20, 20, 20, dtype=np.float32)[:, None]
    V[3] = 0
    codes, scale = np.empty(V.shape, np.int8), np.empty(20, np.float32)
    _kernels.to_int8(V, codes, scale)
    for row in range(20):
        step = np.abs(V[row]).max() / np.float32(127)
        assert scale[row] == step
        assert codes[row].tolist() == [round(float(v / step)) if step else 0 for v in V[row]]


@pytest.mark.parametrize(("dim", "normalize"), [(1, True), (7, False), (8, True), (1536, True), (1536, False)])
def test_norms_agree_with_numpy(dim, normalize):
    X = np.random.default_rng(dim).standard_normal((5, dim)).astype(np.float32)
    given, norms = X.copy(), np.empty(5)
    assert _kernels.divide_by_norms(given, normalize, 1e-15, 1e18, norms)
    expected = np.linalg.norm(X.astype(np.float64), axis=1)
    np.testing.assert_allclose(norms, expected, rtol=1e-12)
    np.testing.assert_allclose(given, X / expected[:, None] if normalize else X, rtol=1e-6)


@pytest.mark.parametrize("value", [0, np.nan, np.inf, 1e19, 1e-16])
def test_rows_without_a_usable_norm_stay_as_they_are(value):
    X = np.ones((3, 4), np.float32)
    X[1] = value
    given, norms = X.copy(), np.empty(3)
    tiny = value == 1e-16  # has a direction
    assert _kernels.divide_by_norms(given, True, 1e-15, 1e18, norms) == tiny
    np.testing.assert_allclose(given, [[0.5], [0.5 if tiny else value], [0.5]] * np.ones(4))
    assert _kernels.divide_by_norms(X.copy(), False, 1e-15, 1e18, norms) == (value == 0)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 1000])
def test_permutations_are_recognized(count):
    rng = np.random.default_rng(count)
    row = rng.permutation(count).astype(np.uint32)
    assert _kernels.is_permutation(row)
    for wrong in (count, count + 64, 0xFFFFFFFF, *(row[1:2].tolist())):
        if count:
            changed = row.copy()
            changed[0] = wrong
            assert not _kernels.is_permutation(changed)
            assert sorted(changed.tolist()) != list(range(count))

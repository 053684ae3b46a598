"""The units nearest to vectors, and k-means, which compares vectors with few of them."""

import numpy as np
import pytest
import reference

from logt import _kernels
from logt._internal.kmeans import kmeans
from logt._internal.nearest import UnitFinder
from logt._internal.threads import SERIAL, Workers


def byte_rows(rng, count, dim):
    codes = rng.integers(-127, 128, (count, dim)).astype(np.int8)
    return codes, rng.uniform(0.5, 1.5, count).astype(np.float32) / np.float32(127 * np.sqrt(dim))


def empty_answers(rows, k):
    return (
        np.zeros(rows, np.uint32),
        np.full(rows, -np.inf, np.float32),
        np.zeros((rows, k), np.uint32),
        np.zeros((rows, k), np.float32),
        np.zeros(rows, np.int32),
    )


NO_LISTS = np.empty(0, np.int64), np.empty(0, np.uint32), np.empty((0, 0), np.uint32)


@pytest.mark.parametrize("dim", [3, 64, 150])
@pytest.mark.parametrize("k", [0, 1, 5, 40])
@pytest.mark.parametrize("rows", [1, 4, 11])
def test_nearest_units_equal_a_naive_sort(isa, rng, dim, k, rows):
    (X, X_scale), (Y, Y_scale) = byte_rows(rng, rows, dim), byte_rows(rng, 40, dim)
    norm = rng.uniform(0.5, 2, 40).astype(np.float32)
    nearest, value, unit, product, counts = answers = empty_answers(rows, k)
    _kernels.nearest_units(X, X_scale, Y, Y_scale, norm, *NO_LISTS, *answers)
    x, y = X * X_scale[:, None].astype(float), Y * Y_scale[:, None].astype(float)
    for i in range(rows):
        expected = reference.nearest_units(x[i], y, norm, k)
        assert nearest[i] == expected[0]
        np.testing.assert_allclose(value[i], expected[1], rtol=1e-4, atol=1e-5)
        assert unit[i].tolist() == expected[2]
        np.testing.assert_allclose(product[i], y[unit[i]] @ x[i], rtol=1e-4, atol=1e-5)
        assert counts[i] == k


def test_only_the_units_of_some_lists_are_compared_and_none_twice(isa, rng):
    (X, X_scale), (Y, Y_scale) = byte_rows(rng, 9, 70), byte_rows(rng, 40, 70)
    norm, k = np.ones(40, np.float32), 12
    lists = [rng.choice(40, size, replace=False) for size in (0, 3, 10, 7, 1)]
    starts = np.concatenate([[0], np.cumsum([len(units) for units in lists])])
    chosen = np.array([rng.choice(5, 2, replace=False) for _ in range(9)], np.uint32)
    chosen[0] = 2, 1
    nearest, _, unit, product, counts = answers = empty_answers(9, k)
    members = np.concatenate(lists).astype(np.uint32)
    for _ in range(2):  # what is there before stays
        _kernels.nearest_units(X, X_scale, Y, Y_scale, norm, starts, members, chosen, *answers)
        for i in range(9):
            some = sorted({int(j) for number in chosen[i] for j in lists[number]})
            y = Y[some] * Y_scale[some, None].astype(float)
            first, _, best = reference.nearest_units(X[i] * X_scale[i].astype(float), y, norm[some], k)
            assert counts[i] == len(best) == min(k, len(some))
            assert unit[i, : counts[i]].tolist() == [some[j] for j in best]
            assert nearest[i] == some[first]
            assert (np.diff(product[i, : counts[i]]) <= 0).all()


@pytest.mark.parametrize("dim", [2, 200])
def test_a_finder_finds_the_nearest_unit_among_all_or_among_some(rng, dim):
    Y = rng.standard_normal((300, dim), np.float32) * rng.uniform(0.5, 2, (300, 1)).astype(np.float32)
    X = Y + np.float32(0.01) * rng.standard_normal(Y.shape, np.float32)
    exact = (X @ Y.T - np.square(Y).sum(axis=1) / 2).argmax(axis=1)
    found = UnitFinder(Y).find(X, 8)
    assert np.mean(found.nearest == exact) > 0.99
    assert (found.unit == found.nearest[:, None]).any(axis=1).all()
    atoms = Y / np.linalg.norm(Y, axis=1, keepdims=True)
    products = np.einsum("ij,ikj->ik", X, atoms[found.unit])
    np.testing.assert_allclose(found.product, products, atol=0.01 * np.linalg.norm(X, axis=1).max())
    assert (UnitFinder(Y).find_among(X, found.unit).nearest == found.nearest).all()


def test_k_means_compares_vectors_with_all_centroids_in_few_rounds_and_finds_what_it_finds_with_all(rng, monkeypatch):
    X = rng.standard_normal((4000, 96), np.float32)
    X[:, 8:] *= 0.2
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    compared, find = [], UnitFinder.find

    def counted(self, V, k=0):
        compared.append(len(V))
        return find(self, V, k)

    monkeypatch.setattr(UnitFinder, "find", counted)
    few = kmeans(X, 128, np.random.default_rng(0), Workers(2))
    assert sum(compared) == 4 * len(X)  # of 9
    monkeypatch.setattr(UnitFinder, "find_among", lambda self, V, units: find(self, V))
    all_centroids = kmeans(X, 128, np.random.default_rng(0))
    assert np.mean(few == all_centroids) > 0.95


def test_many_units_are_found_by_groups_with_few_products(rng, monkeypatch):
    top = rng.standard_normal((40, 100), np.float32)
    Y = top[rng.integers(0, 40, 2500)] + np.float32(0.7) * rng.standard_normal((2500, 100), np.float32)
    X = Y[rng.integers(0, 2500, 3000)] + np.float32(0.5) * rng.standard_normal((3000, 100), np.float32)
    units = UnitFinder(Y)
    assert units.grouped(2499, SERIAL) is units  # too few rows to group units for
    expected = units.find(X, 32)
    grouped, one = (units.grouped(3000, Workers(threads)) for threads in (2, 1))
    compared, kernel = [], _kernels.nearest_units

    def counted(*arguments):
        rows, units, starts, lists = (arguments[place] for place in (0, 2, 5, 7))
        compared.append(np.diff(starts)[lists].sum() if len(starts) else len(rows) * len(units))
        kernel(*arguments)

    monkeypatch.setattr(_kernels, "nearest_units", counted)
    found, again = grouped.find(X, 32), one.find(X, 32)
    assert sum(compared) / 2 < 0.5 * len(X) * len(Y)
    assert np.mean(found.nearest == expected.nearest) > 0.98
    assert np.mean(found.product[:, :4] == expected.product[:, :4]) > 0.95
    assert (found.unit == again.unit).all()

import numpy as np
import pytest
from exact_index import built

from logt._internal.threads import SERIAL, Workers
from logt.errors import InvalidInputError
from logt.group_testing.codes import Codes
from logt.group_testing.dictionary import DictionaryLearning, _normal_equations, _update_atoms, sensitivities
from logt.group_testing.grouping import KMeans, Units
from logt.group_testing.memory_vectors import Mean
from logt.methods import dictionary


@pytest.fixture(scope="module")
def training_set(vectors):
    X = vectors(1200, 48)
    return X, KMeans(n=12.5, rounds=2)(X, np.random.default_rng(0))


def sparse_mixtures(rng, atoms, N, L):
    """Vectors of L atoms each."""
    U = np.zeros((N, len(atoms)), np.float32)
    for row in U:
        row[rng.choice(len(atoms), L, replace=False)] = rng.standard_normal(L)
    X = U @ atoms
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("coreset", [None, "sensitivity"])
def test_the_objective_never_rises_and_falls_with_atoms_no_longer_than_one(training_set, coreset):
    X, units = training_set
    learning = DictionaryLearning(L=5, epochs=8, candidates=30, coreset=coreset)
    atoms, objectives = zip(*learning.epoch_by_epoch(X, units, np.random.default_rng(0)), strict=True)
    assert (np.diff(objectives) <= 1e-9).all()
    assert objectives[-1] < 0.9 * objectives[0]
    assert atoms[-1].shape == (units.count, 48)
    assert (np.linalg.norm(atoms[-1], axis=1) <= 1 + 1e-5).all()


def test_the_objective_is_the_mean_residual_energy(training_set):
    """The last one, of codes from the round before, is at least the error of new codes, up to the loss of greed."""
    X, units = training_set
    learning = DictionaryLearning(L=5, epochs=3, candidates=96)
    *_, (Y, objective) = learning.epoch_by_epoch(X, units, np.random.default_rng(0))
    fresh = learning._encode(X, Y, SERIAL)
    left = 0.5 * np.square(X - fresh.reconstruct(Y)).sum(axis=1).mean()
    assert left == pytest.approx(objective, rel=0.05)


def test_the_atoms_of_synthetic_vectors_are_recovered(rng):
    atoms = rng.standard_normal((30, 40)).astype(np.float32)
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    X = sparse_mixtures(rng, atoms, 3000, 3)
    units = KMeans(100)(X, rng)
    Y = DictionaryLearning(L=3, epochs=25, candidates=30)(X, units, rng)
    assert (np.abs(atoms @ Y.T).max(axis=1) > 0.98).mean() > 0.8


def test_an_update_solves_least_squares(rng):
    """Enough sweeps from anywhere lead to the solution; atoms without use stay where they are."""
    unit = np.array([rng.permutation(11)[:4] for _ in range(300)], np.uint16)
    codes = Codes.from_matrices(unit, rng.standard_normal((300, 4), np.float32), np.ones(300, np.float32))
    S, Y = rng.standard_normal((300, 7), np.float32), rng.standard_normal((12, 7), np.float32)
    solved = Y
    for _ in range(3):
        solved = _update_atoms(S, codes, solved, SERIAL)
    U = np.zeros((300, 12))
    np.put_along_axis(U, unit.astype(int), codes.matrices()[1], axis=1)
    best = np.linalg.lstsq(U[:, :11], S, rcond=None)[0]
    assert np.allclose(solved[:11], best, atol=1e-3)
    assert (solved[11] == Y[11]).all()
    A, B = _normal_equations(S, codes, 12, Workers(2))
    assert np.allclose(A, U.T @ U, atol=1e-3)
    assert np.allclose(B, U.T @ S, atol=1e-3)


def test_a_weight_counts_as_copies(training_set):
    """Training on √w·x gives the same atoms as training on w copies of x."""
    X, units = training_set
    learning = DictionaryLearning(L=4, candidates=96)
    Y = Mean()(X, units)
    heavy = np.where(np.arange(1200) % 3 == 0, 4, 1)
    errors = []
    for S in (X * np.sqrt(heavy)[:, None].astype(np.float32), np.repeat(X, heavy, axis=0)):
        codes = learning._encode(S, Y, SERIAL)
        solved = _update_atoms(S, codes, Y, SERIAL)
        errors.append(np.square(S - codes.reconstruct(solved)).sum())
    assert errors[0] == pytest.approx(errors[1], rel=1e-3)


def test_sensitivities_are_probabilities_and_favour_isolated_vectors(training_set):
    X, units = training_set
    Y = Mean()(X, units)
    p = sensitivities(X, Y, units)
    assert p.sum() == pytest.approx(1)
    assert (p > 0).all()
    far = np.square(X - Y[units.assignment[:, 0]]).sum(axis=1)
    alone = np.bincount(units.assignment[:, 0])[units.assignment[:, 0]] == np.bincount(units.assignment[:, 0]).max()
    assert np.corrcoef(far[alone], p[alone])[0, 1] > 0.99


def test_a_coreset_represents_all_vectors(training_set):
    X, units = training_set
    learning = DictionaryLearning(coreset="sensitivity")
    Y = Mean()(X, units)
    drawn = [learning._draw(X, Y, units, np.random.default_rng(seed)) for seed in range(40)]
    sums = [weight.sum() for _, weight in drawn]
    assert np.mean(sums) == pytest.approx(1200, rel=0.02)
    assert all(len(S) <= 240 for S, _ in drawn)
    means = np.mean([weight @ S for S, weight in drawn], axis=0)
    assert np.allclose(means, X.sum(axis=0), atol=0.03 * 1200)


def test_equal_vectors_make_finite_codes(vectors):
    X = np.repeat(vectors(2, 8), 30, axis=0)
    for method in (dictionary(n=12, L=3, epochs=2), dictionary(n=12, coreset="sensitivity")):
        index = built(X, method=method)
        assert np.isfinite(index.reconstruct(range(60))).all()


def test_atoms_whose_products_do_not_fit_are_refused(vectors, monkeypatch):
    monkeypatch.setattr("logt.group_testing.dictionary.memory_bytes", lambda: 10_000)
    with pytest.raises(InvalidInputError, match="atoms need"):
        DictionaryLearning(L=4)(vectors(9, 8), Units(np.zeros((9, 1), np.int32), 50), np.random.default_rng(0))

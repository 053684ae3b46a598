from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import logt
from logt.baselines import LLC, PCA, BackPropagation, Composed, Dictionary, Exhaustive, MemoryVectors, Smoothed
from logt.baselines.base import top_k
from logt.errors import InvalidInputError
from logt.group_testing.cascade import prefix_lengths
from logt.group_testing.grouping import KdTree
from logt.methods import gt, lo_gt, quantized, rnd, sketched


@pytest.fixture(scope="module")
def data(vectors):
    return vectors(900, 48), vectors(20, 48, seed=1)


def exact(X, Q, k):
    return np.argsort(-(Q.astype(float) @ X.T.astype(float)), axis=1, kind="stable")[:, :k]


def test_exhaustive_search_is_exact(data):
    X, Q = data
    built = Exhaustive().build(X)
    for k in (1, 10, 900):
        assert (built.search(Q, k) == exact(X, Q, k)).all()
        assert (built.search(Q, k, threads=2) == built.search(Q, k)).all()
    assert (built.nbytes, built.memory_ratio, built.rho()) == (X.nbytes, 1, 1)


def test_exhaustive_search_takes_any_norm_and_pads_short_lists(data):
    X, Q = data
    ids = Exhaustive().build(X * 7.0).search(Q[0] * 3, 902)
    assert (ids[0, :900] == exact(X, Q[:1], 900)).all()
    assert (ids[0, 900:] == -1).all()


@pytest.mark.parametrize(
    "system", [Composed(rnd(n=10, m=2, L=8), batches=2), BackPropagation(n=10), MemoryVectors(), PCA(8), Exhaustive()]
)
def test_builds_accept_true_as_progress(data, system, capfd):
    system.build(data[0], progress=True)
    assert capfd.readouterr().out == ""


def test_equal_scores_are_ranked_by_row():
    assert (top_k(np.ones((2, 30), np.float32), 7) == np.arange(7)).all()


def test_systems_refuse_invalid_vectors_and_queries(data):
    X, Q = data
    with pytest.raises(InvalidInputError, match="row 0 of X"):
        Exhaustive().build(X * 0)
    built = Exhaustive().build(X)
    with pytest.raises(InvalidInputError, match="row 0 of Q"):
        built.search(Q * np.nan, 5)
    with pytest.raises(InvalidInputError, match="dimension 48"):
        built.search(Q[:, :7], 5)


@pytest.mark.parametrize(
    "system", [Exhaustive(), Composed(rnd()), BackPropagation(), MemoryVectors(KdTree()), Dictionary(), LLC(), PCA()]
)
def test_systems_refuse_an_empty_collection(system):
    with pytest.raises(InvalidInputError, match="no vectors"):
        system.build(np.empty((0, 8), np.float32))


def test_a_composed_system_equals_its_index(data, tmp_path):
    X, Q = data
    built = Composed(lo_gt(n=20, m=3, L=10)).build(X, seed=3)
    assert built.nbytes == built.index.report()["bytes"]
    built.index.save(tmp_path)
    assert (built.search(Q, 50, p=0.5) == logt.open(tmp_path).search(Q, 50, p=0.5).ids).all()


def test_a_smoothed_system_is_built_from_smoothed_vectors(data):
    X, Q = data
    built = Smoothed(Exhaustive(), n=3).build(X)
    assert (built.search(Q, 20) == Exhaustive().build(logt.smoothed(X, n=3)).search(Q, 20)).all()


def test_complexity_counts_the_entries_that_a_search_reads(data):
    X, _ = data
    M, N, d = 135, 900, 48
    full = Composed(lo_gt(n=20, m=3, L=10)).build(X)
    assert full.rho() == full.memory_ratio == pytest.approx(M / N + 10 / d)
    segment = full.index._snapshot.segments[0]
    prefix = prefix_lengths(segment.codes, 0.5).mean()
    refined = prefix + 90 / N * (10 - prefix)
    assert full.rho(p=0.5, R=90) == pytest.approx(M / N + refined / d)
    assert full.rho(p=1.0) == pytest.approx(full.rho())
    inverse = Composed(gt(n=20, m=3, inverse=True)).build(X)
    assert inverse.rho() == inverse.memory_ratio == pytest.approx(M / N + M / d)


def test_complexity_of_quantized_memory_vectors_counts_look_ups(data):
    X, _ = data
    M, N, d, c = 135, 900, 48, 8
    built = Composed(quantized(rnd(n=20, m=3, L=10), c=c)).build(X)
    centroids = 128  # the most that 135 memory vectors allow
    assert built.rho() == pytest.approx((centroids * d + M * c + 10 * N) / (d * N))


def test_complexity_of_probing_rises_with_effort(data):
    built = Composed(sketched()).build(data[0])
    efforts = [built.rho(effort=e) for e in (0.0, 0.4, 0.8, 1.0)]
    assert efforts == sorted(efforts)
    assert efforts[-1] >= 1


def test_batches_hold_each_vector_once(data):
    X, Q = data
    built = Composed(rnd(n=20, m=3, L=10), batches=4).build(X, seed=1)
    assert built.index.report()["segments"] == 4
    assert (np.sort(built.search(Q, 900), axis=1) == np.arange(900)).all()


@pytest.mark.parametrize("system", [Exhaustive(), Composed(rnd(n=20, m=3, L=10), name="RND")])
def test_the_repr_of_a_system_is_its_configuration(system):
    assert replace(system) == system
    assert type(system).__name__ in repr(system)
    assert system.name

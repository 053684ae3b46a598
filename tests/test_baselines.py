import importlib

import numpy as np
import pytest
import reference
from exact_index import nearest

import logt
from logt.baselines import HNSW, BackPropagation, Composed, Exhaustive, Flann, System
from logt.errors import InvalidInputError, MissingExtraError
from logt.evaluation import recall_at
from logt.group_testing.cascade import prefix_lengths
from logt.group_testing.grouping import Random
from logt.methods import gt, lo_gt, quantized, rnd

N, D = 1500, 48


@pytest.fixture(scope="module")
def data(vectors):
    return vectors(N, D), vectors(20, D, seed=1)


def named(value):
    return repr(value) if isinstance(value, System) else ""


@pytest.mark.parametrize(
    ("system", "setting", "min_recall"),
    [
        (Exhaustive(), {}, 1),
        (HNSW(16), {"ef": 300}, 0.98),
        (Flann(algorithm="kdtree"), {"checks": N}, 0.95),
        (Flann(algorithm="kmeans"), {"checks": N}, 0.95),
        (BackPropagation(20, 3), {"verified": N}, 1),
    ],
    ids=named,
)
def test_each_system_reaches_its_recall_and_pads_short_lists(data, system, setting, min_recall):
    X, Q = data
    if isinstance(system, Flann):
        pytest.importorskip("pyflann_ibeis", reason="FLANN has no wheel for this processor")
    built = system.build(7.0 * X, seed=0, threads=1)
    ids = built.search(3 * Q, 10, **setting)
    assert ids.dtype == np.int64
    assert recall_at(10, ids, nearest(X, Q, 10)) >= min_recall
    assert (built.search(Q[0], 10, **setting) == ids[:1]).all()
    assert min(built.memory_ratio, built.nbytes) > 0
    assert 0 < built.rho(**setting) < 2
    assert (built.search(Q, N + 2, **setting)[:, N:] == -1).all()


@pytest.mark.parametrize(
    ("system", "setting"),
    [(Exhaustive(), {}), (BackPropagation(20, 3), {"verified": 50})],
    ids=named,
)
def test_results_do_not_depend_on_the_number_of_threads(data, system, setting):
    X, Q = data
    one, two = (system.build(X, threads=t).search(Q, 100, threads=t, **setting) for t in (1, 2))
    assert (one == two).all()


def test_systems_refuse_invalid_vectors_and_queries(data):
    X, Q = data
    with pytest.raises(InvalidInputError, match="row 0 of X"):
        Exhaustive().build(X * 0)
    built = Exhaustive().build(X)
    with pytest.raises(InvalidInputError, match="row 0 of Q"):
        built.search(Q * np.nan, 5)
    with pytest.raises(InvalidInputError, match="dimension 48"):
        built.search(Q[:, :7], 5)
    with pytest.raises(InvalidInputError, match="ef must be"):
        HNSW().build(X).search(Q, 5, ef=0)
    with pytest.raises(InvalidInputError, match="verified"):
        BackPropagation().build(X).search(Q, 5, verified=0)
    for system in (Exhaustive(), Composed(rnd())):
        with pytest.raises(InvalidInputError, match="no vectors"):
            system.build(X[:0])


@pytest.mark.parametrize("wrong", [{"precision": 0.0}, {"algorithm": "lsh"}])
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(InvalidInputError, match="must be"):
        Flann(**wrong)


@pytest.mark.parametrize("system", [HNSW(), Flann()], ids=named)
def test_the_error_of_a_missing_library_names_its_extra(data, system, monkeypatch):
    def absent(name, *rest):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(MissingExtraError, match=r"logt-search\[baselines\]"):
        system.build(data[0])


def test_a_composed_system_equals_its_index(data, tmp_path):
    X, Q = data
    built = Composed(lo_gt(n=20, m=3, L=10)).build(X, seed=3)
    assert built.nbytes == built.index.report()["bytes"]
    built.index.save(tmp_path)
    assert (built.search(Q, 50, p=0.5) == logt.open(tmp_path).search(Q, 50, p=0.5).ids).all()


def test_batches_hold_each_vector_once(data):
    X, Q = data
    built = Composed(rnd(n=20, m=3, L=10), batches=4).build(X, seed=1)
    assert built.index.report()["segments"] == 4
    assert (np.sort(built.search(Q, N), axis=1) == np.arange(N)).all()


def test_complexity_counts_the_entries_that_a_search_reads(data):
    X, _ = data
    M = N * 3 // 20
    full = Composed(lo_gt(n=20, m=3, L=10)).build(X)
    assert full.rho() == full.memory_ratio == pytest.approx(M / N + 10 / D)
    segment = full.index._snapshot.segments[0]
    prefix = prefix_lengths(segment.codes, 0.5).mean()
    refined = prefix + 90 / N * (10 - prefix)
    assert full.rho(p=0.5, R=90) == pytest.approx(M / N + refined / D)
    assert full.rho(p=1.0) == pytest.approx(full.rho())
    inverse = Composed(gt(n=20, m=3, inverse=True)).build(X)
    assert inverse.rho() == inverse.memory_ratio == pytest.approx(M / N + M / D)


def test_complexity_of_quantized_memory_vectors_counts_look_ups(data):
    X = data[0][:900]
    built = Composed(quantized(rnd(n=20, m=3, L=10), c=8)).build(X)
    centroids = 128  # the most that 135 memory vectors allow
    assert built.rho() == pytest.approx((centroids * D + 135 * 8 + 10 * 900) / (D * 900))


def test_complexity_of_hnsw_counts_the_vectors_that_it_compares(data):
    graph = HNSW(16).build(data[0])
    assert 20 / N < graph.rho(ef=20) < graph.rho(ef=200) < 1


@pytest.fixture(scope="module")
def small(vectors):
    return vectors(600, 32), vectors(12, 32, seed=1)


@pytest.mark.parametrize("verified", [7, 60, 150])
def test_back_propagation_equals_its_equations(small, verified):
    X, Q = small[0][:150].astype(np.float64), small[1][:3].astype(np.float64)
    X, Q = X / np.linalg.norm(X, axis=1)[:, None], Q / np.linalg.norm(Q, axis=1)[:, None]
    assignment = Random(8, 3)(X, np.random.default_rng(5)).assignment
    built = BackPropagation(8, 3, batches=4).build(X, seed=5)
    sizes = np.diff(np.linspace(0, verified, 5).astype(int))
    for q, found in zip(Q, built.search(Q, 150, verified=verified), strict=True):
        naive = reference.back_propagation(X, assignment, q, sizes)
        assert (np.array(naive) == found).mean() > 0.97  # float32 may swap nearly equal scores
        assert naive[:verified] == found[:verified].tolist()


def test_complexity_counts_verified_vectors(small):
    X, _ = small
    built = BackPropagation(20, 3).build(X)
    N, d, M, R = 600, 32, 90, 100
    assert built.rho(verified=R) == pytest.approx(M / N + 11 * 3 / d + R / N + R * 3 / (d * N))
    assert built.memory_ratio == 1 + M / N
    assert built.nbytes == X.nbytes + 4 * M * d + 4 * 3 * N

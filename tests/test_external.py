from __future__ import annotations

import importlib

import numpy as np
import pytest

from logt.baselines import HNSW, PCA, Faiss, Flann, Turbovec
from logt.baselines.base import normalize_vectors
from logt.errors import InvalidInputError, MissingExtraError
from logt.evaluation import recall_at
from logt.group_testing.quantize import Int8

SYSTEMS = [
    (Faiss("SQ8"), {}, 0.98),
    (Faiss("SQ4"), {}, 0.75),
    (Faiss("PQ32x4np"), {}, 0.45),
    (Faiss("RaBitQ"), {}, 0.2),
    (Faiss("IVF16,SQ8"), {"nprobe": 16}, 0.98),
    (HNSW(16), {"ef": 300}, 0.98),
    (Flann(algorithm="kdtree"), {"checks": 3000}, 0.95),
    (Flann(algorithm="kmeans"), {"checks": 3000}, 0.95),
    (Turbovec(4), {}, 0.75),
    (PCA(64), {}, 0.999),
    (PCA(64, Int8()), {}, 0.95),
]


@pytest.fixture(scope="module")
def data(vectors):
    return vectors(3000, 64), vectors(30, 64, seed=1)


def exact(X, Q, k):
    return np.argsort(-(Q @ X.T), axis=1, kind="stable")[:, :k]


@pytest.mark.parametrize(("system", "setting", "min_recall"), SYSTEMS, ids=lambda value: getattr(value, "name", ""))
def test_each_system_reaches_its_recall(data, system, setting, min_recall):
    X, Q = data
    if isinstance(system, Flann):
        pytest.importorskip("pyflann_ibeis", reason="needs FLANN: an x86-64 processor")
    built = system.build(X, seed=0, threads=1)
    ids = built.search(Q, 10, **setting)
    assert ids.shape == (30, 10)
    assert ids.dtype == np.int64
    assert recall_at(10, ids, exact(X, Q, 10)) >= min_recall
    assert (built.search(Q[0], 10, **setting) == ids[:1]).all()
    assert built.memory_ratio > 0
    assert built.nbytes > 0
    assert 0 < built.rho(**setting) < 1.2


@pytest.mark.parametrize("system", [Faiss("SQ8"), HNSW(16), Turbovec(4), PCA(16)], ids=lambda system: system.name)
def test_short_lists_are_padded_with_minus_one(data, system):
    ids = system.build(data[0][:20]).search(data[1], 25)
    assert (ids[:, 20:] == -1).all()
    assert (np.sort(ids[:, :20], axis=1) == np.arange(20)).all()


def test_complexity_rises_with_nprobe_and_ef(data):
    X, _ = data
    lists = Faiss("IVF16,SQ8").build(X)
    assert 16 / 3000 < lists.rho(nprobe=1) < lists.rho(nprobe=4) < lists.rho(nprobe=16)
    assert lists.rho(nprobe=16) == pytest.approx(1 + 16 / 3000)
    graph = HNSW(16).build(X)
    assert graph.rho(ef=20) < graph.rho(ef=200)
    assert Faiss("SQ8").build(X).rho() == 1
    assert Faiss("PQ16x4np").build(X).rho() == pytest.approx((16 * 3000 + 16 * 64) / (64 * 3000))


def test_nprobe_is_refused_without_inverted_lists(data):
    with pytest.raises(InvalidInputError, match="nprobe"):
        Faiss("SQ8").build(data[0]).search(data[1], 5, nprobe=3)


def test_an_invalid_factory_string_is_named(data):
    with pytest.raises(InvalidInputError, match="SQ9000"):
        Faiss("SQ9000").build(data[0])


@pytest.mark.parametrize(("rho", "d"), [(0.25, 64), (0.5, 64), (1.0, 64)])
def test_pca_has_the_requested_complexity(data, rho, d):
    X, _ = data
    system = PCA(rho)
    assert system.build(X).rho() <= rho
    assert PCA(system.count(*X.shape) + 1).build(X).rho() > rho


def test_pca_with_all_axes_is_exact(data):
    X, Q = data
    assert recall_at(100, PCA(64).build(X).search(Q, 100), exact(X, Q, 100)) > 0.999


def test_pca_is_the_same_for_any_number_of_threads(data):
    one, two = (PCA(16).build(data[0], threads=t).search(data[1], 50) for t in (1, 2))
    assert (one == two).all()


@pytest.mark.parametrize(
    "wrong", [lambda: PCA(0), lambda: PCA(1.5), lambda: Turbovec(7), lambda: HNSW(0), lambda: Flann(0.0)]
)
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(InvalidInputError, match="must be"):
        wrong()


@pytest.mark.parametrize("system", [Faiss("SQ8"), HNSW(), Flann(), Turbovec()], ids=lambda system: system.name)
def test_the_error_of_a_missing_library_names_its_extra(data, system, monkeypatch):
    def absent(name, *rest):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(MissingExtraError, match=r"logt-search\[baselines\]"):
        system.build(data[0])


def test_normalized_vectors_are_not_copied(data):
    X, _ = data
    assert normalize_vectors(X) is X
    assert np.allclose(normalize_vectors(X.astype(np.float64) * 3), X, atol=1e-6)

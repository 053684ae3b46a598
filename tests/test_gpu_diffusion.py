"""Diffusion on a device: the ranking of the processor, and a kernel that agrees with that of the processor."""

from dataclasses import replace

import numpy as np
import pytest
from device_testing import DEVICE, DIM, clusters, on_gpu
from exact_index import built

import logt
from logt.engine import rerank
from logt.gpu.device import Device
from logt.gpu.diffusion import DeviceGraph, diffuse
from logt.gpu.host import HostKernels
from logt.graph.diffusion import Diffusion
from logt.graph.stored_graph import StoredGraph

Q = clusters(30, DIM, 4)


@pytest.fixture(scope="module")
def index():
    """A linked index without some of its vectors."""
    index = built(clusters(1500, DIM, 1), link=16)
    index.remove(np.arange(3, 1500, 17))
    return index


@pytest.fixture(scope="module")
def there(index):
    return index.to(DEVICE)


def assert_same_but_for_ties(found, expected, tolerance=1e-3):
    np.testing.assert_array_equal(found[1] >= 0, expected[1] >= 0)
    known = expected[1] >= 0
    np.testing.assert_allclose(found[0][known], expected[0][known], atol=tolerance)
    for mine, theirs, scores in zip(found[1], expected[1], expected[0], strict=True):
        for place in np.flatnonzero(mine != theirs):
            assert np.abs(np.delete(scores, place) - scores[place]).min() < tolerance


@pytest.mark.parametrize(
    "how",
    [
        *("diffusion", Diffusion(candidates=9, nodes=60, neighbors=7), Diffusion(hops=0), Diffusion(alpha=0)),
        *(Diffusion(candidates=200, hops=9, alpha=0.5), Diffusion(candidates=3, nodes=1), Diffusion(neighbors=10**6)),
    ],
    ids=str,
)
@pytest.mark.parametrize("k", [5, 120])
def test_the_ranking_is_that_of_the_processor(index, there, how, k):
    found, expected = (i.search(Q, k, rerank=how, effort=1.0) for i in (there, index))
    assert_same_but_for_ties((found.scores, found.ids), (expected.scores, expected.ids))


@pytest.mark.parametrize("passing", ["mask", "ids", "few ids"])
def test_only_what_passes_a_filter_is_found(index, there, passing):
    mask = np.random.default_rng(0).random(len(index)) < 0.5
    rule = mask if passing == "mask" else index.ids[mask] if passing == "ids" else index.ids[5:25]
    expected = index.search(Q, 40, rerank="diffusion", effort=1.0, filter=rule)
    for given in (rule, there.prepare(rule)):
        found = there.search(Q, 40, rerank="diffusion", effort=1.0, filter=given)
        assert_same_but_for_ties((found.scores, found.ids), (expected.scores, expected.ids))


def test_invalid_queries_have_no_results(there):
    wrong = Q.copy()
    wrong[7, 1] = np.nan
    found = there.search(wrong, 5, rerank="diffusion", on_invalid="ignore")
    assert (found.ids[7] == -1).all()
    np.testing.assert_array_equal(
        np.delete(found.ids, 7, 0), np.delete(there.search(Q, 5, rerank="diffusion").ids, 7, 0)
    )


def test_vectors_outside_the_graph_gain_as_much_as_the_nearest_result(index):
    graph = index._snapshot.graph.restrict(index.ids[::2])
    scores, ids = index.search(Q, 60, effort=1.0)
    expected = rerank.diffuse(replace(index._snapshot, graph=graph), Diffusion(), scores, ids, 80)
    device = Device(DEVICE)
    copied = DeviceGraph.copy(device, graph, 30)
    found = diffuse(device, copied, Diffusion(), device.put(scores), device.put(ids), 80, copied.live)
    found = tuple(map(device.get, found))
    width = expected[0].shape[1]
    assert (found[1][:, width:] == -1).all()
    assert_same_but_for_ties([part[:, :width] for part in found], expected, 1e-6)


def test_the_graph_is_copied_by_the_first_diffusion(index):
    there = index.to(DEVICE)
    before = there.report()["device bytes"]
    there.search(Q[:1])
    assert there.report()["device bytes"] == before
    there.search(Q[:1], rerank="diffusion")
    assert there.report()["device bytes"] > before + len(index) * 16 * 4


def test_a_graph_that_does_not_fit_is_refused(there, monkeypatch):
    monkeypatch.setattr(Device, "free_bytes", property(lambda self: 1 << 10))
    with pytest.raises(logt.DeviceMemoryError, match="a neighbor graph of"):
        there.search(Q[:1], rerank=Diffusion(neighbors=11))


@on_gpu
@pytest.mark.parametrize(
    "how",
    [
        *(
            Diffusion(),
            Diffusion(nodes=60),
            Diffusion(nodes=100, hops=7, alpha=0.99),
            Diffusion(candidates=4, hops=1),
        ),
        *(Diffusion(nodes=5000, hops=50, alpha=0.5), Diffusion(candidates=40, nodes=10), Diffusion(neighbors=3)),
    ],
    ids=str,
)
@pytest.mark.parametrize("share", [1, 0.6])
@pytest.mark.parametrize("wide", [False, True])
def test_spread(how, share, wide):
    rng, device = np.random.default_rng(0), Device(DEVICE)
    X = rng.standard_normal((5000, 5)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    S = X @ X.T
    np.fill_diagonal(S, -np.inf)
    neighbors = np.argsort(-S, axis=1)[:, :20].astype(np.int32)
    graph = StoredGraph.encode(np.arange(len(X)), neighbors, np.take_along_axis(S, neighbors, axis=1), 20)
    if wide:
        graph = replace(graph, high=graph.high.astype(np.uint16))
    cosine = X[:40] @ X.T
    rows = np.argsort(-cosine, axis=1)[:, :70]
    copies = [DeviceGraph.copy(place, graph, how.neighbors) for place in (Device("cpu"), device)]
    above = np.maximum(np.take_along_axis(cosine, rows, axis=1) - copies[0].background, 0).astype(float)
    visible = None if share == 1 else rng.random(len(X)) < share
    rows[rng.random(rows.shape) < 0.1] = -1
    y = above[:, : how.candidates] ** 3
    expected = HostKernels().spread(copies[0], rows, y, how, visible)
    seen = None if visible is None else device.put(visible)
    found = device.kernels.spread(copies[1], device.put(rows), device.put(y), how, seen)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(device.get(mine), theirs, atol=1e-9 if theirs.dtype == float else 0)

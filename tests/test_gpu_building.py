"""Builds and graphs on a device: as good as those of the processor."""

import numpy as np
import pytest
from device_testing import DEVICE, DIM, clusters
from exact_index import built, overlap, unmeasured

import logt
from logt.gpu.device import Device
from logt.gpu.neighbors import nearest_neighbors
from logt.gpu.search import DeviceSearcher
from logt.graph import build as graph_build
from logt.lists.calibration import calibrate
from logt.lists.inverted_lists import Probe
from logt.lists.search import ListSearcher

# ---------------------------------------------------------------------------------------------------------- building


@pytest.fixture(scope="module", params=["cosine", "l2"])
def built_there(request):
    X = clusters(1400, DIM, 1, norms=True)
    index = logt.Index(DIM, metric=request.param, device=DEVICE)
    index.add(X)
    return X, index


def test_an_index_that_was_built_there_is_as_good(built_there, tmp_path):
    X, index = built_there
    usual = logt.Index(DIM, metric=index.metric)
    usual.add(X)
    kept = X / np.linalg.norm(X, axis=1, keepdims=True) if index.metric == "cosine" else X
    errors = [np.linalg.norm(i.reconstruct(i.ids) - kept, axis=1).mean() for i in (index, usual)]
    assert errors[0] < 1.05 * errors[1]
    exact = ListSearcher(usual._snapshot.segments)
    truth = exact.search(kept[:60], 10, exact.limits(Probe(1.0), 10))[1]
    for settings in ({}, {"effort": 1.0}):
        shares = [overlap(i.search(X[:60], 10, **settings).ids, truth) for i in (index, usual)]
        assert shares[0] > shares[1] - 0.03
    index.save(tmp_path / "index")
    opened = logt.open(tmp_path / "index")
    np.testing.assert_array_equal(opened.search(X[:9]).ids, index.search(X[:9]).ids)


def test_the_same_vectors_give_the_same_bytes(built_there):
    X, index = built_there
    again = logt.Index(DIM, metric=index.metric, device=DEVICE)
    again.add(X)
    for one, other in zip(index._snapshot.segments, again._snapshot.segments, strict=True):
        for part in one.stored_parts:
            for name, array in one.stored_parts[part].arrays.items():
                np.testing.assert_array_equal(array, other.stored_parts[part].arrays[name], err_msg=name)


@unmeasured()
def test_a_row_that_is_not_valid_changes_nothing():
    X = clusters(2200, DIM, 1)
    X[1500, 3] = np.inf
    index = logt.Index(DIM, device=DEVICE)
    with pytest.raises(logt.InvalidInputError, match="row 1500 of X holds inf at column 3"):
        index.add(X)
    assert len(index) == 0
    with pytest.raises(logt.InvalidInputError, match="dimension 40"):
        index.add(X[:, :-1])
    index.add(X[:1200])
    with pytest.raises(logt.InvalidInputError, match="row 300 of X holds inf"):
        index.add(X[1200:])
    assert len(index) == 1200


class Blocks:
    """What can be sliced, and is read block by block."""

    def __init__(self, X):
        self._X, self.shape, self.dtype, self.longest = X, X.shape, X.dtype, 0

    def __len__(self):
        return len(self._X)

    def __getitem__(self, rows):
        part = self._X[rows]
        self.longest = max(self.longest, len(part))
        return part


@unmeasured()
def test_vectors_are_read_block_by_block(monkeypatch):
    X = clusters(2400, DIM, 1).astype(np.float16)
    source = Blocks(X)
    monkeypatch.setattr(Device, "workspace", 1 << 19)
    index = logt.Index(DIM, device=DEVICE, segment_size=1200)
    index.add(source)
    assert len(index) == 2400
    assert 0 < source.longest <= 2300  # a block, or the sample for training
    assert overlap(index.search(X[:50], 1, effort=1.0).ids, np.arange(50)[:, None]) > 0.98


@unmeasured()
def test_small_batches_are_encoded_there_too():
    index = logt.Index(DIM, device=DEVICE)
    for seed in range(3):
        new = clusters(40, DIM, seed)
        ids = index.add(new)
        np.testing.assert_array_equal(index.search(new, 1, effort=1.0).ids[:, 0], ids)


@pytest.mark.parametrize("metric", ["cosine", "ip"])
def test_the_graph_is_as_good(metric, monkeypatch):
    X = clusters(1500 if DEVICE == "cpu" else 20_000, 24, 1, norms=True)
    index = built(X, metric=metric)
    segments, workers = index._snapshot.segments, index._workers(None)
    monkeypatch.setattr(graph_build, "EXHAUSTIVE", 10**6)
    ids, exact, similarity = graph_build.nearest_neighbors(segments, 24, 10, workers)
    there, found, cosine = nearest_neighbors(Device(DEVICE), segments, 24, 10, workers)
    np.testing.assert_array_equal(there, ids)
    assert overlap(found, exact) > 0.9
    same = found == exact
    np.testing.assert_allclose(cosine[same], similarity[same], atol=2e-2)
    assert (found != np.arange(len(ids))[:, None]).all()


@unmeasured()
def test_a_graph_of_few_vectors():
    for count in (1, 2, 30):
        index = logt.Index(DIM)
        index.add(clusters(count, DIM, 1))
        index.link(5, device=DEVICE)
        assert (index.links is None) == (count == 1)
        if count > 1:
            assert np.diff(index.links.starts).max() == min(5, count - 1)


def test_full_reads_on_a_device_measure_the_same_recall():
    index = built(clusters(1300, DIM, 1), measure=False)
    segments = index._snapshot.segments
    usual = calibrate(segments, None, np.random.default_rng(0), index._workers(1))
    searcher = DeviceSearcher(Device(DEVICE), segments, "cosine")
    there = calibrate(segments, None, np.random.default_rng(0), index._workers(1), full=searcher)
    np.testing.assert_allclose(there[0].codec.measured.curve.recall, usual[0].codec.measured.curve.recall, atol=0.01)


@unmeasured()
def test_ids_that_do_not_increase_and_a_new_start():
    X = clusters(1300, DIM, 1)
    index = logt.Index(DIM, device=DEVICE)
    index.add(X, ids=np.arange(1300)[::-1])
    np.testing.assert_array_equal(index.search(X[:5], 1, effort=1.0).ids[:, 0], 1299 - np.arange(5))
    index.compact(relearn=True)
    np.testing.assert_array_equal(index.search(X[:5], 1, effort=1.0).ids[:, 0], 1299 - np.arange(5))


@pytest.mark.parametrize("kind", [complex, object, str, "datetime64[s]"])
def test_what_holds_no_numbers_is_refused(kind):
    index = logt.Index(DIM, device=DEVICE)
    with pytest.raises(logt.InvalidInputError, match="real numbers"):
        index.add(np.zeros((3, DIM)).astype(kind))
    assert len(index) == 0


@unmeasured()
def test_one_vector_and_equal_vectors():
    index = logt.Index(DIM, device=DEVICE)
    index.add(np.ones((1, DIM)))
    index.add(np.ones((1100, DIM)))
    assert len(index) == 1101

"""Indexes on a device: the same answers as on the processor, on "cpu" or on the device that LOGT_DEVICE names."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest
from exact_index import built, overlap

import logt
from logt.gpu import device as device_module
from logt.gpu.device import Device
from logt.gpu.host import HostKernels, decode_tiles
from logt.gpu.lists import DeviceLists, Layout
from logt.gpu.neighbors import nearest_neighbors
from logt.gpu.pursuit import DevicePursuit
from logt.gpu.search import DeviceSearcher
from logt.graph import build as graph_build
from logt.lists.calibration import calibrate
from logt.lists.inverted_lists import Probe
from logt.lists.search import ListSearcher

DEVICE = os.environ.get("LOGT_DEVICE", "cpu")
on_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU: make gpu-test")
DIM = 40  # neither a multiple of 32 nor of the size of a band


def clusters(count, dim, seed, norms=False):
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(0).standard_normal((60, dim)) * np.arange(1, dim + 1) ** -0.5
    X = centers[rng.integers(0, 60, count)] + 0.4 * rng.standard_normal((count, dim)) * np.arange(1, dim + 1) ** -0.3
    return (X * (rng.uniform(0.5, 2, (count, 1)) if norms else 1)).astype(np.float32)


@pytest.fixture(scope="module", params=["cosine", "ip", "l2"])
def index(request):
    """Lists, a segment without lists, and removed vectors."""
    index = built(clusters(3000, DIM, 1, norms=True), metric=request.param)
    index.add(clusters(300, DIM, 2, norms=True))
    index.remove(np.arange(0, 600, 5))
    return index


@pytest.fixture(scope="module")
def there(index):
    return index.to(DEVICE)


Q = clusters(70, DIM, 3, norms=True)  # more than are searched for one by one


# ---------------------------------------------------------------------------------------------------------- searches


@pytest.mark.parametrize("settings", [{"effort": 1.0}, {"effort": 0.6}, {"nprobe": 3}, {}], ids=str)
@pytest.mark.parametrize("count", [1, 5, 70])
def test_results_are_those_of_the_processor(index, there, settings, count):
    expected, found = index.search(Q[:count], 10, **settings), there.search(Q[:count], 10, **settings)
    assert overlap(found.ids, expected.ids) >= (0.97 if count > 1 else 0.6)
    same = found.ids == expected.ids
    np.testing.assert_allclose(found.scores[same], expected.scores[same], atol=2e-3, rtol=1e-3)


def test_a_full_read_has_the_same_ids(index, there):
    expected, found = index.search(Q, 20, effort=1.0), there.search(Q, 20, effort=1.0)
    differing = found.ids != expected.ids
    scale = np.abs(expected.scores).max()
    assert (np.abs(found.scores - expected.scores)[differing] < 1e-3 * scale).all()  # ties
    assert overlap(found.ids, expected.ids) > 0.995


def test_one_query_has_one_row_of_results(index, there):
    scores, ids = there.search(Q[0], 7)
    assert scores.shape == ids.shape == (7,)
    assert scores.dtype == np.float32
    assert ids.dtype == np.int64
    np.testing.assert_array_equal(ids, there.search(Q[:1], 7).ids[0])


def test_float64_lists_and_no_queries(index, there):
    np.testing.assert_array_equal(there.search(Q.astype(float)).ids, there.search(Q).ids)
    np.testing.assert_array_equal(there.search(Q[:2].tolist()).ids, there.search(Q[:2]).ids)
    assert there.search(np.empty((0, DIM))).ids.shape == (0, 10)


def test_more_results_than_vectors_are_padded(index, there):
    found, expected = (
        there.search(Q[:3], len(index) + 50, effort=1.0),
        index.search(Q[:3], len(index) + 50, effort=1.0),
    )
    np.testing.assert_array_equal(found.counts, expected.counts)
    np.testing.assert_array_equal(np.sort(found.ids), np.sort(expected.ids))


FILTERS = {
    "mask": lambda index: np.random.default_rng(5).random(len(index)) < 0.5,
    "ids": lambda index: index.ids[::40],
    "function": lambda index: lambda ids: ids % 3 == 0,
    "nothing": lambda index: np.zeros(len(index), bool),
    "unknown ids": lambda index: [10**9],
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters(index, there, name):
    passing = FILTERS[name](index)
    found, expected = (i.search(Q, 10, filter=passing, effort=1.0) for i in (there, index))
    np.testing.assert_array_equal(found.counts, expected.counts)
    if found.counts.any():
        assert overlap(found.ids, expected.ids) > 0.99
    allowed = index.search(Q[0], len(index), filter=passing, effort=1.0).ids
    assert np.isin(found.ids, [*allowed, -1]).all()
    with pytest.raises(logt.InvalidInputError, match="mask"):
        there.search(Q, filter=np.ones(3, bool))


def test_queries_that_are_not_valid(index, there):
    wrong = Q.copy()
    wrong[4, 2] = np.nan
    for queries in (wrong, wrong[4:5], wrong[4]):
        with pytest.raises(logt.InvalidInputError, match="row 4 of Q holds nan" if len(queries) == 70 else "nan"):
            there.search(queries)
    found = there.search(wrong, on_invalid="ignore")
    assert (found.ids[4] == -1).all()
    assert found.counts[4] == 0
    np.testing.assert_array_equal(np.delete(found.ids, 4, 0), np.delete(there.search(Q).ids, 4, 0))
    with pytest.raises(logt.InvalidInputError, match="dimension 40"):
        there.search(Q[:, :-1])


def test_range_search(index, there):
    scores = index.search(Q[:4], 30, effort=1.0).scores
    for threshold, one in zip(scores[:, 20], Q[:4], strict=True):
        expected, found = index.range_search(one, threshold), there.range_search(one, threshold)
        assert abs(len(found.ids) - len(expected.ids)) <= 1
        assert len(np.intersect1d(found.ids, expected.ids)) >= len(expected.ids) - 1


def test_expansion_and_diffusion():
    index = built(clusters(1500, DIM, 1), link=12)
    there, queries = index.to(DEVICE), clusters(20, DIM, 4)
    for settings in ({"expand": 5}, {"rerank": "diffusion"}):
        expected, found = (i.search(queries, 10, effort=1.0, **settings) for i in (index, there))
        assert overlap(found.ids, expected.ids) > 0.97


def test_string_ids():
    X = clusters(1500, DIM, 1)
    index = logt.Index(DIM)
    index.add(X, [f"photo {i}" for i in range(len(X))])
    found = index.to(DEVICE).search(X[:3], 2, filter=["photo 1", "photo 7"])
    assert found.ids[1, 0] == "photo 1"
    assert set(found.ids.ravel()) == {"photo 1", "photo 7"}


# ---------------------------------------------------------------------------------------------- changes, and storage


def test_changes_are_refused_and_refresh_copies_them():
    index = built(clusters(1500, DIM, 1))
    there, new = index.to(DEVICE), clusters(1, DIM, 9) + 3
    for change in (lambda: there.add(new), lambda: there.remove([1]), lambda: there.link(3)):
        with pytest.raises(logt.ReadOnlyError, match=r"refresh\(\)"):
            change()
    assert not there.refresh()
    (added,) = index.add(new)
    assert added not in there.search(new, 3).ids
    assert there.refresh()
    assert there.search(new, 1).ids[0, 0] == added
    assert len(there) == len(index)


def test_an_index_is_opened_on_a_device(tmp_path):
    X = clusters(1500, DIM, 1)
    index = built(X)
    index.save(tmp_path / "index")
    there = logt.open(tmp_path / "index", device=DEVICE)
    np.testing.assert_array_equal(there.search(X[:5], 1).ids[:, 0], range(5))
    with logt.open(tmp_path / "index", "a") as writer:
        writer.add(clusters(1, DIM, 8) + 3, [4000])
        writer.save()
    assert there.refresh()
    assert there.search(clusters(1, DIM, 8) + 3, 1).ids[0, 0] == 4000
    with pytest.raises(logt.InvalidInputError, match="mode"):
        logt.open(tmp_path / "index", "a", device=DEVICE)


def test_the_report_counts_the_bytes_on_the_device(index, there):
    report = there.report()
    assert report["device"] == there.device
    codec = index._snapshot.segments[0].codec
    vectors = sum(map(len, index._snapshot.segments))
    assert vectors * (DIM + 30) < report["device bytes"] < 4 * vectors * (DIM + 60) + 16 * codec.units * DIM


def test_an_empty_index_on_a_device():
    there = logt.Index(DIM).to(DEVICE)
    assert (there.search(Q, 3).ids == -1).all()


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


def test_vectors_are_read_block_by_block(monkeypatch):
    X = clusters(2400, DIM, 1).astype(np.float16)
    source = Blocks(X)
    monkeypatch.setattr(Device, "workspace", 1 << 19)
    index = logt.Index(DIM, device=DEVICE, segment_size=1200)
    index.add(source)
    assert len(index) == 2400
    assert 0 < source.longest <= 2300  # a block, or the sample for training
    assert overlap(index.search(X[:50], 1, effort=1.0).ids, np.arange(50)[:, None]) > 0.98


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


def test_a_graph_of_few_vectors():
    for count in (1, 2, 30):
        index = logt.Index(DIM)
        index.add(clusters(count, DIM, 1))
        index.link(5, device=DEVICE)
        assert (index.links is None) == (count == 1)
        if count > 1:
            assert np.diff(index.links.starts).max() == min(5, count - 1)


# ------------------------------------------------------------------------------------------------ devices and memory


def test_names_of_devices():
    for name in ("gpu", "cuda:x", "cpu:1", 3, None):
        with pytest.raises(logt.InvalidInputError, match="device must be"):
            Device(name)
    with pytest.raises(logt.InvalidInputError, match="device must be"):
        logt.Index(DIM, device="tpu")


def test_only_the_default_method_is_on_devices():
    method = logt.methods.lo_gt()
    with pytest.raises(logt.InvalidInputError, match="sketched"):
        logt.Index(DIM, method=method, device=DEVICE)
    index = logt.Index(DIM, method=method)
    index.add(clusters(200, DIM, 1))
    with pytest.raises(logt.InvalidInputError, match="sketched"):
        index.to(DEVICE)
    with pytest.raises(logt.InvalidInputError, match="sketched"):
        index.link(5, device=DEVICE)


def test_without_cupy_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(logt.MissingExtraError, match=r"logt-search\[gpu\]"):
        Device("cuda")


class Runtime:
    """A driver that reports a number of cards."""

    def __init__(self, count):
        self._count = count

    def getDeviceCount(self):
        if self._count is None:
            raise RuntimeError("CUDA driver version is insufficient")
        return self._count


class Cards:
    """As much of CuPy as is asked before anything is computed."""

    def __init__(self, count, capability="90"):
        self.cuda = self
        self.runtime, self._capability = Runtime(count), capability

    def Device(self, number):
        return type("Card", (), {"compute_capability": self._capability})


def test_cards_that_cannot_be_used():
    for cards, number, message in (
        (Cards(None), 0, "no GPU can be used: CUDA driver"),
        (Cards(1), 1, "there is no device cuda:1: this machine has 1"),
        (Cards(1, "75"), 0, "compute capability 7.5"),
    ):
        with pytest.raises(logt.DeviceError, match=message):
            device_module._check_card(cards, number)


def test_memory_is_compared_before_the_work(index, monkeypatch):
    vectors = len(index)
    monkeypatch.setattr(Device, "free_bytes", property(lambda self: 1 << 16))
    with pytest.raises(logt.DeviceMemoryError, match=r"an index of .* needs .* GB on .*, 0.00 GB are free: use"):
        index.to(DEVICE)
    new = logt.Index(DIM, device=DEVICE)
    with pytest.raises(logt.DeviceMemoryError, match="needs"):
        new.add(clusters(2200, DIM, 1))
    assert len(new) == 0
    assert len(index) == vectors


def test_full_reads_on_a_device_measure_the_same_recall():
    index = built(clusters(1300, DIM, 1), measure=False)
    segments = index._snapshot.segments
    usual = calibrate(segments, None, np.random.default_rng(0), index._workers(1))
    searcher = DeviceSearcher(Device(DEVICE), segments, "cosine")
    there = calibrate(segments, None, np.random.default_rng(0), index._workers(1), full=searcher)
    np.testing.assert_allclose(there[0].codec.curve.recall, usual[0].codec.curve.recall, atol=0.01)


# ----------------------------------------------------------------------------------------------------------- layout


@pytest.mark.parametrize("dim", [8, 20, 100, 520])
def test_codes_of_the_device_hold_the_same_bits(dim):
    index = built(clusters(1200, dim, 1), measure=False)
    (segment,) = index._snapshot.segments
    device = Device("cpu")
    lists = DeviceLists.from_segments(device, [segment], distances=True)
    fields = segment.codec.bands.unpack(segment.sign_bits, segment.low_bits)
    layout = Layout(segment.codec.bands, device)
    np.testing.assert_array_equal(layout.unpack(layout.pack(fields)), fields)
    Z = lists.decode(slice(0, lists.positions))
    rows = np.searchsorted(segment.ids, lists.ids[lists.ids >= 0])
    expected = segment.codec.bands.rotate(segment.reconstruct(rows) - segment.codec.mean)
    np.testing.assert_allclose(Z[lists.ids >= 0], expected, atol=2e-4)
    levels = decode_tiles(lists.codes, layout)[lists.ids >= 0]
    middles = ((1 << segment.codec.bands.per_dim(segment.codec.bands.bits)[: layout.coded]) - 1) / 2
    np.testing.assert_allclose(levels[:, : layout.coded], fields[segment.position[rows]] - middles)


# ----------------------------------------------------------------------------------------------- kernels, references


@on_gpu
@pytest.mark.parametrize(
    ("size", "k", "kind"),
    [
        (5, 3, ""),
        (2048, 2048, ""),
        (12649, 33, ""),
        (50_000, 2000, ""),
        (40_000, 100, "ties"),
        (5000, 3000, ""),
        (900_000, 64, "ties"),
        (3000, 10, "nan"),
        (3000, 40, "half"),
        (3000, 40, "weights"),
    ],
)
def test_best(size, k, kind):
    device, rng, rows = Device(DEVICE), np.random.default_rng(0), 7
    values = rng.standard_normal(rows * size).astype(np.float16 if kind == "half" else np.float32)
    if kind == "ties":
        values = np.round(values * 4) / 4
    if kind == "nan":
        values[rng.random(len(values)) < 0.5] = np.nan
    first = np.arange(rows) * size
    last = first + size
    last[3] -= size // 2
    more = {"weight": np.ones(size, np.float32), "bias": np.ones(size, np.float32)} if kind == "weights" else {}
    if kind == "weights":
        last[3] += size // 2
    expected = HostKernels().best(values, first, last, k, **more)
    arrays = map(device.put, (values, first, last))
    found = device.get(device.kernels.best(*arrays, k, **{name: device.put(a) for name, a in more.items()}))
    np.testing.assert_array_equal(found, expected)


@on_gpu
@pytest.mark.parametrize("count", [1, 4, 5, 64, 100])
def test_products(count):
    device, rng = Device(DEVICE), np.random.default_rng(0)
    A, B = (rng.standard_normal((n, 70)).astype(np.float32) for n in (count, 333))
    np.testing.assert_allclose(device.get(device.kernels.multiply(*map(device.put, (A, B)))), A @ B.T, atol=1e-4)


@on_gpu
@pytest.mark.parametrize("entries", [1, 4, 12])
def test_pursuit(entries):
    rng = np.random.default_rng(0)
    Y, Z = (rng.standard_normal((n, 48)).astype(np.float32) for n in (200, 150))
    units, weights = [], []
    for device in (Device("cpu"), Device(DEVICE)):
        unit, weight = DevicePursuit(device, device.put(Y), entries)(device.put(Z))
        units.append(device.get(unit))
        weights.append(device.get(weight))
    np.testing.assert_array_equal(units[0][:, 0], units[1][:, 0])
    left = [np.linalg.norm(Z - np.einsum("ij,ijk->ik", w, Y[u]), axis=1) for u, w in zip(units, weights, strict=True)]
    np.testing.assert_allclose(*left, rtol=0.05)
    assert (units[0] == units[1]).mean() > 0.9


@on_gpu
@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
@pytest.mark.parametrize("settings", [{"L": 1}, {"L": 6}, {"bits": 1}, {"bits": 5}, {"refine": False}], ids=str)
def test_searches_of_all_kinds_of_codes(metric, settings):
    X = clusters(2000, 100, 1, norms=True)
    index = logt.Index(100, metric=metric, method=logt.methods.sketched(**settings))
    index.add(X)
    reference, there = index.to("cpu"), index.to(DEVICE)
    for count in (1, 40, 100):
        for search in ({"nprobe": 4}, {"effort": 1.0}):
            expected, found = (i.search(X[:count] + 0.1, 10, **search) for i in (reference, there))
            assert overlap(found.ids, expected.ids) > 0.99
            np.testing.assert_allclose(found.scores, expected.scores, atol=1e-3, rtol=1e-4)


@on_gpu
def test_tensors_on_the_device_are_not_copied():
    cupy = pytest.importorskip("cupy")
    X = clusters(2000, DIM, 1)
    index = logt.Index(DIM, device=DEVICE)
    index.add(cupy.asarray(X))
    there = index.to(DEVICE)
    found = there.search(cupy.asarray(X[:9]), 4)
    assert isinstance(found.scores, cupy.ndarray)
    np.testing.assert_array_equal(found.ids.get(), there.search(X[:9], 4).ids)
    torch = pytest.importorskip("torch")
    result = there.search(torch.tensor(X[:9], device=DEVICE), 4)
    assert result.ids.is_cuda
    np.testing.assert_array_equal(result.ids.cpu().numpy(), found.ids.get())

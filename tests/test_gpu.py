"""Indexes on a device: the same answers as on the processor."""

import copy
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from device_testing import DEVICE, DIM, clusters
from exact_index import built, overlap, unmeasured
from faults import damage

import logt
from logt.gpu import device as device_module
from logt.gpu.captured import can_capture
from logt.gpu.device import Device
from logt.gpu.search import DeviceSearcher


@pytest.fixture(scope="module", autouse=True)
def fast():
    """Indexes do not measure their accuracy."""
    with unmeasured():
        yield


@pytest.fixture(scope="module")
def linked():
    """1500 vectors and their graph; tests change copies of it."""
    return built(clusters(1500, DIM, 1), link=12)


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


of_any_metric = pytest.mark.parametrize("index", ["cosine"], indirect=True)
Q = clusters(70, DIM, 3, norms=True)  # more than are searched for one by one


# ---------------------------------------------------------------------------------------------------------- searches


@pytest.mark.parametrize("settings", [{"effort": 1.0}, {"effort": 0.6}, {"nprobe": 3}, {}], ids=str)
@pytest.mark.parametrize("count", [1, 5, 70])
def test_results_are_those_of_the_processor(index, there, settings, count):
    expected, found = index.search(Q[:count], 10, **settings), there.search(Q[:count], 10, **settings)
    exact = settings.get("effort") == 1 or "nprobe" in settings  # otherwise a CPU stops query by query
    assert overlap(found.ids, expected.ids) >= ((0.97 if exact else 0.9) if count > 1 else 0.6)
    same = found.ids == expected.ids
    np.testing.assert_allclose(found.scores[same], expected.scores[same], atol=2e-3, rtol=1e-3)


def test_a_full_read_has_the_same_ids(index, there):
    expected, found = index.search(Q, 20, effort=1.0), there.search(Q, 20, effort=1.0)
    differing = found.ids != expected.ids
    scale = np.abs(expected.scores).max()
    assert (np.abs(found.scores - expected.scores)[differing] < 1e-3 * scale).all()  # ties
    assert overlap(found.ids, expected.ids) > 0.995


@of_any_metric
def test_one_query_has_one_row_of_results(index, there):
    scores, ids = there.search(Q[0], 7)
    assert scores.shape == ids.shape == (7,)
    assert scores.dtype == np.float32
    assert ids.dtype == np.int64
    np.testing.assert_array_equal(ids, there.search(Q[:1], 7).ids[0])


@of_any_metric
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


@of_any_metric
@pytest.mark.parametrize("name", FILTERS)
def test_filters(index, there, name):
    passing = FILTERS[name](index)
    found, expected = (i.search(Q, 10, filter=passing, effort=1.0) for i in (there, index))
    np.testing.assert_array_equal(found.counts, expected.counts)
    if found.counts.any():
        assert overlap(found.ids, expected.ids) > 0.99
    allowed = index.search(Q[0], len(index), filter=passing, effort=1.0).ids
    assert np.isin(found.ids, [*allowed, -1]).all()
    prepared = there.prepare(passing)
    for queries in (Q, Q[:1]):
        again = there.search(queries, 10, filter=prepared, effort=1.0)
        np.testing.assert_array_equal(again.ids, found.ids[: len(queries)])
    with pytest.raises(logt.InvalidInputError, match="mask"):
        there.search(Q, filter=np.ones(3, bool))


@of_any_metric
def test_a_prepared_filter_does_not_change_with_its_mask(index, there):
    mask = np.arange(len(index)) % 2 == 0
    prepared = there.prepare(mask)
    expected = there.search(Q, 10, filter=mask.copy(), nprobe=4)
    mask[:] = False
    np.testing.assert_array_equal(there.search(Q, 10, filter=prepared, nprobe=4).ids, expected.ids)
    assert repr(prepared) == f"DeviceFilter({-(-len(index) // 2)} of {len(index)} vectors)"


def test_a_prepared_filter_belongs_to_one_state(linked):
    index = copy.copy(linked)
    there = index.to(DEVICE)
    prepared = there.prepare([1, 2, 3])
    with pytest.raises(logt.InvalidInputError, match="prepare it again"):
        index.to(DEVICE).search(Q, filter=prepared)
    index.add(clusters(1, DIM, 9))
    there.refresh()
    with pytest.raises(logt.InvalidInputError, match="prepare it again"):
        there.search(Q, filter=prepared)
    with pytest.raises(logt.InvalidInputError, match="got None"):
        there.prepare(None)


@of_any_metric
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


def test_expansion_and_diffusion(linked):
    there, queries = linked.to(DEVICE), clusters(20, DIM, 4)
    for settings in ({"expand": 5}, {"rerank": "diffusion"}):
        expected, found = (i.search(queries, 10, effort=1.0, **settings) for i in (linked, there))
        assert overlap(found.ids, expected.ids) > 0.97


def test_string_ids():
    X = clusters(1500, DIM, 1)
    index = logt.Index(DIM)
    index.add(X, [f"photo {i}" for i in range(len(X))])
    found = index.to(DEVICE).search(X[:3], 2, filter=["photo 1", "photo 7"])
    assert found.ids[1, 0] == "photo 1"
    assert set(found.ids.ravel()) == {"photo 1", "photo 7"}


# ---------------------------------------------------------------------------------------------- changes, and storage


def test_changes_are_refused_and_refresh_copies_them(linked):
    index = copy.copy(linked)
    there, new = index.to(DEVICE), clusters(1, DIM, 9) + 3
    for change in (lambda: there.add(new), lambda: there.remove([1]), lambda: there.link(3)):
        with pytest.raises(logt.ReadOnlyError, match=r"refresh\(\)"):
            change()
    with pytest.raises(logt.InvalidInputError, match="search by 'item' in the index itself"):
        there.search(new, 3, by="item")
    assert not there.refresh()
    (added,) = index.add(new)
    assert added not in there.search(new, 3).ids
    assert there.refresh()
    assert there.search(new, 1).ids[0, 0] == added
    assert len(there) == len(index)


def test_an_index_is_opened_on_a_device(linked, tmp_path):
    linked.save(tmp_path / "index")
    there = logt.open(tmp_path / "index", device=DEVICE)
    np.testing.assert_array_equal(there.search(linked.reconstruct(range(5)), 1).ids[:, 0], range(5))
    with logt.open(tmp_path / "index", "a") as writer:
        writer.add(clusters(1, DIM, 8) + 3, [4000])
        writer.save()
    assert there.refresh()
    assert there.search(clusters(1, DIM, 8) + 3, 1).ids[0, 0] == 4000
    with pytest.raises(logt.InvalidInputError, match="mode"):
        logt.open(tmp_path / "index", "a", device=DEVICE)


@of_any_metric
def test_the_report_counts_the_bytes_on_the_device(index, there):
    report = there.report()
    assert report["device"] == there.device
    codec = index._snapshot.segments[0].codec
    vectors = sum(map(len, index._snapshot.segments))
    assert vectors * (DIM + 30) < report["device bytes"] < 4 * vectors * (DIM + 60) + 16 * codec.units * DIM


def test_an_empty_index_on_a_device():
    there = logt.Index(DIM).to(DEVICE)
    assert (there.search(Q, 3).ids == -1).all()


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


@of_any_metric
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


# ---------------------------------------------------------------------------------------------- found by a review


def test_fewer_vectors_than_an_expansion_wants(linked):
    expected, found = (i.search(Q[:5], 4, expand=10, filter=[1, 2, 3]) for i in (linked, linked.to(DEVICE)))
    np.testing.assert_array_equal(found.ids, expected.ids)


def test_new_vectors_join_the_graph_before_a_diffusion(linked):
    index, X = copy.copy(linked), clusters(100, DIM, 2)
    index.add(X)
    there = index.to(DEVICE)
    expected, found = (i.search(X[:30], 10, rerank="diffusion", effort=1.0) for i in (index, there))
    assert overlap(found.ids, expected.ids) > 0.97


def test_damage_is_found_before_a_copy(linked, tmp_path, monkeypatch):
    linked.save(tmp_path / "index")
    monkeypatch.setattr("logt._index_base.AT_ONCE", 0)
    (path,) = (tmp_path / "index").glob("refinement-*")
    damage(path)
    with pytest.raises(logt.CorruptIndexError):
        logt.open(tmp_path / "index").to(DEVICE)


def test_a_refresh_that_does_not_fit_keeps_the_state(linked, tmp_path, monkeypatch):
    linked.save(tmp_path / "index")
    there = logt.open(tmp_path / "index", device=DEVICE)
    with logt.open(tmp_path / "index", "a") as writer:
        writer.add(clusters(100, DIM, 2))
        writer.save()
    with monkeypatch.context() as less:
        less.setattr(Device, "free_bytes", property(lambda self: 1 << 10))
        with pytest.raises(logt.DeviceMemoryError):
            there.refresh()
    assert (len(there), there.generation) == (1500, 1)
    assert there.refresh()
    assert (len(there), there.generation) == (1600, 2)


@of_any_metric
def test_the_first_filtered_searches_of_some_threads(index):
    there, mask = index.to(DEVICE), np.arange(len(index)) % 2 == 0
    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(lambda _: there.search(Q[:2], 3, filter=mask), range(4)))) == 4


def test_blocks_of_queries_become_smaller_where_lists_are_long(monkeypatch):
    X = clusters(1500, DIM, 1)
    X[:1200] = X[0] + 0.05 * X[:1200]  # most vectors are in a few lists
    index = built(X)
    expected = index.to(DEVICE).search(X[:100], 5, nprobe=3)
    monkeypatch.setattr(Device, "workspace", 1 << 17)
    there = index.to(DEVICE)
    sizes, scored = [], DeviceSearcher._scored
    monkeypatch.setattr(DeviceSearcher, "_scored", lambda *a: sizes.append((len(a[2]), a[3].total)) or scored(*a))
    np.testing.assert_array_equal(there.search(X[:100], 5, nprobe=3).ids, expected.ids)
    assert all(total <= 1 << 15 for count, total in sizes if count > 1)


@of_any_metric
@pytest.mark.parametrize("count", [1, 5])
def test_a_search_that_needs_more_space_than_it_has_finds_nothing_and_says_so(there, count):
    """So that a recorded search is repeated by one that may wait for the device."""
    searcher = there._copy.searcher
    limits = searcher.limits(logt.methods.sketched().limits(logt.SearchParams(effort=0.3)), 10)
    queries = searcher.device.put(clusters(count, DIM, 4))
    expected = searcher.find(queries, 10, limits)
    same = searcher.find(queries, 10, limits, capacity=1 << 20)
    few = searcher.find(queries, 10, limits, capacity=1)
    get = searcher.device.get
    np.testing.assert_array_equal(get(same.ids), get(expected.ids))
    assert not get(same.wrong).any()
    assert get(few.wrong).all()
    assert (get(few.ids) == -1).all()


def test_searches_that_cannot_be_recorded(linked):
    searcher = linked.to(DEVICE)._copy.searcher

    class Card:
        cuda, workspace = True, 1 << 31

    searcher.device = Card
    limits = searcher.limits(logt.methods.sketched().limits(logt.SearchParams(effort=0.5)), 10)
    assert can_capture(searcher, 1, 10, limits, searcher.parts)
    assert not can_capture(searcher, 65, 10, limits, searcher.parts)
    assert not can_capture(searcher, 1, 3000, limits, searcher.parts)
    assert not can_capture(searcher, 1, 10, limits._replace(candidates=2049), searcher.parts)

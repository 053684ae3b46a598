"""The kernels of a device next to their reference implementations, and the layout of codes."""

from dataclasses import fields, replace

import numpy as np
import pytest
from device_testing import DEVICE, DIM, clusters, on_gpu
from exact_index import built, overlap

import logt
from logt.gpu.building import DeviceBands
from logt.gpu.device import Device
from logt.gpu.host import HostKernels, decode_tiles
from logt.gpu.lists import DeviceLists, Layout
from logt.gpu.pursuit import DevicePursuit
from logt.gpu.search import DeviceQueries, Plan
from logt.lists.margins import list_scores

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
        (12649, 32, "many rows"),
        (3000, 128, "many rows"),
        (3000, 129, "many rows"),
        (12649, 20, "nearly all equal"),
        (3000, 10, "nan"),
        (3000, 40, "half"),
    ],
)
def test_best(size, k, kind):
    device, rng, rows = Device(DEVICE), np.random.default_rng(0), 300 if kind == "many rows" else 7
    values = rng.standard_normal(rows * size).astype(np.float16 if kind == "half" else np.float32)
    if kind == "ties":
        values = np.round(values * 4) / 4
    if kind == "nearly all equal":
        values = np.maximum(values, 2)
    if kind == "nan":
        values[rng.random(len(values)) < 0.5] = np.nan
    first = np.arange(rows) * size
    last = first + size
    last[3] -= size // 2
    expected = HostKernels().best(values, first, last, k)
    found = device.get(device.kernels.best(*map(device.put, (values, first, last)), k))
    np.testing.assert_array_equal(found, expected)


@on_gpu
@pytest.mark.parametrize("count", [1, 4, 5, 64, 100])
def test_products(count):
    device, rng = Device(DEVICE), np.random.default_rng(0)
    A, B = (rng.standard_normal((n, 70)).astype(np.float32) for n in (count, 333))
    np.testing.assert_allclose(device.get(device.kernels.multiply(*map(device.put, (A, B)))), A @ B.T, atol=1e-4)


def some_queries(device: Device, count: int) -> tuple[DeviceLists, DeviceQueries]:
    """Return lists and vectors in none, and queries, one of which is not valid."""
    index = built(clusters(6000, DIM, 1), measure=False)
    index.add(clusters(300, DIM, 2))
    index.remove(np.arange(0, 6000, 7))
    searcher = index.to(device.name)._copy.searcher
    (lists,) = searcher.parts
    Q = clusters(count, DIM, 3)
    Q[count // 2] = np.nan if count > 1 else Q[0]
    return lists, searcher._queries(lists, device.put(Q), ranked=True)


def plan_of(margin: float, width: int, least: int, enough: int) -> Plan:
    return Plan(10, False, margin, width, least, enough, 1, 1.0, 1)


PLANS = {
    "nearest": plan_of(0.0, 1, 0, 0),
    "margin": plan_of(2.5, 1, 0, 0),
    "width": plan_of(-1.0, 5, 0, 0),
    "least": plan_of(-1.0, 1, 900, 0),
    "enough": plan_of(1.0, 1, 0, 700),
    "everything": plan_of(1.0, 1, 0, 10**6),
    "far": plan_of(1e9, 1, 0, 0),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_lists_near_the_best_one_are_read(plan):
    lists, queries = some_queries(Device("cpu"), 9)
    limit, totals = HostKernels().near_lists(lists, queries, plan, 4)
    bounds = HostKernels().sum_totals(totals, queries.wrong.copy(), 10**6, 10**9)
    read, *_, query = HostKernels().plan(lists, queries, limit, bounds, 4, int(bounds[0, -1]))
    Q = clusters(9, DIM, 3)
    scores, _, deviation = list_scores(lists.codec, Q / np.linalg.norm(Q, axis=1, keepdims=True), distances=True)
    for q in range(9):
        mine = set(read[query == q].tolist())
        if queries.wrong[q]:
            assert not mine
            continue
        order = np.argsort(-scores[q])
        few = next(
            (
                n
                for n in range(plan.width, len(order) + 1)
                if lists.rows[order[:n]].sum() >= plan.least and lists.visible[order[:n]].sum() >= plan.enough
            ),
            len(order),
        )
        near = scores[q] >= scores[q].max() - plan.margin * deviation[q] if plan.margin >= 0 else []
        expected = {*order[:few].tolist(), *np.flatnonzero(near).tolist(), lists.codec.units}
        assert mine == expected


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_large_norms_change_no_result_on_a_device(metric):
    X, Q = clusters(1500, DIM, 1), clusters(20, DIM, 3)
    expected, found = (
        built(np.ldexp(X, by), metric=metric, measure=True).to(DEVICE).search(np.ldexp(Q, by), 10) for by in (0, 50)
    )
    assert (found.ids == expected.ids).all()


def test_a_batch_that_reads_too_much_reads_nothing():
    totals, wrong = np.array([[2, 3], [64, 80], [2, 3]]), np.zeros(2, bool)
    before = HostKernels().sum_totals(totals, wrong, 5, 144)
    assert before.tolist() == [[0, 2, 5], [0, 64, 144], [0, 2, 5]]
    assert not wrong.any()
    for most, capacity in ((4, 144), (5, 143)):
        marked = wrong.copy()
        assert not HostKernels().sum_totals(totals, marked, most, capacity).any()
        assert marked.all()


@on_gpu
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("count", [1, 9, 300, 3000])
def test_choice_of_lists(count, plan):
    device = Device(DEVICE)
    lists, queries = some_queries(device, count)
    reference, _ = some_queries(Device("cpu"), count)
    on_host = replace(queries, **{f.name: device.get(getattr(queries, f.name)) for f in fields(queries)})
    limit, totals = device.kernels.near_lists(lists, queries, plan, 4)
    expected_limit, expected = HostKernels().near_lists(reference, on_host, plan, 4)
    np.testing.assert_array_equal(device.get(totals), expected)
    most = int(expected[0].sum())
    for space, capacity in ((most + 7, 10**9), (most - 1, 10**9), (most, int(expected[1].sum()) - 1)):
        wrong, marked = queries.wrong.copy(), on_host.wrong.copy()
        before = device.kernels.sum_totals(totals, wrong, space, capacity)
        expected_before = HostKernels().sum_totals(expected, marked, space, capacity)
        np.testing.assert_array_equal(device.get(before), expected_before)
        np.testing.assert_array_equal(device.get(wrong), marked)
        found = device.kernels.plan(lists, queries, limit, before, 4, space)
        planned = HostKernels().plan(reference, on_host, expected_limit, expected_before, 4, space)
        used = int(expected_before[0, -1])
        for name, mine, theirs in zip(("list", "tile", "tiles", "place"), found, planned, strict=False):
            np.testing.assert_array_equal(device.get(mine)[:used], theirs[:used], err_msg=name)
        np.testing.assert_array_equal(device.get(found[4]), planned[4], err_msg="tasks")
        np.testing.assert_array_equal(device.get(found[5])[:used], planned[5][:used], err_msg="query")


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
@pytest.mark.parametrize("dim", [8, 20, 100, 520, 2048])
@pytest.mark.parametrize("settings", [{"L": 1}, {"L": 6, "bits": 1}, {"bits": 5}, {"bits": 2}], ids=str)
def test_encode(dim, settings):
    X = clusters(1200, dim, 1)
    (segment,) = built(X, method=logt.methods.sketched(**settings), measure=False)._snapshot.segments
    codec, rng = segment.codec, np.random.default_rng(0)
    rows, entries = 300, codec.entries
    Z = codec.bands.rotate(X[:rows] - codec.mean)
    Z[0] = 0
    unit, weight = rng.integers(0, codec.units, (rows, entries)), rng.random((rows, entries), np.float32)
    weight[1] = 0
    left, found = [], []
    for device in (Device("cpu"), Device(DEVICE)):
        V = device.put(Z.copy())
        given = device.put(unit), device.put(weight), device.put(codec.memory_vectors)
        found.append(
            [device.get(part) for part in device.kernels.encode(V, *given, DeviceBands(device, codec.bands))]
        )
        left.append(device.get(V))
    for expected, array in zip(*found, strict=True):
        assert (expected.shape, expected.dtype) == (array.shape, array.dtype)
        if array.dtype == np.float32:
            np.testing.assert_allclose(array, expected, rtol=2e-2, atol=1e-6)
        else:  # a value at the border of two steps may be rounded up or down
            assert (array != expected).sum() <= 0.01 * array.size
    same = (found[0][4] == found[1][4]).all(axis=1) & (found[0][5] == found[1][5]).all(axis=1)
    assert same.mean() > 0.9
    np.testing.assert_allclose(left[1][same], left[0][same], atol=1e-4)


@on_gpu
@pytest.mark.parametrize("shape", [(5, 7), (3 << 20, 3), (40_000, 1100)])
def test_arrays_are_the_same_there_and_back(shape):
    device, X = Device(DEVICE), np.random.default_rng(0).integers(0, 1000, shape).astype(np.float32)
    for array in (X, X[::2], X.astype(np.float16), X > 500, np.broadcast_to(X[0], (9, *X[0].shape))):
        np.testing.assert_array_equal(device.get(device.put(array)), array)


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
@pytest.mark.parametrize("share", [0, 0.02, 0.5, 1])
def test_hide(share):
    X = clusters(6000, DIM, 1)
    X[:3000] = X[0] + 0.01 * X[:3000]  # some lists are long
    index = built(X, measure=False)
    index.add(clusters(300, DIM, 2))
    index.remove(np.arange(0, 6000, 7))
    passing = np.random.default_rng(0).random(len(index)) < share
    there, expected = (index.to(name)._copy for name in (DEVICE, "cpu"))
    for lists, reference in zip(there.searcher.parts, expected.searcher.parts, strict=True):
        device, number = there._device, np.searchsorted(index.ids, reference.ids)
        number[~np.isin(reference.ids, index.ids)] = -1
        number = number.astype(np.int32)
        found = device.kernels.hide(lists, device.put(number), device.put(passing))
        for mine, theirs in zip(found, HostKernels().hide(reference, number, passing), strict=True):
            np.testing.assert_array_equal(device.get(mine), theirs)


@on_gpu
def test_masks_and_ids_on_the_device():
    cupy = pytest.importorskip("cupy")
    X = clusters(2000, DIM, 1)
    index = built(X)
    there, mask = index.to(DEVICE), np.arange(2000) % 3 == 0
    expected = there.search(X[:9], 4, filter=mask)
    torch = pytest.importorskip("torch")
    for make in (cupy.asarray, lambda array: torch.tensor(array, device=DEVICE)):
        for rule in (make(mask), make(np.flatnonzero(mask)), there.prepare(make(mask))):
            np.testing.assert_array_equal(there.search(X[:9], 4, filter=rule).ids, expected.ids)
        with pytest.raises(logt.InvalidInputError, match="the mask has 3 values"):
            there.search(X[:9], 4, filter=make(mask[:3]))


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

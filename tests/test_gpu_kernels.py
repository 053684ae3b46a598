"""The kernels of a device next to their reference implementations, and the layout of codes."""

from __future__ import annotations

import numpy as np
import pytest
from device_testing import DEVICE, DIM, clusters, on_gpu
from exact_index import built, overlap

import logt
from logt.gpu.device import Device
from logt.gpu.host import HostKernels, decode_tiles
from logt.gpu.lists import DeviceLists, Layout
from logt.gpu.pursuit import DevicePursuit

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

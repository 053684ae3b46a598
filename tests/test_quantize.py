from __future__ import annotations

import numpy as np
import pytest

from logt.errors import InvalidInputError, MissingExtraError
from logt.group_testing.quantize import Float32, Int8, ProductQuantizer

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("quantize", [Float32(), Int8(), ProductQuantizer(8), ProductQuantizer(7)])
@pytest.mark.parametrize("M", [1, 3, 300])
@pytest.mark.parametrize("nq", [1, 2, 20])
def test_measuring_is_the_product_with_what_is_stored(vectors, quantize, M, nq):
    pytest.importorskip("faiss")
    Y, Q = 7 * vectors(M, 40), vectors(nq, 40, seed=1)
    memory = quantize(Y, np.random.default_rng(0))
    C = memory.measure(Q)
    assert C.shape == (nq, M)
    assert C.dtype == np.float32
    assert np.allclose(C, Q @ memory.decode().T, atol=0.06 if isinstance(quantize, Int8) else 1e-4)


def test_int8_keeps_a_row_within_half_a_step(vectors):
    Y = vectors(50, 100) * np.logspace(-3, 3, 50)[:, None].astype(np.float32)
    memory = Int8()(Y, RNG)
    step = np.abs(Y).max(axis=1, keepdims=True) / 127
    assert (np.abs(memory.decode() - Y) <= 0.501 * step).all()


@pytest.mark.parametrize("dim", [1, 2, 5, 63, 64, 65])
def test_int8_products_are_exact(rng, dim):
    memory = Int8()(rng.integers(-127, 128, (30, dim)).astype(np.float32), RNG)
    Q = rng.integers(-127, 128, (9, dim)).astype(np.float32)
    Q[:, 0] = 127  # the scale of the query is 1
    assert np.allclose(memory.measure(Q), Q @ memory.decode().T, rtol=1e-5, atol=1e-2)


def test_one_query_and_a_batch_measure_alike(vectors):
    memory, Q = Int8()(vectors(50, 40), RNG), vectors(3, 40, seed=1)
    assert (memory.measure(Q)[:1] == memory.measure(Q[:1])).all()


def test_zero_rows_stay_zero(vectors):
    Y = vectors(5, 16)
    Y[2] = 0
    assert (Int8()(Y, RNG).decode()[2] == 0).all()
    assert (Int8()(Y, RNG).measure(np.zeros((1, 16), np.float32)) == 0).all()


def test_more_bytes_quantize_better(vectors):
    pytest.importorskip("faiss")
    Y = vectors(2000, 64)
    errors = [np.square(ProductQuantizer(c)(Y, np.random.default_rng(0)).decode() - Y).mean() for c in (4, 16, 32)]
    assert errors[0] > errors[1] > errors[2]


def test_product_quantization_codes_name_the_nearest_centroid(vectors):
    pytest.importorskip("faiss")
    Y = vectors(500, 16)
    memory = ProductQuantizer(4)(Y, np.random.default_rng(0))
    for s in range(4):
        distance = np.square(Y[:, None, 4 * s : 4 * s + 4] - memory.centroids[s]).sum(axis=2)
        chosen = np.take_along_axis(distance, memory.codes[:, s : s + 1].astype(int), axis=1)[:, 0]
        assert np.allclose(chosen, distance.min(axis=1), atol=1e-5)


def test_more_bytes_than_dimensions_are_refused(vectors):
    pytest.importorskip("faiss")
    with pytest.raises(InvalidInputError, match=r"c = 64 .* got 16"):
        ProductQuantizer(64)(vectors(300, 16), RNG)


def test_a_missing_extra_is_named(vectors, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    with pytest.raises(MissingExtraError, match=r"logt-search\[pq\]"):
        ProductQuantizer(4)(vectors(300, 16), RNG)

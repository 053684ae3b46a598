import numpy as np
import pytest

from logt.errors import InvalidInputError, MissingExtraError
from logt.group_testing.quantize import Float32, Int8, ProductQuantizer

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("quantize", [Float32(), Int8(), ProductQuantizer(8), ProductQuantizer(7)])
@pytest.mark.parametrize(("M", "nq"), [(1, 2), (3, 1), (300, 20)])
def test_measuring_is_the_product_with_what_is_stored(vectors, quantize, M, nq):
    pytest.importorskip("faiss")
    Y, Q = 7 * vectors(M, 40), vectors(nq, 40, seed=1)
    memory = quantize(Y, np.random.default_rng(0))
    C = memory.measure(Q)
    assert C.shape == (nq, M)
    assert C.dtype == np.float32
    assert np.allclose(C[:1], memory.measure(Q[:1]), atol=1e-5)
    assert np.allclose(C, Q @ memory.decode().T, atol=0.06 if isinstance(quantize, Int8) else 1e-4)


def test_int8_keeps_a_row_within_half_a_step(vectors):
    Y = vectors(50, 100) * np.logspace(-3, 3, 50)[:, None].astype(np.float32)
    Y[2] = 0
    memory = Int8()(Y, RNG)
    step = np.abs(Y).max(axis=1, keepdims=True) / 127
    assert (np.abs(memory.decode() - Y) <= 0.501 * step).all()
    assert (memory.measure(np.zeros((1, 100), np.float32)) == 0).all()


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

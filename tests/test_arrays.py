"""Arrays of other libraries: the same results as NumPy, and no copies where memory can be shared."""

from __future__ import annotations

import numpy as np
import pytest

import logt
from logt._internal.arrays import to_numpy


class Tensor:
    """The smallest array that follows the DLPack protocol."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class FailingTensor(Tensor):
    dtype = "float3"

    def __dlpack__(self, **options):
        raise BufferError("float3 has no type in DLPack")


def arrow_fixed(X):
    pa = pytest.importorskip("pyarrow")
    return pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])


def arrow_lists(X):
    pa = pytest.importorskip("pyarrow")
    offsets = np.arange(len(X) + 1, dtype=np.int32) * X.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(X.ravel()))


def arrow_chunks(X):
    pa = pytest.importorskip("pyarrow")
    return pa.chunked_array([arrow_fixed(X)])


def arrow_slice(X):
    return arrow_fixed(np.concatenate([X[:5], X]))[5:]


def arrow_list_slice(X):
    return arrow_lists(np.concatenate([X[:5], X]))[5:]


def polars_array(X):
    pl = pytest.importorskip("polars")
    return pl.Series("vector", X)


def polars_list(X):
    pl = pytest.importorskip("polars")
    return pl.Series("vector", X).arr.to_list()


def torch_tensor(X):
    return pytest.importorskip("torch").from_numpy(X)


def pandas_series(X):
    pd = pytest.importorskip("pandas")
    return pd.Series(list(X))


def two_chunks(X):
    pa = pytest.importorskip("pyarrow")
    return pa.chunked_array([arrow_fixed(X[:7]), arrow_fixed(X[7:])])


def polars_frame(X):
    pl = pytest.importorskip("polars")
    return pl.DataFrame({f"x{column}": X[:, column] for column in range(X.shape[1])})


def polars_frame_of_vectors(X):
    return polars_array(X).to_frame()


def pandas_frame_of_vectors(X):
    return pandas_series(X).to_frame()


def arrow_table(X):
    return pytest.importorskip("pyarrow").table({"vector": arrow_fixed(X)})


def arrow_batch(X):
    return pytest.importorskip("pyarrow").record_batch({"vector": arrow_lists(X)})


def arrow_numbers(X):
    return pytest.importorskip("pyarrow").table({f"x{column}": X[:, column] for column in range(X.shape[1])})


SHARING = [
    *(Tensor, torch_tensor, polars_array, polars_frame_of_vectors),
    *(arrow_fixed, arrow_lists, arrow_chunks, arrow_slice, arrow_list_slice, arrow_table, arrow_batch),
]
COPYING = [pandas_series, pandas_frame_of_vectors, polars_list, polars_frame, two_chunks, arrow_numbers]


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).standard_normal((60, 16)).astype(np.float32)


@pytest.mark.parametrize("make", [*SHARING, *COPYING])
def test_add_and_search_take_the_arrays_of_other_libraries(X, make):
    index, expected = logt.Index(16), logt.Index(16)
    index.add(make(X))
    expected.add(X)
    found, right = index.search(make(X[:9]), 3), expected.search(X[:9], 3)
    np.testing.assert_array_equal(found.ids, right.ids)
    np.testing.assert_array_equal(found.scores, right.scores)


@pytest.mark.parametrize("make", SHARING)
def test_memory_is_shared(X, make):
    given = make(X)
    first, second = to_numpy(given), to_numpy(given)
    np.testing.assert_array_equal(first, X)
    assert np.shares_memory(first, second)


def test_a_column_of_one_vector_is_a_matrix(X):
    index = logt.Index(16)
    index.add(X)
    assert index.search(arrow_fixed(X[:1]), 3).ids.shape == (1, 3)
    assert index.search(polars_list(X[:1]), 3).ids.shape == (1, 3)
    assert index.search(Tensor(X[0]), 3).ids.shape == (3,)


def test_ids_may_be_columns_too(X):
    pa, pl = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    for column in (pa.array, lambda values: pl.Series("id", values)):
        index = logt.Index(16)
        index.add(X[:2], ids=column(["a", "b"]))
        assert index.search(X[1], 1).ids.tolist() == ["b"]
        numbered = logt.Index(16)
        numbered.add(X[:2], ids=column([7, 9]))
        assert numbered.search(X[1], 2, filter=column([9])).ids.tolist() == [9, -1]


def test_gradients_and_bfloat16_of_torch(X):
    torch = pytest.importorskip("torch")
    index = logt.Index(16)
    index.add(torch.from_numpy(X).requires_grad_())
    assert index.search(torch.from_numpy(X[3]).bfloat16(), 1).ids.tolist() == [3]


def test_a_tensor_on_a_gpu(X):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    index = logt.Index(16)
    index.add(torch.from_numpy(X).cuda())
    assert index.search(torch.from_numpy(X[3]).cuda(), 1).ids.tolist() == [3]


def test_rows_that_are_missing_or_differ_in_length_are_named(X):
    pa, pl, pd = (pytest.importorskip(name) for name in ("pyarrow", "polars", "pandas"))
    index = logt.Index(2)
    for column in (
        pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)),
        pa.array([[1.0, 2.0], None]),
        pl.Series([[1.0, 2.0], None]),
    ):
        with pytest.raises(logt.InvalidInputError, match="row 1 of the column is null; fill or drop it"):
            index.add(column)
    for column in (pa.array([[1.0, 2.0], [3.0]]), pl.Series([[1.0, 2.0], [3.0]]), pd.Series([[1.0, 2.0], [3.0]])):
        with pytest.raises(logt.InvalidInputError, match="row 1 of the column has 1 numbers, row 0 has 2"):
            index.add(column)
    with pytest.raises(logt.InvalidInputError, match="row 1 of the column is None, not a vector"):
        index.add(pd.Series([[1.0, 2.0], None]))
    with pytest.raises(logt.InvalidInputError, match="row 0 of X holds nan at column 1"):
        index.add(pa.array([[1.0, None]], pa.list_(pa.float32(), 2)))
    assert len(index) == 0


def test_a_lazy_frame_is_refused_with_the_way_out(X):
    index = logt.Index(16)
    with pytest.raises(logt.InvalidInputError, match=r"a polars LazyFrame has no values yet; pass lazy\.collect\(\)"):
        index.add(polars_frame(X).lazy())


def test_an_empty_column_of_pandas_has_no_vectors():
    index = logt.Index(16)
    index.add(pytest.importorskip("pandas").Series([], dtype=object))
    assert len(index) == 0


def test_an_unreadable_tensor_is_refused():
    with pytest.raises(logt.InvalidInputError, match="FailingTensor of dtype float3 cannot be read"):
        logt.Index(4).add(FailingTensor(np.ones((2, 4))))

"""Arrays of other libraries: the same results as NumPy, and no copies where memory can be shared."""

import numpy as np
import pytest
from exact_index import assert_same

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


def library(name):
    return pytest.importorskip(name)


def arrow_fixed(X):
    pa = library("pyarrow")
    return pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])


def arrow_lists(X):
    pa = library("pyarrow")
    offsets = np.arange(len(X) + 1, dtype=np.int32) * X.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(X.ravel()))


def columns(X):
    return {f"x{column}": X[:, column] for column in range(X.shape[1])}


SHARING = {
    "DLPack": Tensor,
    "torch": lambda X: library("torch").from_numpy(X),
    "polars": lambda X: library("polars").Series("vector", X),
    "polars frame": lambda X: library("polars").Series("vector", X).to_frame(),
    "arrow of fixed size": arrow_fixed,
    "arrow lists": arrow_lists,
    "arrow chunk": lambda X: library("pyarrow").chunked_array([arrow_fixed(X)]),
    "arrow slice": lambda X: arrow_fixed(np.concatenate([X[:5], X]))[5:],
    "arrow slice of lists": lambda X: arrow_lists(np.concatenate([X[:5], X]))[5:],
    "arrow table": lambda X: library("pyarrow").table({"vector": arrow_fixed(X)}),
    "arrow batch": lambda X: library("pyarrow").record_batch({"vector": arrow_lists(X)}),
}
COPYING = {
    "pandas": lambda X: library("pandas").Series(list(X)),
    "pandas frame": lambda X: library("pandas").Series(list(X)).to_frame(),
    "polars lists": lambda X: library("polars").Series("vector", X).arr.to_list(),
    "polars numbers": lambda X: library("polars").DataFrame(columns(X)),
    "arrow chunks": lambda X: library("pyarrow").chunked_array([arrow_fixed(X[:7]), arrow_fixed(X[7:])]),
    "arrow numbers": lambda X: library("pyarrow").table(columns(X)),
}


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).standard_normal((60, 16)).astype(np.float32)


@pytest.fixture(scope="module")
def plain(X):
    index = logt.Index(16)
    index.add(X)
    return index


@pytest.mark.parametrize("kind", [*SHARING, *COPYING])
def test_add_and_search_take_the_arrays_of_other_libraries(X, plain, kind):
    make = (SHARING | COPYING)[kind]
    index = logt.Index(16)
    index.add(make(X))
    assert_same(index.search(make(X[:9]), 3), plain.search(X[:9], 3))
    if kind in SHARING:
        given = make(X)
        first, second = to_numpy(given), to_numpy(given)
        np.testing.assert_array_equal(first, X)
        assert np.shares_memory(first, second)


def test_a_column_of_one_vector_is_a_matrix(X, plain):
    assert plain.search(Tensor(X[0]), 3).ids.shape == (3,)
    assert plain.search(arrow_fixed(X[:1]), 3).ids.shape == (1, 3)
    assert plain.search(COPYING["polars lists"](X[:1]), 3).ids.shape == (1, 3)


def test_ids_may_be_columns_too(X):
    for column in (library("pyarrow").array, lambda values: library("polars").Series("id", values)):
        index = logt.Index(16)
        index.add(X[:2], ids=column(["a", "b"]))
        assert index.search(X[1], 1).ids.tolist() == ["b"]
        numbered = logt.Index(16)
        numbered.add(X[:2], ids=column([7, 9]))
        assert numbered.search(X[1], 2, filter=column([9])).ids.tolist() == [9, -1]


def test_gradients_and_bfloat16_of_torch(X):
    torch = library("torch")
    index = logt.Index(16)
    index.add(torch.from_numpy(X).requires_grad_())
    assert index.search(torch.from_numpy(X[3]).bfloat16(), 1).ids.tolist() == [3]


def test_a_tensor_on_a_gpu(X):
    torch = library("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    index = logt.Index(16)
    index.add(torch.from_numpy(X).cuda())
    assert index.search(torch.from_numpy(X[3]).cuda(), 1).ids.tolist() == [3]


def test_columns_that_are_no_vectors_are_refused(X):
    pa, pl, pd = (library(name) for name in ("pyarrow", "polars", "pandas"))
    fixed = pa.list_(pa.float32(), 2)
    null, short = [[1.0, 2.0], None], [[1.0, 2.0], [3.0]]
    wrong = {
        "row 1 of the column is null; fill or drop it": (pa.array(null, fixed), pa.array(null), pl.Series(null)),
        "row 1 of the column has 1 numbers, row 0 has 2": (pa.array(short), pl.Series(short), pd.Series(short)),
        "row 1 of the column is None, not a vector": (pd.Series(null),),
        "row 0 of X holds nan at column 1": (pa.array([[1.0, None]], fixed),),
        r"a polars LazyFrame has no values yet; pass lazy\.collect\(\)": (COPYING["polars numbers"](X).lazy(),),
        "FailingTensor of dtype float3 cannot be read": (FailingTensor(X),),
    }
    index = logt.Index(2)
    for message, columns_ in wrong.items():
        for column in columns_:
            with pytest.raises(logt.InvalidInputError, match=message):
                index.add(column)
    index.add(pd.Series([], dtype=object))
    assert len(index) == 0

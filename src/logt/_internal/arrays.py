"""Arrays of other libraries (torch, cupy, jax, pyarrow, polars, pandas) -> NumPy, if possible without copies."""

from typing import Any

import numpy as np

from logt.errors import InvalidInputError

_CPU = 1  # kDLCPU
_LISTS = ("fixed_size_list", "list", "large_list")  # types of pyarrow


def array_module(array: Any) -> Any:
    """Return the module whose arrays these are: NumPy, or CuPy, which has the same interface."""
    if isinstance(array, np.ndarray):
        return np
    import cupy  # an array of it was made already

    return cupy


def to_numpy(X: Any) -> Any:
    """Return tensors and columns of vectors as NumPy arrays that share their memory; everything else unchanged.

    Copied are: tensors on a GPU, bfloat16, and columns of several chunks.
    """
    if isinstance(X, np.ndarray | list | tuple):
        return X
    library = type(X).__module__.partition(".")[0]
    if library in _COLUMNS:
        return _COLUMNS[library](X)
    if hasattr(X, "__dlpack__") and hasattr(X, "__dlpack_device__"):
        return _from_tensor(X)
    return X


def _from_tensor(tensor: Any) -> Any:
    if hasattr(tensor, "detach") and hasattr(tensor, "cpu"):  # torch: no gradients, and a copy from the GPU
        tensor = tensor.detach().cpu()
        if str(tensor.dtype) == "torch.bfloat16":  # NumPy has no such type
            tensor = tensor.float()
    try:
        if tensor.__dlpack_device__()[0] == _CPU:
            return np.from_dlpack(tensor)
        return np.from_dlpack(tensor, device="cpu", copy=True)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"a {type(tensor).__name__} of dtype {getattr(tensor, 'dtype', None)} cannot be read: {error}; "
            "convert it to a NumPy array"
        ) from error


def _from_pyarrow(column: Any) -> Any:
    """Return an Array or ChunkedArray of lists as a matrix, and a Table with one such column too."""
    if hasattr(column, "num_columns"):
        if column.num_columns != 1:
            return column
        table, column = column, column.column(0)
        if not str(column.type).startswith(_LISTS):
            return table
    if hasattr(column, "combine_chunks") and hasattr(column, "num_chunks"):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    kind = str(getattr(column, "type", ""))
    if not kind.startswith(_LISTS):
        return column
    if column.null_count:
        missing = np.asarray(column.is_null())
        raise InvalidInputError(f"row {int(missing.argmax())} of the column is null; fill or drop it")
    if kind.startswith("fixed_size_list"):
        width = int(column.type.list_size)
    else:
        width = _common_length(np.diff(column.offsets.to_numpy()))
    values = column.flatten().to_numpy(zero_copy_only=False)
    return values.reshape(len(column), width)


def _from_polars(column: Any) -> Any:
    """Return a Series of arrays or lists as a matrix, and a DataFrame with one such column too."""
    if hasattr(column, "collect"):
        raise InvalidInputError("a polars LazyFrame has no values yet; pass lazy.collect()")
    if hasattr(column, "columns"):
        if len(column.columns) != 1:
            return column.to_numpy()
        column = column.to_series()
    kind = str(column.dtype)
    if not kind.startswith(("Array", "List")):
        return column.to_numpy()
    if column.null_count():
        raise InvalidInputError(f"row {int(column.is_null().arg_max())} of the column is null; fill or drop it")
    if kind.startswith("List"):
        column = column.list.to_array(_common_length(column.list.len().to_numpy()))
    return column.to_numpy()


def _from_pandas(column: Any) -> Any:
    """Return a Series of vectors, or a DataFrame with one such column, as a matrix; others as NumPy converts them."""
    values = column.to_numpy()
    if values.dtype == object and values.shape[1:] == (1,):
        values = values[:, 0]
    if values.dtype != object or values.ndim != 1 or not len(values) or isinstance(values[0], str):
        return values
    for row, value in enumerate(values):
        if np.ndim(value) != 1:
            raise InvalidInputError(f"row {row} of the column is {value!r}, not a vector; fill or drop it")
    _common_length(np.array([len(value) for value in values]))
    return np.stack(list(values))


def _common_length(lengths: Any) -> int:
    """Return the length of all vectors of a column."""
    if len(lengths) == 0:
        return 0
    first = int(lengths[0])
    if (lengths != first).any():
        row = int((lengths != first).argmax())
        raise InvalidInputError(
            f"row {row} of the column has {lengths[row]} numbers, row 0 has {first}: all vectors need the same length"
        )
    return first


_COLUMNS = {"pyarrow": _from_pyarrow, "polars": _from_polars, "pandas": _from_pandas}


def unit_dtype(count: int) -> type[np.uint16] | type[np.uint32]:
    """Return the smallest type that can number `count` units."""
    return np.uint16 if count <= 1 << 16 else np.uint32

"""Vectors from .csv, .npz and .parquet files, and from a stream such as the standard input."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from logt._internal.arrays import to_numpy
from logt._internal.types import Array
from logt.datasets.mat_hdf5 import read_hdf5
from logt.errors import InvalidInputError, MissingExtraError

Source = Path | BinaryIO

NPY_ERRORS = (ValueError, EOFError, OSError, OverflowError, TypeError, MemoryError)
"""What numpy raises for a damaged .npy file, or for one whose header states an impossible shape."""


def read_npz(source: Source, name: str) -> Array:
    """Return the only 2-D array of a .npz file. source: a path or an open file. name: of the source in errors."""
    try:
        with np.load(source, allow_pickle=False) as arrays:
            matrices = [key for key in arrays.files if arrays[key].ndim == 2]
            if len(matrices) != 1:
                found = ", ".join(f"{key} {arrays[key].shape}" for key in arrays.files)
                raise InvalidInputError(f"{name} must hold exactly one 2-D array; it holds: {found or 'nothing'}")
            return cast(Array, arrays[matrices[0]])
    except (*NPY_ERRORS, AttributeError, zipfile.BadZipFile) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"{name} is not a .npz file of numbers: {error}") from error


def read_csv(source: Source, name: str) -> Array:
    """Return comma-separated numbers as float32, one vector per line; a first line of words is skipped.

    source: a path or an open file. name: of the source in errors.
    """
    text = (source.read_bytes() if isinstance(source, Path) else source.read()).decode("utf-8-sig", "replace")
    first = text.lstrip().partition("\n")[0]
    try:
        [float(value) for value in first.split(",")]
        header = 0
    except ValueError:
        header = 1
    lines = text.lstrip().splitlines()[header:]
    if not any(line.strip() for line in lines):
        raise InvalidInputError(f"{name} holds no vectors; expected one per line, numbers separated by commas")
    try:
        return np.loadtxt(lines, np.float32, delimiter=",", ndmin=2, comments=None)
    except ValueError as error:
        raise InvalidInputError(f"{name} is not a table of numbers separated by commas: {error}") from error


def read_parquet(source: Source, name: str) -> Array:
    """Return the only column of vectors of a Parquet file, or all columns if each holds numbers.

    source: a path or an open file. name: of the source in errors.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError(f"reading {name} needs pyarrow: pip install 'logt-search[data]'") from error
    try:
        table = pq.read_table(source)
    except (pa.ArrowException, OSError) as error:
        raise InvalidInputError(f"{name} is not a Parquet file: {error}") from error
    return matrix_of_table(table, name)


def matrix_of_table(table: Any, name: str) -> Array:
    """Return the only column of vectors of a table of pyarrow, or all columns if each holds numbers.

    name: of the source in errors.
    """
    import pyarrow as pa

    lists = [field.name for field in table.schema if str(field.type).startswith(("fixed_size_list", "list", "large"))]
    lists = [column for column in lists if hasattr(table.schema.field(column).type, "value_type")]
    if len(lists) == 1:
        return cast(Array, to_numpy(table.column(lists[0])))
    numbers = all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in table.schema.types)
    if lists or not numbers or not table.num_columns:
        columns = ", ".join(f"{field.name} ({field.type})" for field in table.schema)
        raise InvalidInputError(
            f"{name} must hold one column of vectors, or only columns of numbers; it holds: {columns or 'none'}"
        )
    return np.stack([column.to_numpy() for column in table.columns], axis=1).astype(np.float32)


def read_stream(stream: BinaryIO, name: str = "the standard input") -> Array:
    """Return the vectors of a stream of .npy, .npz, Parquet, HDF5 or comma-separated numbers: the content decides.

    name: of the stream in errors.
    """
    content = io.BytesIO(stream.read())
    start = content.getvalue()[:6]
    if start == b"\x93NUMPY":
        try:
            matrix: Array = np.load(content, allow_pickle=False)
        except NPY_ERRORS as error:
            raise InvalidInputError(f"{name} is not a .npy file of numbers: {error}") from error
        if matrix.ndim != 2:
            raise InvalidInputError(f"{name} has shape {matrix.shape}, expected (rows, dimensions)")
        return matrix
    if start.startswith(b"PK"):
        return read_npz(content, name)
    if start.startswith(b"PAR1"):
        return read_parquet(content, name)
    if start == b"\x89HDF\r\n":
        return read_hdf5(content, name)
    return read_csv(content, name)

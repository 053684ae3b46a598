"""Vectors from files and streams: .npy, .fvecs, .fbin and others are memory-mapped, tables are read into memory."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from logt._internal.arrays import to_numpy
from logt._internal.extras import needs_extra
from logt._internal.types import Array
from logt.datasets.mat_hdf5 import read_hdf5
from logt.datasets.tables import IdName, VectorTable, find_ids, known_name
from logt.errors import InvalidInputError

Source = Path | BinaryIO
"""A path or an open file; functions that take one also take its name in errors."""


def read_vectors(path: str | os.PathLike[str], *, column: str | None = None) -> Array:
    """Return the vectors of a file as the rows of a matrix.

    path: a .npy, .fvecs, .bvecs, .fbin, .u8bin or .i8bin file, which is memory-mapped; or a .npz, .csv, .parquet,
    .h5 or .hdf5 file. column: the name of the vectors in a file that has several; by default the only matrix or
    column of vectors; of a .h5 file, `train` if it has one.
    """
    return read_table(path, column, ids=False).vectors


def read_table(path: str | os.PathLike[str], column: str | None = None, ids: IdName = None) -> VectorTable:
    """Return the vectors of a file, and their ids if it has them.

    path, column: as in `read_vectors`. ids: the name of the ids; by default id or ids, if there is one of them.
    """
    path = Path(path)
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder; pass a file of vectors: {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise FileNotFoundError(f"file not found: {path}")
    if path.suffix in _TABLES:
        return _TABLES[path.suffix](path, str(path), column, ids)
    if path.suffix not in SUFFIXES:
        raise InvalidInputError(f"{path}: unsupported file type {path.suffix!r}; supported: {', '.join(SUFFIXES)}")
    if path.suffix in _VECS:
        matrix = _read_vecs(path, np.dtype(_VECS[path.suffix]))
    elif path.suffix in BIN:
        matrix = _read_bin(path, np.dtype(BIN[path.suffix]))
    else:
        matrix = _read_npy(path, str(path), mmap_mode="r")
    return _unnamed(matrix, str(path), column, ids)


def read_stream(stream: BinaryIO, column: str | None = None, ids: IdName = None) -> VectorTable:
    """Return the table of a stream of .npy, .npz, Parquet, HDF5 or comma-separated numbers: the content decides.

    column, ids: as in `read_table`.
    """
    content, name = io.BytesIO(stream.read()), "the standard input"
    start = content.getvalue()[:8]
    if start.startswith(b"\x93NUMPY"):
        return _unnamed(_read_npy(content, name), name, column, ids)
    read = next((read for signature, read in _STREAMS.items() if start.startswith(signature)), read_csv)
    return read(content, name, column, ids)


def _unnamed(matrix: Array, name: str, column: str | None, ids: IdName) -> VectorTable:
    """Return the table of a file that holds one matrix without a name."""
    for asked in (column, ids):
        if isinstance(asked, str):
            raise InvalidInputError(f"{name} holds one matrix without names, so it has no {asked!r}")
    return VectorTable(matrix)


# --------------------------------------------------------------------------------------------- binary files


def _read_npy(source: Source, name: str, mmap_mode: Any = None) -> Array:
    try:
        if isinstance(source, Path):
            _check_start(source)
        matrix: Array = np.load(source, mmap_mode, allow_pickle=False)
    except Exception as error:  # numpy passes on any exception of its parser
        truncated = "mmap length is greater than file size" in str(error)
        reason = "its end is missing" if truncated else error
        raise InvalidInputError(f"{name} is not a .npy file of numbers: {reason}") from error
    if matrix.ndim != 2:
        raise InvalidInputError(f"{name} has shape {matrix.shape}, expected (rows, dimensions)")
    return matrix


def _check_start(path: Path) -> None:
    """Raise ValueError if a file does not begin like a .npy file; numpy would take it for a pickle."""
    with open(path, "rb") as file:
        start = file.read(6)
    if start[:2] == b"PK":
        raise ValueError("it is a .npz file; rename it")
    if start != b"\x93NUMPY":
        raise ValueError(f"it begins with {start!r}")


def _read_vecs(path: Path, dtype: np.dtype[Any]) -> Array:
    """Map a file of rows, each an int32 dimension d followed by d components."""
    size = path.stat().st_size
    head = np.fromfile(path, "<i4", 1)
    dim = int(head[0]) if len(head) else 0
    width = 4 + dim * dtype.itemsize
    if dim < 1 or size % width:
        raise InvalidInputError(f"{path} is damaged: {size:,} bytes are not a multiple of a row of dimension {dim}")
    rows = np.memmap(path, np.uint8, "r").reshape(-1, width)
    dims = np.ndarray((len(rows),), "<i4", rows, strides=(width,))
    if (dims != dim).any():
        row = int((dims != dim).argmax())
        raise InvalidInputError(f"{path} is damaged: row {row} has dimension {dims[row]}, row 0 has {dim}")
    return np.ndarray((len(rows), dim), dtype.newbyteorder("<"), rows, offset=4, strides=(width, dtype.itemsize))


def _read_bin(path: Path, dtype: np.dtype[Any]) -> Array:
    """Map a file of a uint32 number of rows, a uint32 dimension, then all components."""
    (count, dim), size = _read_shape(path), path.stat().st_size
    if size != 8 + count * dim * dtype.itemsize or dim < 1:
        raise InvalidInputError(
            f"{path} is damaged: its header states {count:,} rows of dimension {dim}, but it has {size:,} bytes"
        )
    if count == 0:
        return np.empty((0, dim), dtype)
    return np.memmap(path, dtype.newbyteorder("<"), "r", offset=8, shape=(count, dim))


def read_neighbors(path: Path) -> Array:
    """Return the rows (nq, k) of an .ibin file of nearest neighbors; distances that follow them are not read.

    path: the file: a uint32 number of queries, a uint32 k, then k int32 rows per query.
    """
    (count, k), size = _read_shape(path), path.stat().st_size
    if k < 1 or size not in (8 + 4 * count * k, 8 + 8 * count * k):
        raise InvalidInputError(
            f"{path} is damaged: its header states {k} neighbors of {count:,} queries, but it has {size:,} bytes"
        )
    return np.fromfile(path, "<i4", count * k, offset=8).reshape(count, k)


def _read_shape(path: Path) -> tuple[int, int]:
    head = np.fromfile(path, "<u4", 2)
    return (int(head[0]), int(head[1])) if len(head) == 2 else (0, 0)


# --------------------------------------------------------------------------------------------------- tables


def read_npz(source: Source, name: str, column: str | None = None, ids: IdName = None) -> VectorTable:
    """Return a 2-D array of a .npz file, the only one if column is None, and the ids beside it."""
    try:  # numpy does not close a file whose directory is damaged
        with (
            open(source, "rb") if isinstance(source, Path) else nullcontext(source) as stream,
            np.load(stream, allow_pickle=False) as file,
        ):
            arrays: dict[str, Array] = {key: part for key, part in file.items() if isinstance(part, np.ndarray)}
    except Exception as error:  # numpy and zipfile pass on any exception of their parsers
        raise InvalidInputError(f"{name} is not a .npz file of numbers: {error}") from error
    found = [key for key, array in arrays.items() if array.ndim == 2]
    if column is not None:
        found = [column] if known_name(arrays, column, name) in found else []
    if len(found) != 1:
        held = ", ".join(f"{key} {array.shape}" for key, array in arrays.items())
        wanted = "exactly one 2-D array" if column is None else f"a 2-D array {column!r}"
        raise InvalidInputError(f"{name} must hold {wanted}; it holds: {held or 'nothing'}. Choose one with --column")
    usable = {key: array.ndim == 1 and array.dtype.kind in "iuUS" for key, array in arrays.items()}
    table, id_key = VectorTable(arrays[found[0]], None, found[0]), find_ids(usable, ids, name)
    return table if id_key is None or ids is False else table.with_ids(arrays[id_key], id_key, name)


def read_csv(source: Source, name: str, column: str | None = None, ids: IdName = None) -> VectorTable:
    """Return comma-separated numbers as float32, one vector per line.

    A first line of words has the names of columns. ids: the name of a column of ids; by default id or ids, if there
    is one. All other columns are the vector, so a column cannot be chosen.
    """
    if column is not None:
        raise InvalidInputError(
            f"{name}: all columns of a .csv file are one vector, so --column {column} is not used"
        )
    text = (source.read_bytes() if isinstance(source, Path) else source.read()).decode("utf-8-sig", "replace")
    lines, header = text.lstrip().splitlines(), list[str]()
    try:
        [float(value) for value in lines[0].split(",")]
    except (ValueError, IndexError):
        header, lines = [word.strip().strip('"') for word in lines[0].split(",")] if lines else [], lines[1:]
    id_name, words = find_ids(dict.fromkeys(header, True), ids, name), list[str]()
    try:
        if id_name is not None:
            rows = [row for row in csv.reader(lines) if row]
            words = [row.pop(header.index(id_name)).strip() for row in rows]
            lines = [",".join(row) for row in rows]
        if not any(line.strip() for line in lines):
            raise InvalidInputError(f"{name} holds no vectors; expected one per line, numbers separated by commas")
        table = VectorTable(np.loadtxt(lines, np.float32, delimiter=",", ndmin=2, comments=None))
    except InvalidInputError:
        raise
    except (ValueError, IndexError, csv.Error) as error:
        reason = str(error).partition("; use `usecols`")[0].rstrip(".")  # advice for callers of NumPy
        hint = "; --ids COLUMN reads a column as ids" if header and id_name is None else ""
        raise InvalidInputError(f"{name} is not a table of numbers separated by commas: {reason}{hint}") from error
    if id_name is None or ids is False:
        return table
    return table.with_ids(list(map(int, words)) if all(map(str.isdecimal, words)) else words, id_name, name)


@contextmanager
def open_parquet(source: Source, name: str) -> Iterator[Any]:
    """Open a Parquet file; what pyarrow raises in the block, of damaged data, becomes an InvalidInputError."""
    with needs_extra("data", f"reading {name} needs pyarrow"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    try:
        with pq.ParquetFile(source) as file:
            yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if getattr(error, "errno", None) is not None:  # of the system, not of the content
            raise
        raise InvalidInputError(f"{name} is not a Parquet file: {error}") from error


def _read_parquet(source: Source, name: str, column: str | None = None, ids: IdName = None) -> VectorTable:
    with open_parquet(source, name) as file:
        return table_of_arrow(file.read(), name, column, ids)


def table_of_arrow(table: Any, name: str, column: str | None = None, ids: IdName = None) -> VectorTable:
    """Return a column of vectors of a table of pyarrow, or all columns if each holds numbers, and the ids beside it.

    column: by default the only column of vectors. ids: by default the column id or ids, if there is one of them.
    """
    from pyarrow import types

    kinds = {field.name: field.type for field in table.schema}
    is_id = (types.is_integer, types.is_string, types.is_large_string)
    id_name = find_ids({key: any(check(kind) for check in is_id) for key, kind in kinds.items()}, ids, name)
    is_vectors = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    vectors = [key for key, kind in kinds.items() if any(check(kind) for check in is_vectors)]
    if column is not None:
        vectors = [column] if known_name(kinds, column, name) in vectors else []
    others = [key for key in kinds if key != id_name]
    numbers = all(types.is_integer(kinds[key]) or types.is_floating(kinds[key]) for key in others)
    if len(vectors) == 1:
        found = VectorTable(to_numpy(table.column(vectors[0])), None, vectors[0])
    elif not vectors and numbers and others and column is None:
        found = VectorTable(np.stack([table.column(key).to_numpy() for key in others], axis=1).astype(np.float32))
    else:
        columns = ", ".join(f"{key} ({kind})" for key, kind in kinds.items())
        wanted = "one column of vectors, or only columns of numbers" if column is None else f"vectors in {column!r}"
        raise InvalidInputError(f"{name} must hold {wanted}; it holds: {columns or 'none'}. Choose one with --column")
    if id_name is None or ids is False:
        return found
    values = table.column(id_name)
    if values.null_count:
        raise InvalidInputError(f"{name}: a value of {id_name!r} is null, which is no id; fill it, or pass --no-ids")
    return found.with_ids(values.to_numpy(), id_name, name)


_VECS = {".fvecs": np.float32, ".bvecs": np.uint8}
BIN = {".fbin": np.float32, ".u8bin": np.uint8, ".i8bin": np.int8}
_TABLES = {".npz": read_npz, ".csv": read_csv, ".parquet": _read_parquet, ".h5": read_hdf5, ".hdf5": read_hdf5}
SUFFIXES = (".npy", *_VECS, *BIN, *_TABLES)
"""The types of files that vectors are read from."""

_STREAMS = {b"PK": read_npz, b"PAR1": _read_parquet, b"\x89HDF\r\n": read_hdf5}

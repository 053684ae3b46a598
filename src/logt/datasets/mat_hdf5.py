"""Files that hold several arrays: MATLAB (.mat) and HDF5."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from logt._internal.extras import needs_extra
from logt._internal.subprocess_worker import Child, ChildError
from logt._internal.types import Array
from logt.datasets.mat_5 import read_mat_5
from logt.datasets.tables import IdName, VectorTable, find_ids, is_id_name, known_name
from logt.errors import InvalidInputError

_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_MATLAB_HEADER_BYTES = 512
_NAMES = ("X", "Q")
_MOST_LISTED = 10
_CHILD_SECONDS, _STRINGS_PER_SECOND, _CHILD_BYTES = 10.0, 20_000, 1 << 32


def read_mat(path: Path) -> dict[str, Array]:
    """Return the matrices X and Q, if a .mat file has them, one vector per row (the file stores them in columns).

    A file of MATLAB 7.3 is an HDF5 file after a header; older versions have their own format.
    """
    with open(path, "rb") as file:
        start = file.read(_MATLAB_HEADER_BYTES + len(_HDF5_SIGNATURE))
    is_hdf5 = _HDF5_SIGNATURE in (start[: len(_HDF5_SIGNATURE)], start[_MATLAB_HEADER_BYTES:])
    try:
        matrices = _read_mat_73(path) if is_hdf5 else read_mat_5(path, _NAMES)
    except InvalidInputError:
        raise
    except Exception as error:
        raise InvalidInputError(f"{path} cannot be read as a .mat file: {error}") from error
    for name, matrix in matrices.items():
        if matrix.ndim != 2 or matrix.dtype.kind not in "fiu":
            raise InvalidInputError(
                f"{name} in {path} has shape {matrix.shape} and dtype {matrix.dtype}, expected a matrix of numbers"
            )
    return matrices


def _read_mat_73(path: Path) -> dict[str, Array]:
    with open_hdf5(path) as file:  # HDF5 reverses the axes: columns in MATLAB are rows here
        return {name: np.asarray(own_object(file, name, str(path))) for name in _NAMES if name in list(file)}


@contextmanager
def open_hdf5(source: Path | BinaryIO, name: str | None = None) -> Iterator[Any]:
    """Open an HDF5 file for reading. source: a path or an open file. name: of the source in errors.

    What h5py raises in the block, of damaged data, broken links or impossible sizes, becomes an InvalidInputError.
    """
    name = str(source) if name is None else name
    with needs_extra("data", f"reading {name} needs h5py"):
        import h5py
    try:
        with h5py.File(source, "r") as file:
            yield file
    except InvalidInputError:
        raise
    except (OSError, KeyError, RuntimeError, MemoryError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{name} cannot be read as an HDF5 file: {error}") from error


def own_object(file: Any, key: str, name: str) -> Any:
    """Return an object of an HDF5 file; raise if it is a link, or if its data is in other files. name: in errors.

    A file from somewhere else could otherwise name any file of this computer as its data.
    """
    import h5py

    if file.id.links.get_info(key.encode("utf-8", "surrogateescape")).type != h5py.h5l.TYPE_HARD:
        raise InvalidInputError(f"{name}: {key!r} is a link, which is not followed; copy the data to this place")
    found = file[key]
    if isinstance(found, h5py.Dataset) and (found.external or found.is_virtual):
        raise InvalidInputError(f"{name}: the data of {key!r} is in other files; copy it into one file")
    return found


def only_matrix(file: Any, name: str, column: str | None = None) -> tuple[str, Any]:
    """Return the key and the matrix of an HDF5 file; name: of the file in errors.

    column: the key, "group/features" inside a group. By default the dataset `train`, as ann-benchmarks has it, or the
    only matrix.
    """
    if column is None and "train" in list(file) and getattr(train := own_object(file, "train", name), "ndim", 0) == 2:
        return "train", train
    if column is not None:
        found = {column: matrix} if getattr(matrix := _inner_object(file, column, name), "ndim", 0) == 2 else {}
    else:
        objects = {key: own_object(file, key, name) for key in file}
        found = _matrices(objects)
    if len(found) != 1:
        held = found or (_matrices_in_groups(objects, name) if column is None else {})
        names = ", ".join(f"{key} {matrix.shape}" for key, matrix in held.items())
        wanted = "one matrix, or one called train" if column is None else f"a matrix {column!r}"
        raise InvalidInputError(f"{name} must hold {wanted}; it holds: {names or 'none'}. Choose one with --column")
    return next(iter(found.items()))


def _matrices(objects: Mapping[str, Any]) -> dict[str, Any]:
    return {key: found for key, found in objects.items() if getattr(found, "ndim", 0) == 2}


def _matrices_in_groups(objects: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the first few matrices in the groups of a file, for a message that says what can be chosen."""
    groups = ((key, group) for key, group in objects.items() if hasattr(group, "keys"))
    inner = ((f"{key}/{part}", own_object(group, part, name)) for key, group in groups for part in group)
    return dict(islice((pair for pair in inner if _matrices(dict([pair]))), _MOST_LISTED))


def _inner_object(file: Any, key: str, name: str) -> Any:
    """Return an object of an HDF5 file that may be inside of groups."""
    found = file
    for part in key.strip("/").split("/"):
        found = own_object(found, known_name(found if hasattr(found, "keys") else (), part, name), name)
    return found


def read_hdf5(source: Path | BinaryIO, name: str, column: str | None = None, ids: IdName = None) -> VectorTable:
    """Return a matrix of an HDF5 file and the ids beside it; source, name: as in `open_hdf5`.

    column: as in `only_matrix`. ids: a key, as that of the matrix.
    """
    with open_hdf5(source, name) as file:
        key, matrix = only_matrix(file, name, column)
        table = VectorTable(np.asarray(matrix), None, key)
        if ids is None and {"index", "features"} <= set(file):  # as ILIAS has them
            ids = "index"
        keys = [ids] if isinstance(ids, str) else [] if ids is False else filter(is_id_name, file)
        listed = {key: _inner_object(file, key, name) for key in keys}
        id_key = find_ids({key: _can_be_ids(found) for key, found in listed.items()}, ids, name)
        if id_key is None:
            return table
        found = listed[id_key]
        if _has_any_length(found) and len(found) == len(table.vectors):
            found = _read_strings(source, id_key, name, len(found))
        return table.with_ids(found, id_key, name)


def _can_be_ids(found: Any) -> bool:
    return getattr(found, "ndim", 0) == 1 and (found.dtype.kind in "iuS" or _has_any_length(found))


def _has_any_length(found: Any) -> bool:
    import h5py

    kind = h5py.check_string_dtype(found.dtype)
    return kind is not None and kind.length is None


def _read_strings(source: Path | BinaryIO, key: str, name: str, count: int) -> list[str]:
    """Return strings of any length, read by a child process: in a damaged file, HDF5 may look for them forever."""
    if isinstance(source, Path):
        path, data = str(source.resolve()), b""
    else:
        source.seek(0)
        path, data = "", source.read()
    child = Child("logt.datasets.mat_hdf5:strings_in_child", memory=_CHILD_BYTES, quiet=True)
    try:
        answer, _ = child.ask(json.dumps([path, key]).encode(), data, _CHILD_SECONDS + count / _STRINGS_PER_SECOND)
    except ChildError as error:
        raise InvalidInputError(f"{name}: the strings of {key!r} cannot be read: {error}") from error
    finally:
        child.kill()
    return list(json.loads(answer))


def strings_in_child(request: bytes, data: bytes) -> tuple[bytes, bytes]:
    """Answer a request of `_read_strings`, in the child process."""
    path, key = json.loads(request)
    with open_hdf5(Path(path) if path else BytesIO(data)) as file:
        return json.dumps(_inner_object(file, key, path).asstr()[:].tolist()).encode(), b""

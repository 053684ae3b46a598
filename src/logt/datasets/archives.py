"""Files with several arrays in them: MATLAB (.mat, vectors in columns) and hdf5 of ann-benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from logt._types import Array
from logt.errors import InvalidInputError, MissingExtraError

_HDF5, _HEADER = b"\x89HDF\r\n\x1a\n", 512


def read_mat(path: Path, names: tuple[str, ...] = ("X", "Q")) -> dict[str, Array]:
    """Those of the named matrices that a .mat file holds, one vector a row: the file has them in columns.

    Files of MATLAB 7.3 are hdf5 behind a header; older ones are a format of their own.
    """
    with open(path, "rb") as file:
        start = file.read(_HEADER + len(_HDF5))
    found = _mat_73(path, names) if _HDF5 in (start[: len(_HDF5)], start[_HEADER:]) else _mat_5(path, names)
    for name, matrix in found.items():
        if matrix.ndim != 2 or matrix.dtype.kind not in "fiu":
            raise InvalidInputError(f"{name} of {path} has shape {matrix.shape} and type {matrix.dtype}: no vectors")
    return found


def _mat_73(path: Path, names: tuple[str, ...]) -> dict[str, Array]:
    with opened_hdf5(path) as file:  # hdf5 has the axes the other way round: columns of MATLAB are rows
        return {name: np.asarray(file[name]) for name in names if name in file}


def _mat_5(path: Path, names: tuple[str, ...]) -> dict[str, Array]:
    try:
        from scipy.io import loadmat
    except ImportError as error:
        raise MissingExtraError("reading .mat files needs scipy: pip install 'logt-search[data]'") from error
    try:
        held = loadmat(path, variable_names=list(names))
    except Exception as error:  # scipy raises what its parser stumbles over
        raise InvalidInputError(f"{path} is no .mat file that can be read: {error}") from error
    return {name: np.ascontiguousarray(np.asarray(held[name]).T) for name in names if name in held}


@contextmanager
def opened_hdf5(path: Path) -> Iterator[Any]:
    """An hdf5 file, open for reading."""
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError("reading hdf5 files needs h5py: pip install 'logt-search[data]'") from error
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise InvalidInputError(f"{path} is no hdf5 file that can be read: {error}") from error
    with file:
        yield file

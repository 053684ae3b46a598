"""Pickles of dictionaries, lists, strings, numbers and NumPy arrays -> the same, without running code in them."""

import pickle
import pickletools
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from logt._internal.types import Array
from logt.errors import InvalidInputError

_PUTS = ("PUT", "BINPUT", "LONG_BINPUT")


def read_pickle(path: Path) -> Any:
    """Return what a pickle holds; an array is something that can be iterated. Anything but plain data is refused."""
    content = path.read_bytes()
    try:
        for operation, number, _ in pickletools.genops(content):
            if operation.name in _PUTS and isinstance(number, int) and number > len(content):
                raise ValueError(f"it numbers an object {number:,}")  # and would make room for so many
        return _DataUnpickler(BytesIO(content), encoding="latin1").load()
    except Exception as error:  # whatever a damaged or crafted pickle leads to
        raise InvalidInputError(f"{path} is not a pickle of plain data: {error}") from error


class _DataUnpickler(pickle.Unpickler):
    """Names in a pickle stand for functions and classes; here, only for those that build a NumPy array."""

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        known = (module.replace("numpy.core.", "numpy._core."), name)
        if known not in _NAMES:
            raise ValueError(f"it uses {module}.{name}")
        return _NAMES[known]


class _DType:
    """A dtype of numbers, as a pickle describes it."""

    def __init__(self, code: str, *_: Any):
        self.dtype = np.dtype(str(code))
        if self.dtype.kind not in "biuf":
            raise ValueError(f"it has an array of {self.dtype}")

    def __setstate__(self, state: Any) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """An array, as a pickle describes it. NumPy's own reader is not made for bytes from anywhere."""

    values: Array = np.empty(0)

    def __init__(self, *_: Any):
        pass

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, is_fortran, data = state
        self.values = _from_bytes(data, kind).reshape(shape, order="F" if is_fortran else "C")

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values.tolist())


def _from_buffer(data: Any, kind: Any, shape: Any, order: Any) -> _Array:
    array = _Array()
    array.__setstate__((1, shape, kind, order == "F", data))
    return array


def _from_bytes(data: Any, kind: _DType) -> Array:
    content = _encode(data) if isinstance(data, str) else memoryview(data)  # bytes() of a number are as many zeros
    return np.frombuffer(content, kind.dtype)


def _encode(text: str, *_: Any) -> bytes:
    return text.encode("latin1")


def _scalar(kind: _DType, data: Any) -> Any:
    return _from_bytes(data, kind)[0].item()


_NAMES: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _DType,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "scalar"): _scalar,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): lambda: b"",
}

"""Restricted unpickling: read lists, dicts and NumPy arrays from a pickle without running any code of the file.

A pickle names the functions that rebuild its objects. Only the names that pickled NumPy arrays use are accepted, and
they are mapped to functions of this module that decode bytes. The file can never call NumPy itself.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from logt.errors import InvalidInputError

_ALLOWED_KINDS = "biufSU"  # numbers and strings: no objects, no structured types


def read_pickle(path: str | os.PathLike[str]) -> Any:
    """Return the contents of a pickle of containers, strings, numbers and NumPy arrays; anything else is refused."""
    try:
        return _RestrictedUnpickler(io.BytesIO(Path(path).read_bytes()), encoding="latin1").load()
    except _ForbiddenError as error:
        raise InvalidInputError(f"{path} refers to {error}, which is not allowed here; nothing was run") from None
    except (pickle.UnpicklingError, ValueError, TypeError, EOFError, IndexError, KeyError, AttributeError) as error:
        raise InvalidInputError(f"{path} is not a pickle of plain lists, dicts and arrays: {error}") from error
    except (RecursionError, MemoryError, OverflowError, ImportError) as error:
        raise InvalidInputError(f"{path} is damaged: {type(error).__name__}") from error


class _ForbiddenError(Exception):
    """A name or value that a pickle must not use."""


class _AllowedCall:
    """A function that a pickle may call but not modify."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]):
        self._function = function

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)

    def __setstate__(self, state: Any) -> None:
        raise _ForbiddenError("a modified function")


class _Dtype:
    """A pickled numpy.dtype: a short name, then a state with the byte order."""

    __slots__ = ("dtype",)

    def __init__(self, name: Any, *_: Any):
        text = name.decode("ascii") if isinstance(name, bytes) else name
        if not isinstance(text, str) or text[:1] not in _ALLOWED_KINDS or not text[1:].isdigit():
            raise _ForbiddenError(f"an array of type {name!r}")
        self.dtype = np.dtype(text)

    def __setstate__(self, state: Any) -> None:
        self.dtype = self.dtype.newbyteorder(">" if state[1] == ">" else "<")


class _Array:
    """A pickled numpy.ndarray: created empty, then a state of (version, shape, dtype, is Fortran order, bytes)."""

    __slots__ = ("values",)

    def __init__(self, *_: Any):
        self.values: Any = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, is_fortran, data = state
        self.values = _decode_values(data, dtype, shape, "F" if is_fortran else "C")

    def __iter__(self) -> Any:
        return iter(self.values.tolist())

    def __len__(self) -> int:
        return len(self.values)


def _decode_values(data: Any, dtype: _Dtype, shape: Any, order: Any) -> Any:
    raw = data.encode("latin1") if isinstance(data, str) else bytes(data)
    flat = np.frombuffer(raw, dtype.dtype) if raw else np.empty(0, dtype.dtype)
    return flat.reshape(shape, order=order)


def _from_buffer(data: Any, dtype: _Dtype, shape: Any, order: str) -> _Array:
    array = _Array()
    array.values = _decode_values(data, dtype, shape, "F" if order == "F" else "C")
    return array


def _scalar(dtype: _Dtype, data: Any) -> Any:
    return _decode_values(data, dtype, (), "C").item()


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise _ForbiddenError(f"the encoding {encoding!r}")
    return text.encode("latin1")


def _empty_bytes(*args: Any) -> bytes:
    """Return b"", which protocol 2 pickles as a call of bytes() without arguments."""
    if args:
        raise _ForbiddenError("bytes() with arguments")
    return b""


_ALLOWED_CALLS = {
    "numpy.dtype": _AllowedCall(_Dtype),
    "numpy.ndarray": _AllowedCall(_Array),
    **{f"numpy.{core}.multiarray._reconstruct": _AllowedCall(_Array) for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray.scalar": _AllowedCall(_scalar) for core in ("core", "_core")},
    **{f"numpy.{core}.numeric._frombuffer": _AllowedCall(_from_buffer) for core in ("core", "_core")},
    **{f"{builtins}.bytes": _AllowedCall(_empty_bytes) for builtins in ("__builtin__", "builtins")},
    "_codecs.encode": _AllowedCall(_encode),
}


class _RestrictedUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        allowed = _ALLOWED_CALLS.get(f"{module}.{name}")
        if allowed is None:
            raise _ForbiddenError(f"{module}.{name}")
        return allowed

    def persistent_load(self, pid: Any) -> Any:
        raise _ForbiddenError("an object outside the file")

"""Ground truth from a pickle, path -> lists and dicts, without running anything that the file says.

A pickle names the functions that rebuild its objects. Here only the names that NumPy arrays are written with mean
something, and what they mean is code of ours that reads bytes: NumPy itself is never called by the file.
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

_KINDS = "biufSU"  # plain numbers and text: no objects, no structures


def read_pickle(path: str | os.PathLike[str]) -> Any:
    """What a pickle of plain containers, text, numbers and NumPy arrays holds; anything else is refused."""
    try:
        return _Restricted(io.BytesIO(Path(path).read_bytes()), encoding="latin1").load()
    except _RefusedError as refused:
        raise InvalidInputError(f"{path} asks for {refused}, which no ground truth needs; nothing was run") from None
    except (pickle.UnpicklingError, ValueError, TypeError, EOFError, IndexError, KeyError, AttributeError) as error:
        raise InvalidInputError(f"{path} is no pickle of plain lists, dicts and arrays: {error}") from error
    except (RecursionError, MemoryError, OverflowError, ImportError) as error:
        raise InvalidInputError(f"{path} is damaged: {type(error).__name__}") from error


class _RefusedError(Exception):
    """A name that a pickle must not call."""


class _Maker:
    """A function that a pickle may call, and cannot change."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., Any]):
        self._make = make

    def __call__(self, *given: Any) -> Any:
        return self._make(*given)

    def __setstate__(self, state: Any) -> None:
        raise _RefusedError("a change of a function")


class _Dtype:
    """numpy.dtype as it is pickled: a short name, then a byte order."""

    __slots__ = ("kind",)

    def __init__(self, name: Any, *_: Any):
        text = name.decode("ascii") if isinstance(name, bytes) else name
        if not isinstance(text, str) or text[:1] not in _KINDS or not text[1:].isdigit():
            raise _RefusedError(f"an array of {name!r}")
        self.kind = np.dtype(text)

    def __setstate__(self, state: Any) -> None:
        self.kind = self.kind.newbyteorder(">" if state[1] == ">" else "<")


class _Array:
    """numpy.ndarray as it is pickled: empty, then (version, shape, dtype, by columns, bytes)."""

    __slots__ = ("values",)

    def __init__(self, *_: Any):
        self.values: Any = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, by_columns, data = state
        self.values = _values(data, dtype, shape, "F" if by_columns else "C")

    def __iter__(self) -> Any:
        return iter(self.values.tolist())

    def __len__(self) -> int:
        return len(self.values)


def _values(data: Any, dtype: _Dtype, shape: Any, order: Any) -> Any:
    raw = data.encode("latin1") if isinstance(data, str) else bytes(data)
    flat = np.frombuffer(raw, dtype.kind) if raw else np.empty(0, dtype.kind)
    return flat.reshape(shape, order=order)


def _from_buffer(data: Any, dtype: _Dtype, shape: Any, order: str) -> _Array:
    made = _Array()
    made.values = _values(data, dtype, shape, "F" if order == "F" else "C")
    return made


def _scalar(dtype: _Dtype, data: Any) -> Any:
    return _values(data, dtype, (), "C").item()


def _encoded(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise _RefusedError(f"the encoding {encoding!r}")
    return text.encode("latin1")


def _no_bytes(*given: Any) -> bytes:
    """How empty bytes are written."""
    if given:
        raise _RefusedError("bytes of an object")
    return b""


_CALLABLE = {
    "numpy.dtype": _Maker(_Dtype),
    "numpy.ndarray": _Maker(_Array),
    **{f"numpy.{core}.multiarray._reconstruct": _Maker(_Array) for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray.scalar": _Maker(_scalar) for core in ("core", "_core")},
    **{f"numpy.{core}.numeric._frombuffer": _Maker(_from_buffer) for core in ("core", "_core")},
    **{f"{builtins}.bytes": _Maker(_no_bytes) for builtins in ("__builtin__", "builtins")},
    "_codecs.encode": _Maker(_encoded),
}


class _Restricted(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        known = _CALLABLE.get(f"{module}.{name}")
        if known is None:
            raise _RefusedError(f"{module}.{name}")
        return known

    def persistent_load(self, pid: Any) -> Any:
        raise _RefusedError("something outside the file")

"""Validation: what users pass -> values and arrays that the stages can trust. All checks of input are here."""

import math
import operator
import os
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logt._internal.arrays import to_numpy
from logt._internal.threads import split_range
from logt._internal.types import Array, Floats, Ids, Mask, Metric
from logt.errors import InvalidInputError

MAX_NORM = 1e18
"""Vectors with a larger norm would overflow float32 in a squared distance."""

MIN_NORM = 1e-15
"""Products of vectors with a smaller norm, other than 0, would lose digits of float32, unless they are normalized."""

_REPR = reprlib.Repr()
_REPR.maxother = _REPR.maxstring = 80

_BLOCK = 4096  # rows checked together: a memory-mapped matrix is never loaded at once

# ------------------------------------------------------------------------------------------------ parameters


def shown(value: object) -> str:
    """Return a value as an error message shows it: on one line, and at most about 80 characters of each part."""
    return " ".join(_REPR.repr(value).split())


def check_fields(stage: object, **checks: Callable[[str, Any], Any]) -> None:
    """Replace fields of a frozen dataclass by what their checks return; None stays if it is the default."""
    for field in fields(stage):  # type: ignore[arg-type]
        value = getattr(stage, field.name)
        if field.name in checks and (value is not None or field.default is not None):
            object.__setattr__(stage, field.name, checks[field.name](field.name, value))


def check_int(name: str, value: Any, least: int = 1) -> int:
    """Return the value as a plain int of at least `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidInputError(f"{name} must be an integer, got {shown(value)}") from None
    if isinstance(value, bool) or number < least:
        raise InvalidInputError(f"{name} must be >= {least}, got {shown(value)}")
    return number


def check_count(name: str, value: Any) -> int:
    """Return the value as a plain int of at least 0."""
    return check_int(name, value, least=0)


def check_float(name: str, value: Any) -> float:
    """Return the value as a plain float; NaN is refused."""
    if isinstance(value, str | bytes | bool):
        raise InvalidInputError(f"{name} must be a number, got {shown(value)}")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InvalidInputError(f"{name} must be a number, got {shown(value)}") from None
    except OverflowError:
        raise InvalidInputError(f"{name} must be a number below 1e308") from None
    if math.isnan(number):
        raise InvalidInputError(f"{name} must be a number, got {shown(value)}")
    return number


def _number_check(condition: str, holds: Callable[[float], bool]) -> Callable[[str, Any], float]:
    """Return a check that a value is a number for which a condition holds."""

    def check(name: str, value: Any) -> float:
        number = check_float(name, value)
        if not holds(number):
            raise InvalidInputError(f"{name} must be {condition}, got {shown(value)}")
        return number

    return check


check_exponent = _number_check("at least 0 and finite", lambda number: 0 <= number < math.inf)
check_fraction = _number_check("above 0 and at most 1", lambda number: 0 < number <= 1)
check_effort = _number_check("from 0 to 1", lambda number: 0 <= number <= 1)
check_ridge = _number_check("above 0", lambda number: 0 < number < math.inf)


def check_name(name: str, value: object) -> str:
    """Return the name of a kind of queries; raise InvalidInputError for what is no short line of text."""
    if not isinstance(value, str) or not 0 < len(value) <= 100 or not value.isprintable():
        raise InvalidInputError(f"{name} must be a name of 1 to 100 printable characters, got {shown(value)}")
    return value


def check_positive(stage: object, *names: str) -> None:
    """Convert the named fields of a frozen dataclass to plain ints of at least 1."""
    check_fields(stage, **dict.fromkeys(names, check_int))


def check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    """Raise unless the value is one of the choices."""
    if value not in choices:
        raise InvalidInputError(f"{name} must be one of {', '.join(map(repr, choices))}, got {shown(value)}")


def refuse_file(path: object) -> None:
    """Raise if the path of an index is that of a file."""
    if isinstance(path, str | os.PathLike) and "://" not in str(path) and Path(path).is_file():
        raise FileNotFoundError(
            f"{path} holds no index: it is a file, and an index is a folder. `logt convert {path} INDEX` converts an "
            "index of faiss, and `logt build` builds an index from a file of vectors"
        )


# --------------------------------------------------------------------------------------------------- vectors


def as_matrix(X: Any, dim: int, name: str) -> Array:
    """Return X as a 2-D array of real numbers with `dim` columns; one vector becomes one row. Copies nothing."""
    X = to_numpy(X)
    try:
        array = np.asarray(X)
    except (ValueError, TypeError) as error:
        raise InvalidInputError(f"{name} is not an array of numbers: {error}") from error
    if array.size == 0 and (array.shape in ((0,), (1, 0)) or array.shape[1:] == (dim,)):
        return np.empty((0, dim), np.float32)
    if array.dtype.kind not in "fiub":
        raise InvalidInputError(f"{name} must hold real numbers, got dtype {array.dtype}")
    if array.ndim == 1:
        array = array[None]
    if array.ndim != 2 or array.shape[1] != dim:
        raise InvalidInputError(
            f"{name} has shape {np.shape(X)}, but the index holds vectors of dimension {dim}: "
            f"pass shape (rows, {dim})"
        )
    return array


def infer_dim(X: Any) -> int:
    """Return the number of columns of a matrix, or the length of one vector; at least 1."""
    try:
        shape = np.shape(to_numpy(X))
    except ValueError as error:
        raise InvalidInputError(f"X is not an array of numbers: {error}") from error
    if not shape or shape[-1] < 1:
        raise InvalidInputError(f"X has shape {shape}, which is not a matrix of vectors")
    return int(shape[-1])


def check_rows(array: Array, name: str, hint: str, metric: Metric) -> Array:
    """Return the array if, as float32, every row is finite and has a norm that the metric allows.

    Norms are at most MAX_NORM. Under cosine, none is 0; otherwise, they are 0 or at least MIN_NORM.
    """
    for block in split_range(len(array), _BLOCK):
        with np.errstate(over="ignore"):
            rows = np.asarray(array[block], np.float32)
        finite = np.isfinite(rows)
        if not finite.all():
            row, column = (int(i) for i in np.argwhere(~finite)[0])
            value = array[block][row, column]
            problem = ", which is too large for float32" if np.isfinite(value) else ""
            where = f"row {block.start + row} of {name} holds {value} at column {column}"
            raise InvalidInputError(f"{where}{problem}; {hint}")
        norms = row_norms(rows)
        zero = norms == 0
        wrong = (norms > MAX_NORM) | (zero if metric == "cosine" else ~zero & (norms < MIN_NORM))
        if wrong.any():
            row = int(wrong.argmax())
            raise InvalidInputError(f"row {block.start + row} of {name} {_wrong_norm(norms[row])}; {hint}")
    return array


def _wrong_norm(norm: float) -> str:
    """Return what is wrong with the norm of a row, and the way out."""
    if norm == 0:
        return "is all zeros, as float32, and has no direction: use metric='ip' or 'l2'"
    if norm > MAX_NORM:
        return f"has norm {norm:g}, above {MAX_NORM:g}: scale all vectors"
    return f"has norm {norm:g}, above 0 and below {MIN_NORM:g}: scale all vectors, or make it 0"


def row_norms(array: Array) -> NDArray[np.float64]:
    """Return the norm of each row as float32, summed in float64."""
    norms = np.empty(len(array))
    for block in split_range(len(array), _BLOCK):
        rows = _as_float32(array[block]).astype(np.float64)
        norms[block] = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return norms


def normalize_rows(array: Array, norms: NDArray[np.float64]) -> Floats:
    """Return the rows as float32, divided by their norms; rows of norm 0 stay 0."""
    X = np.empty(array.shape, np.float32)
    divisors = np.where(norms > 0, norms, 1)[:, None]
    for block in split_range(len(array), _BLOCK):
        X[block] = _as_float32(array[block]) / divisors[block]
    return X


def _as_float32(rows: Array) -> Floats:
    """Return rows as all stages read them: the log of an index keeps float32, and must give the same codes."""
    return np.asarray(rows, np.float32)


class FloatRows:
    """The rows of a matrix as float32, of norm 1 if `normalize` (rows of norm 0 stay 0), computed when they are read.

    A stage that reads a few rows at a time never holds a copy of them all.
    """

    def __init__(self, array: Array, *, normalize: bool):
        self._array, self.normalized = array, normalize
        self.shape: tuple[int, int] = array.shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | Ids) -> Floats:
        part = self._array[rows]
        return normalize_rows(part, row_norms(part)) if self.normalized else _as_float32(part)


# ------------------------------------------------------------------------------------------------------- ids


def refuse_mixed(ids: Any) -> None:
    """Raise if ids are a list of strings and of something else, which NumPy would turn into strings."""
    if isinstance(ids, list | tuple | set | frozenset) and 0 < sum(isinstance(one, str) for one in ids) < len(ids):
        other = next(one for one in ids if not isinstance(one, str))
        string = next(one for one in ids if isinstance(one, str))
        raise InvalidInputError(
            f"ids are all integers or all strings, got both: {shown(string)} and {shown(other)}; "
            "map(str, ids) makes all of them strings"
        )


def as_int_ids(ids: Any) -> Ids:
    """Return requested ids, one or many, as an int64 array."""
    if isinstance(ids, set | frozenset | range):
        ids = list(ids)
    try:
        given = np.atleast_1d(np.asarray(ids))
    except ValueError as error:
        raise InvalidInputError(f"ids are not a list of integers: {error}") from error
    if given.size == 0:
        return np.empty(0, np.int64)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        refuse_mixed(ids)
        raise InvalidInputError(f"ids must be a 1-D list of integers, got dtype {given.dtype}, shape {given.shape}")
    return given.astype(np.int64)


def check_new_ids(ids: Any, count: int, next_id: int, is_taken: Callable[[Ids], Mask]) -> Ids:
    """Return one new int64 id per vector: the given ones, or the numbers from next_id on.

    is_taken: tells which ids are in the index.
    """
    if ids is None:
        if next_id > np.iinfo(np.int64).max - count:
            raise InvalidInputError(f"no free ids are left from {next_id} on; pass ids")
        return np.arange(next_id, next_id + count, dtype=np.int64)
    try:
        given = np.asarray(ids)
    except ValueError as error:
        raise InvalidInputError(f"ids are not a list of integers or strings: {error}") from error
    if given.shape != (count,):
        raise InvalidInputError(f"ids have shape {given.shape}, but there are {count} vectors: pass one id each")
    if count == 0:
        return np.empty(0, np.int64)
    if given.dtype.kind not in "iu":
        refuse_mixed(ids)
        raise InvalidInputError(f"ids must be integers (or all strings), got dtype {given.dtype}")
    if int(given.min()) < 0 or int(given.max()) >= np.iinfo(np.int64).max:
        wrong = int(given.min()) if int(given.min()) < 0 else int(given.max())
        raise InvalidInputError(f"ids must be from 0 to 2^63 - 2, got {wrong}; nothing was added")
    numbers = given.astype(np.int64)
    unique, counts = np.unique(numbers, return_counts=True)
    if len(unique) < count:
        raise InvalidInputError(f"id {unique[counts > 1][0]} is given twice; nothing was added")
    if unique[0] < next_id and (taken := unique[is_taken(unique)]).size:
        raise InvalidInputError(f"id {taken[0]} is already in the index; nothing was added")
    return numbers


# --------------------------------------------------------------------------------------------------- filters


def as_mask(filter: Any) -> Mask | None:
    """Return the filter as an array if it is a boolean mask: an array, a list, or a tensor or column; else None."""
    if isinstance(filter, list | tuple):
        return np.array(filter) if filter and all(isinstance(value, bool | np.bool_) for value in filter) else None
    kind = getattr(filter, "dtype", getattr(filter, "type", None))  # pyarrow has a type
    if str(kind).lower() not in ("bool", "boolean", "torch.bool"):
        return None
    values = np.asarray(to_numpy(filter) if hasattr(filter, "__dlpack__") else filter)
    if values.dtype != bool:  # a column with missing values
        raise InvalidInputError("the mask has missing values; fill them with True or False")
    return values


def call_filter(function: Callable[[Array], Any], ids: Array) -> Mask:
    """Return which ids a filter function lets pass."""
    mask = np.asarray(function(ids))
    if mask.shape != ids.shape or mask.dtype != bool:
        raise InvalidInputError(
            f"the filter returned {mask.dtype} of shape {mask.shape} for {len(ids)} ids: it must return a mask"
        )
    return mask


def split_mask(mask: Mask, counts: Sequence[int]) -> list[Mask]:
    """Return the parts of a mask over all ids; counts: how many ids each segment has."""
    if mask.shape != (sum(counts),):
        raise InvalidInputError(f"the mask has shape {mask.shape}, but there are {sum(counts)} ids in index.ids")
    return [mask[start:stop] for start, stop in pairwise(np.cumsum([0, *counts]))]


# ------------------------------------------------------------------------------------------- arrays from disk


def check_type(array: Array, dtype: Any, ndim: int) -> Array:
    """Return an array of a file if it has the expected type; its values are not read."""
    if array.dtype != dtype or array.ndim != ndim:
        raise ValueError(f"an array is {array.dtype} with {array.ndim} dimensions, expected {dtype} with {ndim}")
    return array


def check_array(array: Array, dtype: Any, ndim: int) -> Array:
    """Return an array read from disk if it has the expected type and holds no NaN or infinity."""
    check_type(array, dtype, ndim)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError("an array holds NaN or infinity")
    return array


def check_lengths(*arrays: Array) -> None:
    """Raise unless arrays read from disk have the same length."""
    if len({len(array) for array in arrays}) != 1:
        raise ValueError("arrays of one segment differ in length")

"""The public boundary: what users pass -> arrays that the stages can trust. All checks of data stand here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logt._threads import spans
from logt._types import Array, Floats, Ids, Mask
from logt.errors import InvalidInputError

LONGEST = 1e18
"""Vectors of a larger norm would overflow float32 in a squared distance."""

_BLOCK = 4096  # rows looked at together: a memory-mapped matrix is never read whole


def checked_matrix(X: Any, dim: int, what: str) -> Array:
    """X as a 2-D array of real numbers with `dim` columns; one vector becomes one row. Copies nothing."""
    try:
        array = np.asarray(X)
    except (ValueError, TypeError) as error:
        raise InvalidInputError(f"{what} is not an array of numbers: {error}") from error
    if array.size == 0 and (array.shape in ((0,), (1, 0)) or array.shape[1:] == (dim,)):
        return np.empty((0, dim), np.float32)
    if array.dtype.kind not in "fiub":
        raise InvalidInputError(f"{what} must hold real numbers, got dtype {array.dtype}")
    if array.ndim == 1:
        array = array[None]
    if array.ndim != 2 or array.shape[1] != dim:
        raise InvalidInputError(
            f"{what} has shape {np.shape(X)}, but the index holds vectors of dimension {dim}: "
            f"pass shape (rows, {dim})"
        )
    return array


def dimension(X: Any) -> int:
    """The number of columns of a matrix, or of one vector; at least 1."""
    try:
        shape = np.shape(X)
    except ValueError as error:
        raise InvalidInputError(f"X is not an array of numbers: {error}") from error
    if not shape or shape[-1] < 1:
        raise InvalidInputError(f"X has shape {shape}, which is no matrix of vectors")
    return int(shape[-1])


def checked_rows(array: Array, what: str, way_out: str) -> Array:
    """The array, once every row is finite as float32 and short enough to be squared."""
    for block in spans(len(array), _BLOCK):
        with np.errstate(over="ignore"):
            rows = np.asarray(array[block], np.float32)
        finite = np.isfinite(rows)
        if not finite.all():
            row, column = (int(i) for i in np.argwhere(~finite)[0])
            value = array[block][row, column]
            raise InvalidInputError(f"row {block.start + row} of {what} holds {value} at column {column}; {way_out}")
        norms = row_norms(rows)
        if norms.size and norms.max() > LONGEST:
            row = int(norms.argmax())
            raise InvalidInputError(
                f"row {block.start + row} of {what} has norm {norms[row]:g}, above {LONGEST:g}; {way_out}"
            )
    return array


def row_norms(array: Array) -> NDArray[np.float64]:
    """The length of each row, summed in float64."""
    if len(array) <= _BLOCK:
        few = np.asarray(array, np.float64)
        lengths: NDArray[np.float64] = np.sqrt(np.einsum("ij,ij->i", few, few))
        return lengths
    norms = np.empty(len(array))
    for block in spans(len(array), _BLOCK):
        rows = np.asarray(array[block], np.float64)
        norms[block] = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return norms


def unit_rows(array: Array, norms: NDArray[np.float64]) -> Floats:
    """The rows as float32, divided by their norms; rows of norm 0 stay 0."""
    X = np.empty(array.shape, np.float32)
    divisors = np.where(norms > 0, norms, 1)[:, None]
    for block in spans(len(array), _BLOCK):
        X[block] = np.asarray(array[block], np.float64) / divisors[block]
    return X


class UnitRows:
    """The rows of a matrix as float32 of length 1 (rows of norm 0 stay 0), made when they are asked for.

    A stage that asks for a few rows at a time never has a copy of them all.
    """

    def __init__(self, array: Array, norms: NDArray[np.float64]):
        self._array, self._norms = array, norms
        self.shape: tuple[int, int] = array.shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | Ids) -> Floats:
        return unit_rows(self._array[rows], self._norms[rows])


def known_ids(ids: Any) -> Ids:
    """Ids that are asked for, one or many, as int64."""
    if isinstance(ids, set | frozenset | range):
        ids = list(ids)
    try:
        given = np.atleast_1d(np.asarray(ids))
    except ValueError as error:
        raise InvalidInputError(f"ids are no list of whole numbers: {error}") from error
    if given.size == 0:
        return np.empty(0, np.int64)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise InvalidInputError(f"ids must be whole numbers in one row, got dtype {given.dtype}, shape {given.shape}")
    return given.astype(np.int64)


def checked_ids(ids: Any, count: int, next_id: int, present: Ids) -> Ids:
    """One int64 id per vector: those given, new and different, or the numbers from next_id on."""
    if ids is None:
        if next_id > np.iinfo(np.int64).max - count:
            raise InvalidInputError(f"no free id is left from {next_id} on; pass ids")
        return np.arange(next_id, next_id + count, dtype=np.int64)
    try:
        given = np.asarray(ids)
    except ValueError as error:
        raise InvalidInputError(f"ids are no list of whole numbers or texts: {error}") from error
    if given.shape != (count,):
        raise InvalidInputError(f"ids has shape {given.shape}, but there are {count} vectors: one id each")
    if count == 0:
        return np.empty(0, np.int64)
    if given.dtype.kind not in "iu":
        raise InvalidInputError(f"ids must be whole numbers (or all text), got dtype {given.dtype}")
    if int(given.min()) < 0 or int(given.max()) >= np.iinfo(np.int64).max:
        wrong = int(given.min()) if int(given.min()) < 0 else int(given.max())
        raise InvalidInputError(f"ids must be from 0 to 2^63 - 2, got {wrong}; nothing was added")
    numbers = given.astype(np.int64)
    unique, counts = np.unique(numbers, return_counts=True)
    if len(unique) < count:
        raise InvalidInputError(f"id {unique[counts > 1][0]} is given twice; nothing was added")
    if unique[0] < next_id and (taken := np.intersect1d(present, unique)).size:
        raise InvalidInputError(f"id {taken[0]} is in the index already; nothing was added")
    return numbers


def as_mask(filter: Any) -> Mask | None:
    """A filter as an array, if it is a mask."""
    if isinstance(filter, list) and filter and all(isinstance(value, bool) for value in filter):
        return np.array(filter)
    return filter if isinstance(filter, np.ndarray) and filter.dtype == bool else None


def checked_filter(filter: Any, parts: Sequence[tuple[Ids, Mask]]) -> list[Mask]:
    """For each segment's (ids, live rows), which rows a filter lets through.

    A filter is a function from ids to a mask, a mask over all live ids, or ids.
    """
    if callable(filter):
        masks = []
        for ids, live in parts:
            answer = np.asarray(filter(ids[live]))
            if answer.shape != (int(live.sum()),) or answer.dtype != bool:
                raise InvalidInputError(
                    f"the filter answered {answer.dtype} of shape {answer.shape} to {int(live.sum())} ids: "
                    "it must answer a mask"
                )
            mask = np.zeros(len(ids), bool)
            mask[live] = answer
            masks.append(mask)
        return masks
    given = as_mask(filter)
    if given is not None:
        total = sum(int(live.sum()) for _, live in parts)
        if given.shape != (total,):
            raise InvalidInputError(f"the mask has shape {given.shape}, but there are {total} ids in index.ids")
        masks, start = [], 0
        for ids, live in parts:
            mask = np.zeros(len(ids), bool)
            count = int(live.sum())
            mask[live] = given[start : start + count]
            masks.append(mask)
            start += count
        return masks
    wanted = known_ids(filter)
    return [np.isin(ids, wanted) for ids, _ in parts]

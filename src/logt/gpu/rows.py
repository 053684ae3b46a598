"""Vectors to add, wherever they are -> blocks of float32 on a device, checked as they are read."""

from copy import copy
from typing import Any

import numpy as np

from logt._internal.threads import split_range
from logt._internal.types import Ids, Metric
from logt._internal.validation import MAX_NORM, MIN_NORM, as_matrix, check_rows
from logt.errors import InvalidInputError
from logt.gpu.device import Device

_ROWS = 1 << 16  # that are read together, of a sample


class DeviceRows:
    """The rows of a matrix that need not fit into the memory of the device: an array, a file, or a tensor there.

    What has a shape and can be sliced is read block by block; everything else becomes an array first.
    """

    def __init__(self, device: Device, X: Any, dim: int, metric: Metric):
        self.device, self.metric = device, metric
        if device.holds(X):
            X = device.put(X)
            if X.dtype.kind not in "fiub":
                raise InvalidInputError(f"X must hold real numbers, got dtype {X.dtype}")
        elif isinstance(X, np.ndarray) or not _can_be_sliced(X):
            X = as_matrix(X, dim, "X")
        if len(X.shape) != 2 or X.shape[1] != dim:
            raise InvalidInputError(f"X has shape {tuple(X.shape)}, but the index holds vectors of dimension {dim}")
        self._array, self._first, self.shape = X, 0, (int(X.shape[0]), dim)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | Ids) -> Any:
        """Return a part of the rows, which is read later, or some of them as `block` has them, on the host."""
        if isinstance(rows, slice):
            first, last, _ = rows.indices(len(self))
            view = copy(self)
            view._first, view.shape = self._first + first, (max(0, last - first), self.shape[1])
            return view
        order = np.argsort(rows, kind="stable")  # files are read in this order
        at, out = rows[order] + self._first, np.empty((len(rows), self.shape[1]), np.float32)
        there = isinstance(self._array, self.device.xp.ndarray)
        with self.device.active():
            for part in split_range(len(at), _ROWS):
                given = self._array[self.device.put(at[part]) if there else at[part]]
                out[order[part]] = self.device.get(self._checked(given, at[part]))
        return out

    @property
    def normalized(self) -> bool:
        """Whether rows have norm 1 when they are read."""
        return self.metric == "cosine"

    def block(self, rows: slice) -> Any:
        """Return rows on the device as float32, of norm 1 under cosine; raise InvalidInputError for wrong ones."""
        first, last = self._first + rows.start, self._first + rows.stop
        return self._checked(self._array[first:last], range(first, last))

    def _checked(self, part: Any, numbers: Any) -> Any:
        """Return rows that were read as float32 on the device. numbers: theirs."""
        xp = self.device.xp
        if not isinstance(part, xp.ndarray):
            part = self.device.put(np.ascontiguousarray(part))
        with np.errstate(over="ignore"):
            X = part.astype(np.float32)
            norms = xp.sqrt(xp.square(X, dtype=np.float64).sum(axis=1))
        zero = norms == 0
        wrong = ~(norms <= MAX_NORM) | (zero if self.normalized else ~zero & (norms < MIN_NORM))
        if bool(wrong.any()):
            row = int(wrong.argmax())
            try:
                check_rows(self.device.get(part[row : row + 1]), "X", "nothing was added", self.metric)
            except InvalidInputError as error:
                raise InvalidInputError(str(error).replace("row 0", f"row {numbers[row]}", 1)) from None
        if self.normalized:
            X /= norms[:, None].astype(np.float32)
        return X


def _can_be_sliced(X: Any) -> bool:
    """Return whether X is a matrix of numbers that is read in parts, such as a dataset of HDF5, and no tensor."""
    if hasattr(X, "__dlpack__") or hasattr(X, "toarray") or not hasattr(X, "__getitem__"):
        return False
    try:
        return len(X.shape) == 2 and len(X) > 0 and np.dtype(X.dtype).kind in "fiub"
    except (AttributeError, TypeError):
        return False

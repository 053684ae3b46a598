"""Type aliases for the arrays and values that pass between modules."""

from collections.abc import Callable, Set
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]
Array = NDArray[Any]
Metric = Literal["cosine", "ip", "l2"]


class Tensor(Protocol):
    """An array of another library that follows the DLPack protocol."""

    def __dlpack__(self, *, stream: Any = None) -> Any: ...

    def __dlpack_device__(self) -> tuple[Any, Any]: ...


class ArrowColumn(Protocol):
    """A column of pyarrow or polars."""

    def to_numpy(self) -> Any: ...

    def __len__(self) -> int: ...


Vectors = ArrayLike | Tensor | ArrowColumn
"""Vectors as users pass them: a matrix, or one vector."""
SomeIds = ArrayLike | ArrowColumn | Set[int] | Set[str]
"""Ids as users pass them: one or many, integers or strings."""
Filter = SomeIds | Callable[[Array], ArrayLike]
"""Ids, a mask over all ids, or a function from an array of ids to a mask."""

"""Type aliases for the arrays that pass between stages."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]
Array = NDArray[Any]

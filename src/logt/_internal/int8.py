"""Rows of floats as int8, V -> codes · scale, and products of such rows."""

import numpy as np
from numpy.typing import NDArray

from logt import _kernels
from logt._internal.types import Floats

Bytes = NDArray[np.int8]


def to_int8(V: Floats) -> tuple[Bytes, Floats]:
    """Return (codes, scale): the rows of V as codes·scale, the largest |component| of a row being 127."""
    codes, scale = np.empty(V.shape, np.int8), np.empty(len(V), np.float32)
    _kernels.to_int8(np.ascontiguousarray(V), codes, scale)
    return codes, scale


def byte_products(X: Bytes, Y: Bytes, scale: Floats) -> Floats:
    """Return the products of all rows of X with all rows of Y, times the scale of the latter."""
    products = np.empty((len(X), len(Y)), np.int32)
    _kernels.byte_products(X, Y, products)
    scaled: Floats = np.multiply(products, scale, dtype=np.float32, casting="unsafe")
    return scaled

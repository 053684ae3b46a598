"""The book, memory vectors <-> 4 bits per coordinate: in steps of the deviation of a band, and a scale per row."""

import numpy as np
from numpy.typing import NDArray

from logt._internal.types import Floats
from logt.lists.residual import CHUNK, STEPS, Bands

_BITS = 4


def book_bytes(dim: int) -> int:
    """Return the bytes of one memory vector."""
    return -(-dim // (2 * CHUNK)) * CHUNK


def pack_book(Y: Floats, bands: Bands, deviation: Floats) -> tuple[NDArray[np.uint8], Floats]:
    """Return (4-bit fields, packed; a scale per row) of rotated memory vectors. deviation: of each band."""
    scaled = Y / bands.per_dim(deviation)
    scale = np.sqrt(np.square(scaled).mean(axis=1, keepdims=True))
    step = np.where(scale > 0, scale * STEPS[_BITS], 1)
    levels = np.clip(np.floor(scaled / step), -8, 7)
    fields = np.full((len(Y), book_bytes(Y.shape[1]) * 2), 8, np.uint8)
    fields[:, : Y.shape[1]] = levels + 8
    chunks = fields.reshape(len(Y), -1, 2, CHUNK)
    book = (chunks[:, :, 0] | chunks[:, :, 1] << np.uint8(4)).reshape(len(Y), -1)
    norms = np.sqrt(np.square((levels + 0.5) * bands.per_dim(deviation)).sum(axis=1))
    length = np.sqrt(np.square(Y).sum(axis=1)) / np.maximum(norms, 1e-30)
    return book, length.astype(np.float32)


def unpack_book(book: NDArray[np.uint8], scale: Floats, bands: Bands, deviation: Floats) -> Floats:
    """Return the memory vectors (rows, dim), rotated, that `pack_book` has packed."""
    fields = np.empty((len(book), book.shape[1] * 2), np.uint8)
    chunks, halves = book.reshape(len(book), -1, 1, CHUNK), fields.reshape(len(book), -1, 2, CHUNK)
    halves[:, :, :1], halves[:, :, 1:] = chunks & np.uint8(15), chunks >> np.uint8(4)
    per_dim = bands.per_dim(deviation)
    vectors: Floats = (fields[:, : len(per_dim)] - np.float32(7.5)) * per_dim * scale[:, None]
    return vectors

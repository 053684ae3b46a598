"""Sketches, (X, Ŷ, U) -> a few bits per dimension of what the codes leave out of each vector, x − Ŷu."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from logt import _kernels
from logt._threads import SERIAL, Workers, spans
from logt._types import Array, Floats
from logt.errors import at_least_one, one_of
from logt.stages.codes import Codes

CHUNK = 64
"""Bytes that kernels read together; a sketch is padded to a multiple of them."""

_ROUNDS = 4
_ROWS = 512  # vectors sketched by one task
_STEP = {1: 1.596, 2: 0.9957, 4: 0.3352}  # of the best uniform quantizer of a normal variable (Max 1960)


@dataclass(frozen=True)
class Sketches:
    """Row i of the rest is about factor_i · (field − middle), turned back; fields of `bits` bits (kernels.hpp).

    The first half of each row's bytes is kept apart from the others: it often says that a row is not wanted.
    """

    head: NDArray[np.uint8]
    tail: NDArray[np.uint8]
    factor: Floats
    bits: int

    def __len__(self) -> int:
        return len(self.factor)

    @property
    def nbytes(self) -> int:
        return self.head.nbytes + self.tail.nbytes + self.factor.nbytes

    def take(self, rows: Array) -> Sketches:
        head, tail = (_aligned(part[rows]) for part in (self.head, self.tail))
        return Sketches(head, tail, self.factor[rows], self.bits)

    @staticmethod
    def joined(parts: Sequence[Sketches]) -> Sketches:
        """Those of several segments, one after the other."""
        head, tail = np.concatenate([p.head for p in parts]), np.concatenate([p.tail for p in parts])
        return Sketches(head, tail, np.concatenate([p.factor for p in parts]), parts[0].bits)

    def reconstructed(self, rows: Array | slice, dim: int) -> Floats:
        """The rests of some rows, as far as they are known."""
        middle = np.float32((2**self.bits - 1) / 2)
        code = np.concatenate([self.head[rows], self.tail[rows]], axis=1)
        Z = (_unpacked(code, self.bits, dim) - middle) * self.factor[rows, None]
        return rotated(Z, back=True)


@dataclass(frozen=True)
class Sketch:
    """b bits for each dimension of x − Ŷu after a random rotation, and the factor that keeps its length.

    The rotation spreads each rest evenly over the dimensions, so that one step suits all of them. bits=None takes
    4 up to 256 dimensions, where they are few bytes, and 2 above.
    """

    bits: Literal[1, 2, 4] | None = None

    def __post_init__(self) -> None:
        if self.bits is not None:
            at_least_one(self, "bits")
        one_of("bits", self.bits, (1, 2, 4, None))

    def __call__(self, X: Floats, Y: Floats, codes: Codes, workers: Workers = SERIAL) -> Sketches:
        N, dim = X.shape
        bits = self.bits or (4 if dim <= 256 else 2)
        size = sum(sketch_bytes(dim, bits))
        head, tail = (np.empty((N, part), np.uint8) for part in sketch_bytes(dim, bits))
        factor = np.empty(N, np.float32)

        def fill(rows: slice) -> None:
            Z = rotated(X[rows] - codes.reconstructed(Y, rows))
            fields, factor[rows] = _quantized(Z, bits)
            head[rows], tail[rows] = np.split(_packed(fields, bits, size), [head.shape[1]], axis=1)

        workers.each(fill, spans(N, _ROWS), "sketches")
        return Sketches(head, tail, factor, bits)


def _quantized(Z: Floats, bits: int) -> tuple[NDArray[np.uint8], Floats]:
    """(fields, factors that keep the lengths)."""
    half = 2 ** (bits - 1)
    spread = np.sqrt(np.square(Z).mean(axis=1, keepdims=True))
    step = np.where(spread > 0, spread * np.float32(_STEP[bits]), 1)
    levels = np.clip(np.floor(Z / step), -half, half - 1)
    fields = (levels + half).astype(np.uint8)
    levels += np.float32(0.5)
    factor = np.sqrt(np.square(Z).sum(axis=1) / np.square(levels).sum(axis=1))
    return fields, factor


def _aligned(code: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A copy that begins at a multiple of CHUNK: no piece that a kernel reads spans two lines of the cache."""
    space = np.empty(code.size + CHUNK, np.uint8)
    first = -space.ctypes.data % CHUNK
    copy = space[first : first + code.size].reshape(code.shape)
    copy[:] = code
    return copy


def sketch_bytes(dim: int, bits: int) -> tuple[int, int]:
    """(bytes of the head, bytes of the tail) of one vector's fields: whole chunks."""
    chunks = -(-dim * bits // (8 * CHUNK))
    head = -(-chunks // 2)
    return CHUNK * head, CHUNK * (chunks - head)


def rotated(X: Floats, *, back: bool = False) -> Floats:
    """A copy of X with its rows turned by a fixed random rotation of their dimension, or back."""
    turned = np.array(X, np.float32, order="C")
    _kernels.rotate(turned, _signs(turned.shape[1]), back)
    return turned


@cache
def _signs(dim: int) -> Floats:
    """Random signs that are the same on each machine, for ever: bits of SplitMix64 from 0 on."""
    with np.errstate(over="ignore"):
        z = np.arange(1, _ROUNDS * dim + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.where(z >> np.uint64(63), np.float32(1), np.float32(-1)).reshape(_ROUNDS, dim)


def _packed(fields: NDArray[np.uint8], bits: int, size: int) -> NDArray[np.uint8]:
    """(rows, dim) fields -> (rows, size) bytes."""
    per_byte = 8 // bits
    padded = np.zeros((len(fields), size * per_byte), np.uint8)
    padded[:, : fields.shape[1]] = fields
    chunks = padded.reshape(len(fields), size // CHUNK, per_byte, CHUNK)
    code = chunks[:, :, 0].copy()
    for field in range(1, per_byte):
        code |= chunks[:, :, field] << np.uint8(field * bits)
    return code.reshape(len(fields), size)


def _unpacked(code: NDArray[np.uint8], bits: int, dim: int) -> Floats:
    """(rows, size) bytes -> (rows, dim) fields."""
    chunks = code.reshape(len(code), code.shape[1] // CHUNK, 1, CHUNK)
    shifts = (np.arange(8 // bits, dtype=np.uint8) * bits)[:, None]
    fields = (chunks >> shifts) & np.uint8(2**bits - 1)
    return fields.reshape(len(code), code.shape[1] * 8 // bits)[:, :dim].astype(np.float32)

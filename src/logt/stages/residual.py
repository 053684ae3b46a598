"""Residual codes, (X, Ŷ, U) -> a few bits per dimension of the residual x − Ŷu of each vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from logt import _kernels
from logt._threads import SERIAL, Workers, split_range
from logt._types import Array, Floats
from logt._validation import check_choice, check_positive
from logt.stages.codes import Codes

CHUNK = 64
"""Bytes that kernels read together; a residual code is padded to a multiple of them."""

_ROUNDS = 4  # of signs and Hadamard transforms in the rotation
_ROWS = 512  # vectors encoded by one task
_STEP = {1: 1.596, 2: 0.9957, 4: 0.3352}  # of the optimal uniform quantizer of a normal variable (Max 1960)


@dataclass(frozen=True)
class ResidualCodes:
    """Row i of the residual is approximately factor_i * (field - middle), rotated back; fields of `bits` bits.

    The first half of each row's bytes is stored apart from the second: it often shows that a row cannot be among
    the results (kernels.hpp).
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

    def take(self, rows: Array) -> ResidualCodes:
        """Return the codes of some rows."""
        head, tail = (_aligned(part[rows]) for part in (self.head, self.tail))
        return ResidualCodes(head, tail, self.factor[rows], self.bits)

    @staticmethod
    def concatenate(parts: Sequence[ResidualCodes]) -> ResidualCodes:
        """Concatenate the rows of several segments."""
        head, tail = np.concatenate([p.head for p in parts]), np.concatenate([p.tail for p in parts])
        return ResidualCodes(head, tail, np.concatenate([p.factor for p in parts]), parts[0].bits)

    def reconstruct(self, rows: Array | slice, dim: int) -> Floats:
        """Return the approximate residuals of some rows."""
        middle = np.float32((2**self.bits - 1) / 2)
        code = np.concatenate([self.head[rows], self.tail[rows]], axis=1)
        Z = (_unpack(code, self.bits, dim) - middle) * self.factor[rows, None]
        return rotate(Z, back=True)


@dataclass(frozen=True)
class ResidualQuantizer:
    """b bits for each dimension of x − Ŷu after a random rotation, and a factor that preserves the norm.

    The rotation spreads each residual evenly over the dimensions, so that one step size fits all of them. bits=None
    uses 4 bits up to 256 dimensions, where they take few bytes, and 2 above.
    """

    bits: Literal[1, 2, 4] | None = None

    def __post_init__(self) -> None:
        if self.bits is not None:
            check_positive(self, "bits")
        check_choice("bits", self.bits, (1, 2, 4, None))

    def __call__(self, X: Floats, Y: Floats, codes: Codes, workers: Workers = SERIAL) -> ResidualCodes:
        N, dim = X.shape
        bits = self.bits or (4 if dim <= 256 else 2)
        size = sum(code_bytes(dim, bits))
        head, tail = (np.empty((N, part), np.uint8) for part in code_bytes(dim, bits))
        factor = np.empty(N, np.float32)

        def fill(rows: slice) -> None:
            Z = rotate(X[rows] - codes.reconstruct(Y, rows))
            fields, factor[rows] = _quantize(Z, bits)
            head[rows], tail[rows] = np.split(_pack(fields, bits, size), [head.shape[1]], axis=1)

        workers.map(fill, split_range(N, _ROWS), "residuals")
        return ResidualCodes(head, tail, factor, bits)


def _quantize(Z: Floats, bits: int) -> tuple[NDArray[np.uint8], Floats]:
    """Return (fields, factors that preserve the norms)."""
    half = 2 ** (bits - 1)
    deviation = np.sqrt(np.square(Z).mean(axis=1, keepdims=True))
    step = np.where(deviation > 0, deviation * np.float32(_STEP[bits]), 1)
    levels = np.clip(np.floor(Z / step), -half, half - 1)
    fields = (levels + half).astype(np.uint8)
    levels += np.float32(0.5)
    factor = np.sqrt(np.square(Z).sum(axis=1) / np.square(levels).sum(axis=1))
    return fields, factor


def _aligned(code: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a copy that starts at a multiple of CHUNK, so that no chunk spans two cache lines."""
    space = np.empty(code.size + CHUNK, np.uint8)
    first = -space.ctypes.data % CHUNK
    copy = space[first : first + code.size].reshape(code.shape)
    copy[:] = code
    return copy


def code_bytes(dim: int, bits: int) -> tuple[int, int]:
    """Return (bytes of the head, bytes of the tail) of one vector's code, in full chunks."""
    chunks = -(-dim * bits // (8 * CHUNK))
    head = -(-chunks // 2)
    return CHUNK * head, CHUNK * (chunks - head)


def rotate(X: Floats, *, back: bool = False) -> Floats:
    """Return a copy of X with its rows rotated by a fixed random rotation of their dimension, or rotated back."""
    rotated = np.array(X, np.float32, order="C")
    _kernels.rotate(rotated, _signs(rotated.shape[1]), back)
    return rotated


@cache
def _signs(dim: int) -> Floats:
    """Return random signs that never change: bits of SplitMix64 from 0 on. They are part of the file format."""
    with np.errstate(over="ignore"):
        z = np.arange(1, _ROUNDS * dim + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.where(z >> np.uint64(63), np.float32(1), np.float32(-1)).reshape(_ROUNDS, dim)


def _pack(fields: NDArray[np.uint8], bits: int, size: int) -> NDArray[np.uint8]:
    """(rows, dim) fields -> (rows, size) bytes."""
    per_byte = 8 // bits
    padded = np.zeros((len(fields), size * per_byte), np.uint8)
    padded[:, : fields.shape[1]] = fields
    chunks = padded.reshape(len(fields), size // CHUNK, per_byte, CHUNK)
    code = chunks[:, :, 0].copy()
    for field in range(1, per_byte):
        code |= chunks[:, :, field] << np.uint8(field * bits)
    return code.reshape(len(fields), size)


def _unpack(code: NDArray[np.uint8], bits: int, dim: int) -> Floats:
    """(rows, size) bytes -> (rows, dim) fields."""
    chunks = code.reshape(len(code), code.shape[1] // CHUNK, 1, CHUNK)
    shifts = (np.arange(8 // bits, dtype=np.uint8) * bits)[:, None]
    fields = (chunks >> shifts) & np.uint8(2**bits - 1)
    return fields.reshape(len(code), code.shape[1] * 8 // bits)[:, :dim].astype(np.float32)

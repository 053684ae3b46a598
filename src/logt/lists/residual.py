"""Residual codes, (residuals) -> a few bits per dimension, more of them where the residuals vary more.

Residuals are rotated first: dimensions are sorted by variance and divided into bands, and each band is rotated by a
random rotation, which makes its coordinates nearly normal with one variance. A band gets the number of bits that
reduces the total error most, 0 to 8 per dimension, so that descriptors with an uneven spectrum lose far less than
with the same number of bits everywhere. With an even spectrum, there is one band.
"""

from dataclasses import dataclass
from functools import cache
from heapq import heapify, heappop, heappush
from typing import Self

import numpy as np
from numpy.typing import NDArray

from logt import _kernels
from logt._internal.arrays import array_module
from logt._internal.types import Array, Floats, Ints

MAX_BITS = 8
CHUNK = 16
"""Bytes that are one unit of the layout of packed bits; codes are padded to a multiple (lists.hpp)."""

STEPS = np.array([0, 1.596, 0.9957, 0.586, 0.3352, 0.1881, 0.1041, 0.0568, 0.0308], np.float32)
ERRORS = np.array([1, 0.3634, 0.1188, 0.03744, 0.01154, 0.003495, 0.00104, 0.000304, 0.0000877])
"""Step and mean squared error of the optimal uniform quantizer of a normal variable, by bits (Max 1960)."""

_ROUNDS = 4  # of signs and Hadamard transforms in a rotation
_PRIOR = 128  # vectors of even variance that are added to those a variance is computed from


def usual_bits(dim: int) -> int:
    """Return the bits per dimension by default: 4 up to 256 dimensions, where they take few bytes, and 2 above."""
    return 4 if dim <= 256 else 2


@dataclass(frozen=True, eq=False)
class Bands:
    """Bands of dimensions with one variance and one number of bits each, in order of decreasing variance.

    order: dimension order[j] becomes the j-th. size, bits: of each band. deviation: of the rotated residual's
    coordinates in each band, for a vector of factor 1.
    """

    order: Ints
    size: NDArray[np.int64]
    bits: NDArray[np.int64]
    deviation: Floats

    @classmethod
    def allocate(cls, variance: Array, bits: int, count: int) -> Self:
        """Divide the dimensions by the variances of residuals, which were computed from `count` vectors."""
        dim = len(variance)
        even = np.full(dim, max(float(variance.mean()), np.finfo(float).tiny))
        smooth = (count * variance + _PRIOR * even) / (count + _PRIOR)
        order = np.argsort(-smooth, kind="stable").astype(np.int32)
        groups = _groups(dim)
        means = np.array([smooth[order[group]].mean() for group in groups])
        sizes = np.array([group.stop - group.start for group in groups], np.int64)
        allocated = _water_filling(means, sizes, bits * dim)
        if (allocated == bits).all():
            order = np.arange(dim, dtype=np.int32)
        cuts = np.flatnonzero(np.diff(allocated)) + 1
        size = np.array([part.sum() for part in np.split(sizes, cuts)], np.int64)
        per_band = np.array([part[0] for part in np.split(allocated, cuts)], np.int64)
        return cls(order, size, per_band, np.ones(len(size), np.float32))

    @property
    def starts(self) -> NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self.size)[:-1]]).astype(np.int64)

    @property
    def dim(self) -> int:
        return len(self.order)

    @property
    def coded(self) -> int:
        """The number of dimensions that have a bit; they come first."""
        return int(self.size[self.bits > 0].sum())

    @property
    def code_bytes(self) -> tuple[int, int]:
        """(bytes of the signs, bytes of the low bits) of one code."""
        low_bits = int((self.size * np.maximum(self.bits - 1, 0)).sum())
        return _padded_bytes(self.coded), _padded_bytes(low_bits)

    @property
    def steps(self) -> Floats:
        """What one step of a code changes in each coded dimension, for a vector of factor 1."""
        steps: Floats = self.per_dim(self.deviation * STEPS[self.bits])[: self.coded]
        return steps

    def per_dim(self, values: Array) -> Array:
        """Return values per band as values per dimension."""
        return np.repeat(values, self.size)

    def rotate(self, V: Floats) -> Floats:
        """Return the rows of V with their dimensions sorted and each band rotated."""
        Z = np.array(V[:, self.order], np.float32, order="C")
        for start, size in zip(self.starts.tolist(), self.size.tolist(), strict=True):
            _kernels.rotate(Z, signs(self.dim), start, size, False)
        return Z

    def rotate_back(self, Z: Floats) -> Floats:
        """Return the vectors that `rotate` turns into Z."""
        Z = np.array(Z, np.float32, order="C")
        for start, size in zip(self.starts.tolist(), self.size.tolist(), strict=True):
            _kernels.rotate(Z, signs(self.dim), start, size, True)
        V = np.empty_like(Z)
        V[:, self.order] = Z
        return V

    # ------------------------------------------------------------------------------------------------- codes

    def quantize(self, Z: Floats) -> tuple[NDArray[np.uint8], Floats]:
        """Return (an integer of `bits` bits per dimension, factors) of rotated residuals, where Z is: NumPy or CuPy.

        Z[i, j] is approximately factor_i * deviation * step * (integer - middle); the factor preserves the norm.
        """
        xp, coded = array_module(Z), self.coded
        bits = self.per_dim(self.bits)[:coded]
        half = xp.asarray((1 << (bits - 1)).astype(np.float32))
        deviation = self.per_dim(self.deviation)[:coded]
        unit = xp.asarray(deviation * STEPS[bits])
        part = Z[:, :coded]
        scale = xp.sqrt(xp.square(part / xp.asarray(deviation)).mean(axis=1, keepdims=True))
        with np.errstate(divide="ignore", invalid="ignore"):
            levels = xp.floor(part / (unit * xp.where(scale > 1e-30, scale, xp.float32(np.inf))))
        levels = xp.clip(levels, -half, half - 1)
        fields = (levels + half).astype(np.uint8)
        levels += xp.float32(0.5)
        norms = xp.sqrt(xp.square(levels * unit).sum(axis=1))
        factor = xp.where(scale[:, 0] > 1e-30, xp.sqrt(xp.square(part).sum(axis=1)) / xp.maximum(norms, 1e-30), 0)
        return fields, factor.astype(np.float32)

    def dequantize(self, fields: NDArray[np.uint8], factor: Floats) -> Floats:
        """Return the rotated residuals (rows, dim) that the integers (fields) represent, at these factors."""
        xp, coded = array_module(fields), self.coded
        bits = self.per_dim(self.bits)[:coded]
        middle = xp.asarray(((1 << bits) - 1).astype(np.float32) / 2)
        Z: Floats = xp.zeros((len(fields), self.dim), np.float32)
        Z[:, :coded] = (fields - middle) * xp.asarray(self.steps) * factor[:, None]
        return Z

    def pack(self, fields: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Return (sign bits, low bits) of integers (fields): the highest bit of each, and the others, by plane."""
        xp, planes = array_module(fields), self.planes()
        bits = [(fields[:, :count] >> xp.asarray(shift)) & np.uint8(1) for count, shift in planes]
        sign_bytes, low_bytes = self.code_bytes
        low_bits = xp.concatenate(bits[1:], axis=1) if len(bits) > 1 else xp.empty((len(fields), 0), np.uint8)
        return _pack_bits(bits[0], sign_bytes), _pack_bits(low_bits, low_bytes)

    def unpack(self, sign_bits: NDArray[np.uint8], low_bits: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the integers of packed codes, of which sign_bits and low_bits are the two parts."""
        xp, planes = array_module(sign_bits), self.planes()
        fields: NDArray[np.uint8] = _unpack_bits(sign_bits)[:, : self.coded] << xp.asarray(planes[0][1])
        low, start = _unpack_bits(low_bits), 0
        for count, shift in planes[1:]:
            fields[:, :count] |= low[:, start : start + count] << xp.asarray(shift)
            start += count
        return fields

    def planes(self) -> list[tuple[int, NDArray[np.uint8]]]:
        """Return, for each plane of bits from the highest, (how many dimensions have it, how far it is shifted)."""
        bits = self.per_dim(self.bits)[: self.coded]
        highest = int(bits.max(initial=1))
        counts = [int((bits > plane).sum()) for plane in range(highest)]
        return [(n, (bits[:n] - 1 - plane).astype(np.uint8)) for plane, n in enumerate(counts)]


def _padded_bytes(bits: int) -> int:
    return -(-bits // (8 * CHUNK)) * CHUNK


def _groups(dim: int) -> list[slice]:
    """Return the dimensions that get the same number of bits, in multiples of 8."""
    size = 64 if dim >= 1024 else 32 if dim >= 512 else 16 if dim >= 128 else 8
    return [slice(start, min(start + size, dim)) for start in range(0, dim, size)]


def _water_filling(variance: Array, sizes: NDArray[np.int64], total: int) -> NDArray[np.int64]:
    """Return the bits per dimension of each group that minimize the total error, for `total` bits; they decrease."""
    bits = np.zeros(len(sizes), np.int64)
    left = total

    def gain(group: int) -> float:
        return float(variance[group] * (ERRORS[bits[group]] - ERRORS[bits[group] + 1]))

    heap = [(-gain(group), group) for group in range(len(sizes))]
    heapify(heap)
    while heap:
        _, group = heappop(heap)
        if sizes[group] > left:
            continue
        bits[group] += 1
        left -= int(sizes[group])
        if bits[group] < MAX_BITS:
            heappush(heap, (-gain(group), group))
    return np.minimum.accumulate(bits)


def _pack_bits(bits: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """(rows, count) of 0 and 1 -> (rows, size) bytes: bit f of byte b of a chunk is its bit f * 16 + b."""
    xp = array_module(bits)
    padded = xp.zeros((len(bits), size * 8), np.uint8)
    padded[:, : bits.shape[1]] = bits
    chunks = padded.reshape(len(bits), size // CHUNK, 8, CHUNK)
    if xp is np:
        packed = np.packbits(chunks, axis=2, bitorder="little")
    else:  # CuPy packs flat arrays only
        packed = xp.packbits(chunks.transpose(0, 1, 3, 2).ravel(), bitorder="little")
    contiguous: NDArray[np.uint8] = xp.ascontiguousarray(packed.reshape(len(bits), size))
    return contiguous


def _unpack_bits(code: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(rows, bytes) -> (rows, 8 * bytes) of 0 and 1."""
    xp, shape = array_module(code), (len(code), code.shape[1] // CHUNK)
    if xp is np:
        bits = np.unpackbits(code.reshape(*shape, 1, CHUNK), axis=2, bitorder="little")
    else:
        bits = xp.unpackbits(code.ravel(), bitorder="little").reshape(*shape, CHUNK, 8).transpose(0, 1, 3, 2)
    return bits.reshape(len(code), code.shape[1] * 8)


@cache
def signs(dim: int) -> Floats:
    """Return the random signs (rounds, dim) of the rotations. They never change: they are part of the file format."""
    with np.errstate(over="ignore"):  # SplitMix64 from 0 on
        z = np.arange(1, _ROUNDS * dim + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.where(z >> np.uint64(63), np.float32(1), np.float32(-1)).reshape(_ROUNDS, dim)

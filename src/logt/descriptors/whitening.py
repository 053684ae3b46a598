"""Whitening: raw descriptors -> vectors whose dimensions have similar variances (Jégou and Chum, 2012)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from logt._internal.types import Floats
from logt.errors import CorruptIndexError, InvalidInputError
from logt.storage.files import UNUSABLE, array_file, parse_arrays

RIDGE = 10.0
"""The ridge is RIDGE * trace(covariance) / count: regularization, as few descriptors estimate a covariance poorly."""

IDENTITY_COUNT = 1 << 30
"""The count of the identity: it is never learned again from more descriptors."""


@dataclass(frozen=True)
class Whitening:
    """PCA whitening with a ridge: principal direction i of x - mean is scaled by √(ridge / (λᵢ + ridge)).

    With c = x - mean, the result is c + Vᵀ(gain - 1)Vc, normalized: whitening rotated back to the axes of the
    descriptors, which does not change cosines. The ridge decreases with the count: many descriptors are whitened
    fully, a few almost not at all.

    mean: of the descriptors, shrunk a little towards 0. V: principal directions, as rows. gain: of each direction.
    count: the number of descriptors that it was learned from.
    """

    mean: Floats
    V: Floats
    gain: Floats
    count: int

    @classmethod
    def learn(cls, X: Floats) -> Whitening:
        """Learn a whitening from raw descriptors X, (n, d); n may be less than d, and as small as 1."""
        X = np.asarray(X, np.float64)
        if X.ndim != 2 or not X.size or not np.isfinite(X).all():
            raise InvalidInputError(f"whitening needs a non-empty matrix of finite numbers, got shape {X.shape}")
        n, d = X.shape
        mean = X.mean(axis=0)
        centered = X - mean
        if n > d:
            variance, columns = np.linalg.eigh(centered.T @ centered / n)
            V = columns.T
        else:
            variance, columns = np.linalg.eigh(centered @ centered.T / n)
            V = (centered.T @ columns).T / np.sqrt(np.maximum(n * variance, 1e-30))[:, None]
        kept = variance > 1e-9 * max(float(variance.max()), 1e-12)
        ridge = RIDGE * float(variance[kept].sum()) / n
        gain = np.sqrt(ridge / (variance[kept] + ridge))
        shrunk = mean * n / (n + 1)  # with the mean itself, a single descriptor would become 0
        return cls(shrunk.astype(np.float32), V[kept].astype(np.float32), gain.astype(np.float32), n)

    @classmethod
    def identity(cls, dim: int) -> Whitening:
        """Return the whitening that changes nothing but the norm. dim: the dimension of the descriptors."""
        empty = np.empty(0, np.float32)
        return cls(np.zeros(dim, np.float32), empty.reshape(0, dim), empty, IDENTITY_COUNT)

    @property
    def is_identity(self) -> bool:
        """Whether it changes nothing but the norm."""
        return not len(self.gain) and not self.mean.any()

    @property
    def dim(self) -> int:
        """The dimension of the descriptors, and of the whitened vectors."""
        return len(self.mean)

    def __call__(self, X: Floats) -> Floats:
        """Return the whitened rows, (n, dim), or one whitened vector, (dim,), normalized."""
        X = np.asarray(X, np.float32)
        if X.shape[-1] != self.dim:
            raise InvalidInputError(f"descriptors have dimension {X.shape[-1]}, the whitening {self.dim}")
        C = X - self.mean
        Z = C + (C @ self.V.T * (self.gain - 1)) @ self.V
        norms = np.linalg.norm(Z, axis=-1, keepdims=True)
        Z = np.where(norms > 1e-6, Z, X)  # a descriptor equal to the mean is not changed
        normalized: Floats = Z / np.maximum(np.linalg.norm(Z, axis=-1, keepdims=True), 1e-30)
        return normalized.astype(np.float32)

    @cached_property
    def serialized(self) -> bytes:
        """The bytes of a safetensors file."""
        count = np.array([self.count], np.int64)
        return array_file({"mean": self.mean, "V": self.V, "gain": self.gain, "count": count})

    @cached_property
    def checksum(self) -> str:
        """Sixteen hexadecimal digits that identify the whitening."""
        return hashlib.blake2b(self.serialized, digest_size=8).hexdigest()

    @classmethod
    def from_bytes(cls, data: bytes) -> Whitening:
        """Load a whitening from `data`, the bytes of a safetensors file."""
        try:
            arrays, _ = parse_arrays(np.frombuffer(data, np.uint8))
            mean, V, gain, count = arrays["mean"], arrays["V"], arrays["gain"], int(arrays["count"][0])
        except UNUSABLE as error:
            raise CorruptIndexError(f"the whitening is damaged: {error}") from error
        valid = all(array.dtype == np.float32 and np.isfinite(array).all() for array in (mean, V, gain))
        if not valid or mean.ndim != 1 or V.shape != (len(gain), len(mean)) or gain.ndim != 1 or count < 1:
            raise CorruptIndexError("the whitening is damaged: its arrays have inconsistent shapes or types")
        return cls(mean, V, gain, count)

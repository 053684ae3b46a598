"""Whitening, raw descriptors -> vectors whose dimensions count more alike (Jégou and Chum, 2012)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from logt._types import Floats
from logt.errors import CorruptIndexError, InvalidInputError

RIDGE = 10.0
"""Times the trace over the count: variance added to all directions, for what so few descriptors cannot tell."""


@dataclass(frozen=True)
class Whitening:
    """x -> c + Vᵀ(gain - 1)Vc with c = x - mean, at length 1: each principal direction by √(ridge / (λ + ridge)).

    That is PCA whitening of the covariance plus a ridge, turned back into the axes of the descriptors, which changes
    no cosine. The ridge falls with the count: many descriptors are whitened in full, a handful hardly at all.
    """

    mean: Floats
    V: Floats
    gain: Floats
    count: int

    @classmethod
    def learn(cls, X: Floats) -> Whitening:
        """From raw descriptors, (n, d): n may be less than d, and as little as 1."""
        X = np.asarray(X, np.float64)
        if X.ndim != 2 or not X.size or not np.isfinite(X).all():
            raise InvalidInputError(f"whitening is learned from a matrix of finite numbers, got shape {X.shape}")
        n, d = X.shape
        mean = X.mean(axis=0)
        centred = X - mean
        if n > d:
            variance, columns = np.linalg.eigh(centred.T @ centred / n)
            V = columns.T
        else:
            variance, columns = np.linalg.eigh(centred @ centred.T / n)
            V = (centred.T @ columns).T / np.sqrt(np.maximum(n * variance, 1e-30))[:, None]
        kept = variance > 1e-9 * max(float(variance.max()), 1e-12)
        ridge = RIDGE * float(variance[kept].sum()) / n
        gain = np.sqrt(ridge / (variance[kept] + ridge))
        shrunk = mean * n / (n + 1)  # the mean of one descriptor is that descriptor, and would leave nothing of it
        return cls(shrunk.astype(np.float32), V[kept].astype(np.float32), gain.astype(np.float32), n)

    @property
    def dim(self) -> int:
        """Of the vectors that come out, and of the descriptors that go in."""
        return len(self.mean)

    def __call__(self, X: Floats) -> Floats:
        """Rows at length 1, (n, dim), or one vector, (dim,)."""
        X = np.asarray(X, np.float32)
        if X.shape[-1] != self.dim:
            raise InvalidInputError(f"descriptors have dimension {X.shape[-1]}, the whitening {self.dim}")
        C = X - self.mean
        Z = C + (C @ self.V.T * (self.gain - 1)) @ self.V
        norms = np.linalg.norm(Z, axis=-1, keepdims=True)
        Z = np.where(norms > 1e-6, Z, X)  # of a descriptor that is the mean itself
        unit: Floats = Z / np.maximum(np.linalg.norm(Z, axis=-1, keepdims=True), 1e-30)
        return unit.astype(np.float32)

    @cached_property
    def data(self) -> bytes:
        """As a safetensors file."""
        from safetensors.numpy import save

        count = np.array([self.count], np.int64)
        return save({"mean": self.mean, "V": self.V, "gain": self.gain, "count": count})

    @cached_property
    def name(self) -> str:
        """Sixteen digits that stand for it."""
        return hashlib.blake2b(self.data, digest_size=8).hexdigest()

    @classmethod
    def read(cls, data: bytes) -> Whitening:
        """From the bytes of a safetensors file."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            arrays = load(data)
            mean, V, gain, count = arrays["mean"], arrays["V"], arrays["gain"], int(arrays["count"][0])
        except (SafetensorError, KeyError, IndexError, ValueError, TypeError) as error:
            raise CorruptIndexError(f"the whitening is damaged: {error}") from error
        floats = all(array.dtype == np.float32 and np.isfinite(array).all() for array in (mean, V, gain))
        if not floats or mean.ndim != 1 or V.shape != (len(gain), len(mean)) or gain.ndim != 1 or count < 1:
            raise CorruptIndexError("the whitening is damaged: its arrays do not fit")
        return cls(mean, V, gain, count)

"""Storage of the memory vectors, Y -> Ŷ: each form computes the measurements C = Q·Ŷᵀ without unpacking."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logt._internal.extras import needs_extra
from logt._internal.int8 import byte_products, to_int8
from logt._internal.types import Array, Floats
from logt._internal.validation import check_array, check_lengths, check_positive
from logt.errors import InvalidInputError


class Codebook(ABC):
    """The stored memory vectors Ŷ. Segments may share one; a query is measured once per codebook."""

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays to store, by name."""
        return {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Codebook:
        """Build from stored arrays; raise ValueError if they do not fit together."""

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(number of memory vectors, dimension)."""

    @property
    def units(self) -> int:
        return self.shape[0]

    @property
    def operations(self) -> int:
        """Multiplications to measure one query."""
        return self.shape[0] * self.shape[1]

    @abstractmethod
    def decode(self, rows: Array | slice = slice(None)) -> Floats:
        """Return the memory vectors of some rows as float32."""

    @abstractmethod
    def measure(self, Q: Floats) -> Floats:
        """Return C = Q·Ŷᵀ."""


@dataclass(frozen=True)
class Float32:
    """Ŷ = Y, measured by BLAS."""

    def __call__(self, Y: Floats, rng: np.random.Generator) -> Codebook:
        return Float32Codebook(Y)


@dataclass(frozen=True)
class Float32Codebook(Codebook):
    """Memory vectors Y (M, d) as they are."""

    Y: Floats

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Codebook:
        return cls(check_array(arrays["Y"], np.float32, 2))

    @property
    def shape(self) -> tuple[int, int]:
        return self.Y.shape[0], self.Y.shape[1]

    def decode(self, rows: Array | slice = slice(None)) -> Floats:
        return self.Y[rows]

    def measure(self, Q: Floats) -> Floats:
        return Q @ self.Y.T


@dataclass(frozen=True)
class Int8:
    """One byte per component and one scale per memory vector; queries are rounded alike, products are exact."""

    def __call__(self, Y: Floats, rng: np.random.Generator) -> Codebook:
        return Int8Codebook(*to_int8(Y))


@dataclass(frozen=True)
class Int8Codebook(Codebook):
    """Memory vectors codes · scale: codes (M, d), scale (M)."""

    codes: NDArray[np.int8]
    scale: Floats

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Codebook:
        codes, scale = check_array(arrays["codes"], np.int8, 2), check_array(arrays["scale"], np.float32, 1)
        check_lengths(codes, scale)
        return cls(codes, scale)

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], self.codes.shape[1]

    def decode(self, rows: Array | slice = slice(None)) -> Floats:
        return self.codes[rows] * self.scale[rows, None]

    def measure(self, Q: Floats) -> Floats:
        q, q_scale = to_int8(Q)
        return byte_products(q, self.codes, self.scale) * q_scale[:, None]


@dataclass(frozen=True)
class ProductQuantizer:
    """c bytes per memory vector (Jégou et al. 2011): c sub-vectors, each one of up to 256 centroids."""

    c: int = 256

    def __post_init__(self) -> None:
        check_positive(self, "c")

    def __call__(self, Y: Floats, rng: np.random.Generator) -> Codebook:
        M, d = Y.shape
        if self.c > d:
            raise InvalidInputError(
                f"product quantization to c = {self.c} bytes needs at least as many dimensions, got {d}"
            )
        padded = np.zeros((M, -(-d // self.c) * self.c), np.float32)
        padded[:, :d] = Y
        centroids = self._train(padded, rng)
        parts = padded.reshape(M, self.c, -1)
        codes = np.empty((M, self.c), np.uint8)
        for s in range(self.c):
            similarity = parts[:, s] @ centroids[s].T - 0.5 * np.square(centroids[s]).sum(axis=1)
            codes[:, s] = similarity.argmax(axis=1)
        return PQCodebook(codes, centroids, np.array([d]))

    def _train(self, Y: Floats, rng: np.random.Generator) -> Floats:
        """Return the centroids (c, up to 256, d / c), trained by faiss on one thread: always the same."""
        with needs_extra("pq", "product quantization needs faiss"):
            import faiss
        pq = faiss.ProductQuantizer(Y.shape[1], self.c, min(8, int(np.log2(len(Y)))))
        pq.cp.seed = int(rng.integers(2**31 - 1))
        pq.cp.min_points_per_centroid = 1
        threads = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)
        try:
            pq.train(Y)
        finally:
            faiss.omp_set_num_threads(threads)
        centroids: Floats = faiss.vector_to_array(pq.centroids).reshape(self.c, pq.ksub, pq.dsub).copy()
        return centroids


@dataclass(frozen=True)
class PQCodebook(Codebook):
    """Memory vectors of centroids: codes (M, c), centroids (c, at most 256, d / c), dim: the one number d."""

    codes: NDArray[np.uint8]
    centroids: Floats
    dim: NDArray[np.int64]

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Codebook:
        codes, centroids = check_array(arrays["codes"], np.uint8, 2), check_array(arrays["centroids"], np.float32, 3)
        dim = check_array(arrays["dim"], np.int64, 1)
        if codes.shape[1] != len(centroids) or codes.max(initial=0) >= centroids.shape[1] or len(dim) != 1:
            raise ValueError("a PQ code refers to a centroid that does not exist")
        if not 0 < dim[0] <= centroids.shape[0] * centroids.shape[2]:
            raise ValueError("the centroids do not fit the dimension")
        return cls(codes, centroids, dim)

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], int(self.dim[0])

    @property
    def operations(self) -> int:
        """The look-up tables, and c look-ups per memory vector."""
        return self.centroids.size + self.codes.size

    def decode(self, rows: Array | slice = slice(None)) -> Floats:
        codes = self.codes[rows]
        Y: Floats = self.centroids[np.arange(codes.shape[1]), codes].reshape(len(codes), -1)[:, : self.shape[1]]
        return np.ascontiguousarray(Y)

    def measure(self, Q: Floats) -> Floats:
        """By asymmetric distance tables: c_j = Σ_s q_s · (centroid of unit j in sub-space s)."""
        c, _, dsub = self.centroids.shape
        padded = np.zeros((len(Q), c * dsub), np.float32)
        padded[:, : self.shape[1]] = Q
        tables = self.centroids @ padded.reshape(len(Q), c, dsub).transpose(1, 2, 0)
        C = np.zeros((len(self.codes), len(Q)), np.float32)
        for s in range(c):
            C += tables[s, self.codes[:, s]]
        return np.ascontiguousarray(C.T)


CODEBOOKS: dict[str, Any] = {cls.__name__: cls for cls in (Float32Codebook, Int8Codebook, PQCodebook)}
"""By the name that is stored."""

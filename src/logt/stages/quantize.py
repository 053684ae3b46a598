"""Storing the memory vectors, Y -> Ŷ: each form measures queries, C = Q·Ŷᵀ, without unpacking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from logt import _kernels
from logt._types import Array, Floats
from logt.errors import InvalidInputError, MissingExtraError, at_least_one


class Memory(Protocol):
    """Stored memory vectors Ŷ; `operations` are those that measure one query."""

    @property
    def arrays(self) -> dict[str, Array]: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def operations(self) -> int: ...
    def decoded(self, rows: Array | slice = ...) -> Floats: ...
    def measure(self, Q: Floats) -> Floats: ...


@dataclass(frozen=True)
class Float32:
    """Ŷ = Y, measured by BLAS."""

    def __call__(self, Y: Floats, rng: np.random.Generator) -> Float32Memory:
        return Float32Memory(Y)


@dataclass(frozen=True)
class Float32Memory:
    Y: Floats

    @property
    def arrays(self) -> dict[str, Array]:
        return {"Y": self.Y}

    @property
    def nbytes(self) -> int:
        return self.Y.nbytes

    @property
    def shape(self) -> tuple[int, int]:
        return self.Y.shape[0], self.Y.shape[1]

    @property
    def operations(self) -> int:
        return self.Y.size

    def decoded(self, rows: Array | slice = slice(None)) -> Floats:
        return self.Y[rows]

    def measure(self, Q: Floats) -> Floats:
        return Q @ self.Y.T


@dataclass(frozen=True)
class Int8:
    """One byte a component and one scale a memory vector; queries are rounded alike, products are exact."""

    def __call__(self, Y: Floats, rng: np.random.Generator) -> Int8Memory:
        codes, scale = _to_int8(Y)
        return Int8Memory(codes, scale)


@dataclass(frozen=True)
class Int8Memory:
    codes: NDArray[np.int8]
    scale: Floats

    @property
    def arrays(self) -> dict[str, Array]:
        return {"codes": self.codes, "scale": self.scale}

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scale.nbytes

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], self.codes.shape[1]

    @property
    def operations(self) -> int:
        return self.codes.size

    def decoded(self, rows: Array | slice = slice(None)) -> Floats:
        return self.codes[rows] * self.scale[rows, None]

    def measure(self, Q: Floats) -> Floats:
        import numkong

        q, q_scale = _to_int8(Q)
        products = np.asarray(numkong.dots_packed(self.codes, numkong.dots_pack(q)))  # codes as they lie: no copy
        C = np.empty((len(Q), len(self.codes)), np.float32)
        np.multiply(products.T, self.scale, out=C, casting="unsafe")
        C *= q_scale[:, None]
        return C


@dataclass(frozen=True)
class ProductQuantizer:
    """c bytes a memory vector (Jégou et al. 2011): c sub-vectors, each one of up to 256 centroids."""

    c: int = 256

    def __post_init__(self) -> None:
        at_least_one(self, "c")

    def __call__(self, Y: Floats, rng: np.random.Generator) -> PQMemory:
        try:
            import faiss
        except ImportError as error:
            raise MissingExtraError("product quantization needs faiss: pip install 'logt[pq]'") from error
        M, d = Y.shape
        if self.c > d:
            raise InvalidInputError(
                f"product quantization to c = {self.c} bytes needs at least as many dimensions, got {d}"
            )
        padded = np.zeros((M, -(-d // self.c) * self.c), np.float32)
        padded[:, :d] = Y
        pq = faiss.ProductQuantizer(padded.shape[1], self.c, min(8, int(np.log2(M))))
        pq.cp.seed = int(rng.integers(2**31 - 1))
        pq.cp.min_points_per_centroid = 1
        threads = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)  # the same centroids whatever the number of threads
        try:
            pq.train(padded)
        finally:
            faiss.omp_set_num_threads(threads)
        centroids = faiss.vector_to_array(pq.centroids).reshape(self.c, pq.ksub, pq.dsub).copy()
        parts = padded.reshape(M, self.c, pq.dsub)
        codes = np.empty((M, self.c), np.uint8)
        for s in range(self.c):
            similar = parts[:, s] @ centroids[s].T - 0.5 * np.square(centroids[s]).sum(axis=1)
            codes[:, s] = similar.argmax(axis=1)
        return PQMemory(codes, centroids, d)


@dataclass(frozen=True)
class PQMemory:
    codes: NDArray[np.uint8]
    centroids: Floats
    dim: int

    @property
    def arrays(self) -> dict[str, Array]:
        return {"codes": self.codes, "centroids": self.centroids, "dim": np.array([self.dim])}

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.centroids.nbytes

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], self.dim

    @property
    def operations(self) -> int:
        """Of one query: the tables, and c look-ups a memory vector."""
        return self.centroids.size + self.codes.size

    def decoded(self, rows: Array | slice = slice(None)) -> Floats:
        codes = self.codes[rows]
        Y: Floats = self.centroids[np.arange(codes.shape[1]), codes].reshape(len(codes), -1)[:, : self.dim]
        return np.ascontiguousarray(Y)

    def measure(self, Q: Floats) -> Floats:
        """By asymmetric tables: c_j is the sum over s of (q_s · centroid that unit j has in part s)."""
        c, _, dsub = self.centroids.shape
        padded = np.zeros((len(Q), c * dsub), np.float32)
        padded[:, : self.dim] = Q
        tables = self.centroids @ padded.reshape(len(Q), c, dsub).transpose(1, 2, 0)
        C = np.zeros((len(self.codes), len(Q)), np.float32)
        for s in range(c):
            C += tables[s, self.codes[:, s]]
        return np.ascontiguousarray(C.T)


def _to_int8(V: Floats) -> tuple[NDArray[np.int8], Floats]:
    """(codes, scale): rows of V as codes·scale, the largest |component| of a row being 127."""
    codes, scale = np.empty(V.shape, np.int8), np.empty(len(V), np.float32)
    _kernels.to_int8(np.ascontiguousarray(V), codes, scale)
    return codes, scale

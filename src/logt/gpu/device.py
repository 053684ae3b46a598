"""Devices, a name -> where arrays are, and what computes on them: CuPy and CUDA kernels, or NumPy."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np

from logt._internal.extras import install_hint
from logt._internal.memory import memory_bytes
from logt._internal.types import Array
from logt.errors import DeviceError, DeviceMemoryError, InvalidInputError, MissingExtraError
from logt.gpu.copies import LARGE, Uploads
from logt.gpu.host import HostKernels

_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged
_RESERVE = 1 << 28  # bytes that are left to others
_LEAST = 80  # compute capability 8.0: the matrix products of the scan


class Device:
    """Where arrays are: "cpu", "cuda" or "cuda:1".

    xp: numpy or cupy, which have the same interface. kernels: what they do not have.
    """

    def __init__(self, name: Any):
        self.name = check_device_name(name)
        self.number = int(self.name.partition(":")[2] or 0)
        self.xp: Any
        self.kernels: Any
        if self.name == "cpu":
            self.xp, self.kernels = np, HostKernels()
            return
        self.xp = _cupy()
        _check_card(self.xp, self.number)
        from logt.gpu.cuda import CudaKernels

        self.kernels = CudaKernels()
        self._upload = Uploads(self.xp)

    def __repr__(self) -> str:
        return f"Device({self.name!r})"

    @property
    def cuda(self) -> bool:
        """Whether this is a GPU."""
        return self.xp is not np

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let arrays be created here; raise DeviceMemoryError where they do not fit."""
        if not self.cuda:
            yield
            return
        with self.xp.cuda.Device(self.number):
            try:
                yield
            except self.xp.cuda.memory.OutOfMemoryError as error:
                self.release()
                raise DeviceMemoryError(f"{self.name} is out of memory: {error}; nothing was changed") from error

    def put(self, array: Any) -> Any:
        """Return an array on the device. Tensors that are there are not copied."""
        if isinstance(array, np.ndarray):
            large = self.cuda and array.nbytes >= LARGE and array.flags.c_contiguous
            return self._upload(array) if large else self.xp.asarray(array)
        if hasattr(array, "detach"):
            array = array.detach()
        if "bfloat16" in str(array.dtype):  # CuPy has no such type
            array = array.float() if hasattr(array, "float") else array.astype("float32")
        return self.xp.from_dlpack(array)

    def get(self, array: Any) -> Array:
        """Return an array of the device as a NumPy array."""
        host: Array = self.xp.asnumpy(array) if self.cuda else array
        return host

    def holds(self, array: Any) -> bool:
        """Return whether a tensor is on this device."""
        if not self.cuda or isinstance(array, np.ndarray) or not hasattr(array, "__dlpack_device__"):
            return False
        kind, number = array.__dlpack_device__()
        return int(kind) in _CUDA and int(number) == self.number

    # ------------------------------------------------------------------------------------------------- memory

    @property
    def free_bytes(self) -> int:
        """The bytes that new arrays may have."""
        if not self.cuda:
            return (memory_bytes() or 1 << 40) // 2
        with self.xp.cuda.Device(self.number):
            free, _ = self.xp.cuda.runtime.memGetInfo()
            pool = self.xp.get_default_memory_pool()
            return max(0, int(free) + int(pool.free_bytes()) - _RESERVE)

    def require(self, needed: int, what: str, hint: str) -> None:
        """Raise DeviceMemoryError unless so many bytes are free."""
        free = self.free_bytes
        if needed > free:
            raise DeviceMemoryError(
                f"{what} needs {needed / 1e9:.2f} GB on {self.name}, {free / 1e9:.2f} GB are free: {hint}"
            )

    def synchronize(self) -> None:
        """Wait until everything is computed and copied."""
        if self.cuda:
            self.xp.cuda.Device(self.number).synchronize()

    def release(self) -> None:
        """Give memory that no array uses back to the card."""
        if self.cuda:
            self.xp.get_default_memory_pool().free_all_blocks()

    @cached_property
    def workspace(self) -> int:
        """The bytes that intermediate results of one step may have."""
        return min(2 << 30, max(1 << 26, self.free_bytes // 8)) if self.cuda else 1 << 26


def check_device_name(name: Any) -> str:
    """Return the name of a device: "cpu", or "cuda:" and its number."""
    match = re.fullmatch(r"(cpu|cuda)(?::(\d+))?", name) if isinstance(name, str) else None
    if match is None or (match[1] == "cpu" and match[2]):
        raise InvalidInputError(f"device must be 'cpu', 'cuda' or 'cuda:N', got {name!r}")
    return "cpu" if match[1] == "cpu" else f"cuda:{int(match[2] or 0)}"


def _cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise MissingExtraError(
            f"a GPU is used through CuPy: {install_hint('gpu')}; or CuPy's package for your version of CUDA"
        ) from error
    return cupy


def _check_card(cupy: Any, number: int) -> None:
    """Raise DeviceError unless there is such a card, with a driver and what the kernels need."""
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        raise DeviceError(f"no GPU can be used: {error}; install NVIDIA's driver, or use device='cpu'") from error
    if number >= count:
        raise DeviceError(f"there is no device cuda:{number}: this machine has {count}")
    capability = int(cupy.cuda.Device(number).compute_capability)
    if capability < _LEAST:
        raise DeviceError(
            f"cuda:{number} has compute capability {capability / 10}, and 8.0 (Ampere) is needed; use device='cpu'"
        )

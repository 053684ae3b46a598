"""Units and weights of vectors on a device, Z -> sparse codes: as `lists.pursuit`, for many vectors at once."""

from typing import Any

import numpy as np

from logt._internal.threads import split_range
from logt.gpu.device import Device

_CANDIDATES = 32  # memory vectors that entries are chosen from, at least
_TINY = np.float32(1e-30)


def nearest(device: Device, V: Any, Y: Any, *, spherical: bool) -> tuple[Any, Any]:
    """Return (the nearest row of Y of each row of V, v·y − ‖y‖²/2 of the two): by direction if `spherical`."""
    xp = device.xp
    atoms, norms = _atoms(xp, Y)
    if spherical:
        norms = xp.ones_like(norms)
    label, value = xp.empty(len(V), np.int64), xp.empty(len(V), np.float32)
    for part in split_range(len(V), max(1, device.workspace // (4 * len(Y)))):
        products, length = _products(xp, V[part], atoms)
        best = label[part] = device.kernels.nearest(products, length, norms)
        found = products[xp.arange(len(best)), best].astype(np.float32) * length
        value[part] = found * norms[best] - xp.square(norms[best]) / 2
    return label, value


class DevicePursuit:
    """Encodes rotated vectors: the nearest memory vector, then orthogonal matching pursuit among the best products.

    Y: the memory vectors, on the device. entries: of each code.
    """

    def __init__(self, device: Device, Y: Any, entries: int):
        self._device, self._entries = device, entries
        self._atoms, self._norms = _atoms(device.xp, Y)
        self._gram = self._atoms @ self._atoms.T
        self._capacity = min(len(Y), max(_CANDIDATES, 4 * entries))

    def __call__(self, Z: Any) -> tuple[Any, Any]:
        """Return (units, weights), (rows, entries) each; the first is the nearest in Euclidean distance."""
        xp, kernels = self._device.xp, self._device.kernels
        products, length = _products(xp, Z, self._atoms)
        first = kernels.nearest(products, length, self._norms)
        rows, M = products.shape
        starts = xp.arange(rows, dtype=np.int64) * M
        found = kernels.best(products.ravel(), starts, starts + M, self._capacity, longest=M)
        unit, weight = kernels.pursue(products, length, found, first, self._gram, self._entries)
        norms = self._norms[unit]
        return unit, weight / xp.where(norms > 0, norms, np.float32(1))


def _atoms(xp: Any, Y: Any) -> tuple[Any, Any]:
    """Return (rows of Y of norm 1 as float16, their norms)."""
    norms = xp.sqrt(xp.square(Y).sum(axis=1))
    return (Y / xp.maximum(norms, _TINY)[:, None]).astype(np.float16), norms


def _products(xp: Any, V: Any, atoms: Any) -> tuple[Any, Any]:
    """Return (products of the rows of V, scaled to norm 1, with atoms, as float16; the norms of the rows)."""
    length = xp.sqrt(xp.square(V).sum(axis=1))
    unit = (V / xp.maximum(length, _TINY)[:, None]).astype(np.float16)
    if xp is np:  # NumPy has no fast product of float16
        return (unit.astype(np.float32) @ atoms.astype(np.float32).T).astype(np.float16), length
    return unit @ atoms.T, length

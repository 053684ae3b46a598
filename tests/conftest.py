from __future__ import annotations

import numpy as np
import pytest

from logt import _kernels


@pytest.fixture(params=_kernels.instruction_sets())
def isa(request):
    """Each instruction set that this processor has, the oldest included."""
    before = _kernels.instruction_set()
    _kernels.use_instruction_set(request.param)
    yield request.param
    _kernels.use_instruction_set(before)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def vectors():
    """make(N, d, seed=0): unit vectors with a falling spectrum."""

    def make(N, d, seed=0):
        V = np.random.default_rng(seed).standard_normal((N, d), np.float32) * (np.arange(d) + 4.0) ** -0.3
        V = V.astype(np.float32)
        return V / np.linalg.norm(V, axis=1, keepdims=True)

    return make

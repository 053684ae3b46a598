"""What tests of indexes on a device share: the device is "cpu", or what LOGT_DEVICE names."""

import os

import numpy as np
import pytest

DEVICE = os.environ.get("LOGT_DEVICE", "cpu")
on_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU: make gpu-test")
DIM = 40  # neither a multiple of 32 nor of the size of a band


def clusters(count, dim, seed, norms=False):
    """Return vectors around 60 centers."""
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(0).standard_normal((60, dim)) * np.arange(1, dim + 1) ** -0.5
    X = centers[rng.integers(0, 60, count)] + 0.4 * rng.standard_normal((count, dim)) * np.arange(1, dim + 1) ** -0.3
    return (X * (rng.uniform(0.5, 2, (count, 1)) if norms else 1)).astype(np.float32)

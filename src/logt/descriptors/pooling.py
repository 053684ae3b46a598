"""Pooling: feature maps of several scales -> one descriptor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from logt._types import Floats


def gem(features: Floats, p: float = 3.0) -> Floats:
    """Return the generalized mean (mean of x**p)**(1/p) of each channel of a (C, H, W) map (Radenović et al., 2018).

    p = 1 is average pooling, p = ∞ is max pooling.
    """
    powers = np.maximum(features, 1e-6).astype(np.float32) ** np.float32(p)
    pooled: Floats = powers.mean(axis=(1, 2), dtype=np.float32) ** np.float32(1 / p)
    return pooled


def normalize(x: Floats) -> Floats:
    """Return x divided by its norm; zeros stay zeros."""
    norm = float(np.linalg.norm(x))
    normalized: Floats = (x / norm if norm > 0 else x).astype(np.float32)
    return normalized


def combine_scales(descriptors: Sequence[Floats]) -> Floats:
    """Return the normalized sum of the normalized descriptors of several scales."""
    return normalize(np.sum([normalize(descriptor) for descriptor in descriptors], axis=0))

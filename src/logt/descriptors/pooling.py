"""Pooling, (C, H, W) feature maps -> one descriptor: generalised means, of several scales together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from logt._types import Floats


def gem(features: Floats, p: float = 3.0) -> Floats:
    """(mean of xᵖ over the map)^(1/p) per channel (Radenović et al., 2018): p = 1 is the mean, p = ∞ the maximum."""
    powers = np.maximum(features, 1e-6).astype(np.float32) ** np.float32(p)
    pooled: Floats = powers.mean(axis=(1, 2), dtype=np.float32) ** np.float32(1 / p)
    return pooled


def unit(x: Floats) -> Floats:
    """x at length 1; zeros stay zeros."""
    norm = float(np.linalg.norm(x))
    scaled: Floats = (x / norm if norm > 0 else x).astype(np.float32)
    return scaled


def combined(parts: Sequence[Floats]) -> Floats:
    """The sum of the descriptors of several scales, each at length 1, at length 1."""
    return unit(np.sum([unit(part) for part in parts], axis=0))

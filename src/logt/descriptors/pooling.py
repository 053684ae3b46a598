"""Pooling: the output of a network -> one vector, and the descriptors of several scales -> one vector."""

from collections.abc import Sequence

import numpy as np

from logt._internal.types import Floats

POOLINGS = ("cls", "mean", "gem", "cls+mean")
"""How the tokens of a transformer become one vector."""


def gem(features: Floats) -> Floats:
    """Return the generalized mean of each channel of a (C, H, W) map, with p = 3 (Radenović et al., 2018)."""
    cubes = np.maximum(features, 1e-6).astype(np.float32) ** 3
    pooled: Floats = np.cbrt(cubes.mean(axis=(1, 2), dtype=np.float32))
    return pooled


def pool_tokens(tokens: Floats, pooling: str = "cls", prefix: int = 1) -> Floats:
    """Return one vector from the tokens of a transformer, (T, D).

    pooling: "cls" is the class token, the first; "mean" is the mean of the patches, "gem" their generalized mean;
    "cls+mean" is both, each of norm 1, one after the other.
    prefix: the number of tokens before those of the patches: the class token, and registers.
    """
    first: Floats = tokens[0]
    if pooling == "cls":
        return first
    patches = tokens[prefix:]
    if pooling == "gem":
        return gem(patches.T[:, :, None])
    mean: Floats = patches.mean(axis=0, dtype=np.float32)
    return mean if pooling == "mean" else np.concatenate([normalize(first), normalize(mean)])


def normalize(x: Floats) -> Floats:
    """Return x divided by its norm; zeros stay zeros."""
    norm = float(np.linalg.norm(x))
    normalized: Floats = (x / norm if norm > 0 else x).astype(np.float32)
    return normalized


def combine_scales(descriptors: Sequence[Floats]) -> Floats:
    """Return the normalized sum of the normalized descriptors of several scales."""
    return normalize(np.sum([normalize(descriptor) for descriptor in descriptors], axis=0))

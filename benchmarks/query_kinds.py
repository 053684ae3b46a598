"""Kinds of queries for `make recall`: vectors like those of a collection, and vectors unlike them."""

from collections.abc import Callable, Mapping

import numpy as np

from logt._internal.types import Floats

Kind = Callable[[Floats, Floats, np.random.Generator], Floats]
"""Called with the vectors of a collection, vectors like them that are not in it, and a generator."""


def mixtures(X: Floats, held: Floats, rng: np.random.Generator) -> Floats:
    """Other mixtures of the collection's directions: normal vectors of the same mean and covariance."""
    mean = X.mean(axis=0)
    weights = rng.standard_normal((len(held), len(X)), np.float32) / np.float32(len(X) ** 0.5)
    return mean + weights @ (X - mean)


def random_directions(X: Floats, held: Floats, rng: np.random.Generator) -> Floats:
    """Directions at random, with the norms of the collection's vectors."""
    Q = rng.standard_normal(held.shape, np.float32)
    return Q * (_norms(held) / _norms(Q))


def texts(X: Floats, held: Floats, rng: np.random.Generator) -> Floats:
    """As texts to images: another mean, and more noise."""
    scale = np.float32(np.mean(_norms(held)) / held.shape[1] ** 0.5)
    mean = rng.standard_normal(held.shape[1], np.float32) * scale * np.float32(0.7)
    return held + mean + rng.standard_normal(held.shape, np.float32) * scale * np.float32(0.7)


def far_outside(X: Floats, held: Floats, rng: np.random.Generator) -> Floats:
    """Vectors that are three times as far from the mean, and moved by the deviation of the collection."""
    mean, deviation = X.mean(axis=0), np.float32(X.std(axis=0).mean())
    return mean + 3 * (held - mean) + rng.standard_normal(held.shape[1], np.float32) * deviation


KINDS: Mapping[str, Kind] = {
    "like the collection": lambda X, held, rng: held,
    "other mixtures": mixtures,
    "random directions": random_directions,
    "means of three": lambda X, held, rng: X[rng.integers(0, len(X), (3, len(held)))].mean(axis=0),
    "sums of two": lambda X, held, rng: X[rng.integers(0, len(X), (2, len(held)))].sum(axis=0),
    "as text to images": texts,
    "mirrored": lambda X, held, rng: -held,
    "far outside": far_outside,
}


def _norms(X: Floats) -> Floats:
    norms: Floats = np.linalg.norm(X, axis=1, keepdims=True)
    return norms

"""Scores of unrelated photos, estimated from the collection: where the matches of a query end."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from logt._internal.types import Floats
from logt._internal.validation import normalize_rows, row_norms
from logt.index import Index

_SAMPLE_SIZE = 1000
_MIN_SIZE = 20  # of a collection: fewer photos tell nothing
_FALSE_MATCHES = 0.5  # unrelated photos above the limit in one search, as expected for normal scores


class Background:
    """The similarity of a query to photos that were chosen at random; nearly all of them are unrelated to it.

    index: the index of the collection, under cosine.
    """

    def __init__(self, index: Index):
        ids = index.ids
        self._count = len(ids)
        chosen = np.sort(np.random.default_rng(0).permutation(len(ids))[:_SAMPLE_SIZE])
        vectors = index.reconstruct(ids[chosen]) if len(chosen) else np.zeros((0, index.dim), np.float32)
        self._vectors = normalize_rows(vectors, row_norms(vectors))

    def limit(self, query: Floats) -> float | None:
        """Return the score that unrelated photos of this collection rarely exceed; None if there are few photos.

        The median and the middle two thirds of the scores give a normal distribution; the few related photos hardly
        change them. The limit is where half a photo of the whole collection is expected above it.
        """
        if self._count < _MIN_SIZE:
            return None
        scores = self._vectors @ (query / max(float(np.linalg.norm(query)), 1e-30))
        low, middle, high = np.quantile(scores, [NormalDist().cdf(-1), 0.5, NormalDist().cdf(1)])
        deviations = NormalDist().inv_cdf(1 - _FALSE_MATCHES / self._count)
        return float(middle + deviations * (high - low) / 2)

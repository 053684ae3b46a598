"""Sampling, segments -> vectors of the collection that serve as queries, and means of such vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from logt._internal.types import Floats, Ids
from logt.lists.segment import ListSegment

_OF = 3  # vectors of a mean
_TINY = np.float32(1e-30)


def sample_vectors(segments: Sequence[ListSegment], count: int, rng: np.random.Generator) -> tuple[Floats, Ids]:
    """Return (vectors as they are kept, their ids) of at most `count` random live rows."""
    rows = [np.flatnonzero(segment.live) for segment in segments]
    total = sum(map(len, rows))
    chosen = np.sort(rng.choice(total, min(count, total), replace=False))
    starts = np.cumsum([0, *map(len, rows)])
    parts = [
        live[chosen[(chosen >= start) & (chosen < start + len(live))] - start]
        for live, start in zip(rows, starts[:-1], strict=True)
    ]
    vectors = [segment.reconstruct(part) for segment, part in zip(segments, parts, strict=True) if len(part)]
    ids = [segment.ids[part] for segment, part in zip(segments, parts, strict=True) if len(part)]
    return np.concatenate(vectors), np.concatenate(ids)


def sample_queries(segments: Sequence[ListSegment], count: int, rng: np.random.Generator) -> tuple[Floats, Ids]:
    """Return (queries, their ids): `count` vectors, and as many means of three others, whose id is -1.

    Means are less like the collection than its vectors are, as are averaged queries or texts.
    """
    vectors, ids = sample_vectors(segments, 2 * count, rng)
    order = rng.permutation(len(vectors))
    own, others = np.sort(order[: -(-len(order) // 2)]), vectors[order[-(-len(order) // 2) :]]
    if not len(others):
        return vectors, ids
    composed = others[rng.integers(0, len(others), (len(others), _OF))].mean(axis=1).astype(np.float32)
    if segments[0].codec.normalized:
        composed /= np.maximum(np.linalg.norm(composed, axis=1, keepdims=True), _TINY)
    queries = np.concatenate([vectors[own], composed])
    return np.ascontiguousarray(queries), np.concatenate([ids[own], np.full(len(composed), -1)])

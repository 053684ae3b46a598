"""Training, (existing segments, a new batch) -> the codebook to encode the batch with."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from logt._threads import Workers
from logt._types import Floats
from logt._validation import NormalizedRows, normalize_rows, row_norms
from logt.engine.method import Method
from logt.engine.segment import Segment
from logt.stages.kmeans import KMeans
from logt.stages.quantize import Codebook

GROWTH = 2.0
"""Train a new codebook when the collection needs this many times as many units: at four times the vectors."""

DRIFT = 0.8
"""Train a new codebook when the best existing one captures less than this fraction of what it captured at first."""

_SAMPLE = 512  # vectors, at most an eighth of a batch, that measure how well a codebook fits
_MIN_SAMPLE = 64  # fewer say nothing


@dataclass(frozen=True)
class TrainedCodebook:
    """A codebook, and the energy it captures of vectors it was not trained on; 0 if unknown."""

    codebook: Codebook
    captured: float


def codebook_for_batch(
    segments: tuple[Segment, ...], rows: NormalizedRows, method: Method, rng: np.random.Generator, workers: Workers
) -> TrainedCodebook:
    """Return the codebook to encode a new batch with: reuse an existing one if it still fits, otherwise train one.

    After drift it is trained on the batch alone; after growth, on the batch and on reconstructions of the vectors
    that the old codebook encodes.
    """
    group = method.group
    if not isinstance(group, KMeans):
        raise TypeError(f"codebooks are shared by k-means units only, not by {group!r}")
    order = rng.permutation(len(rows))
    held_out, others = np.split(order, [min(_SAMPLE, len(rows) // 8)])
    sample = rows[np.sort(held_out)]
    served = _best_fit(segments, sample)
    existing = sum(segment.count for segment in served)
    units = group.count(existing + len(rows))
    if served and units < GROWTH * served[0].codebook.shape[0]:
        return TrainedCodebook(served[0].codebook, served[0].captured)
    fraction = min(1.0, group.sample * units / (existing + len(rows)))
    parts = [rows[np.sort(others[: math.ceil(fraction * len(rows))])]]
    for segment in served:
        chosen = rng.choice(np.flatnonzero(segment.live), math.ceil(fraction * segment.count), replace=False)
        known = segment.reconstruct(np.sort(chosen))
        parts.append(normalize_rows(known, row_norms(known)))
    recipe = replace(method, group=replace(group, units=units, n=None))
    codebook = recipe.train(np.concatenate(parts), rng, workers)
    return TrainedCodebook(codebook, _captured(sample, codebook) if len(sample) >= _MIN_SAMPLE else 0.0)


def _captured(X: Floats, codebook: Codebook) -> float:
    """Return the mean energy of unit vectors along the memory vector nearest to each."""
    return float(np.square(codebook.measure(X).max(axis=1)).mean())


def _best_fit(segments: tuple[Segment, ...], sample: Floats) -> list[Segment]:
    """Return the segments of the codebook that captures most of a sample, or of the newest if it is too small.

    Return none if the sample has drifted from all codebooks.
    """
    by_codebook: dict[int, list[Segment]] = {}
    for segment in reversed(segments):
        by_codebook.setdefault(id(segment.codebook), []).append(segment)
    if len(sample) < _MIN_SAMPLE:
        return next(iter(by_codebook.values()), [])
    fitting = [
        (captured, served)
        for served in by_codebook.values()
        if (captured := _captured(sample, served[0].codebook)) >= DRIFT * served[0].captured
    ]
    return max(fitting, key=lambda fit: fit[0], default=(0.0, []))[1]

"""Training, (existing segments, a new batch) -> the codec to encode the batch with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from logt._internal.threads import Workers
from logt._internal.types import Floats
from logt._internal.validation import FloatRows
from logt.lists.codec import Codec, CodecSettings
from logt.lists.segment import ListSegment, by_codec

GROWTH = 2.0
"""Train a new codec when the collection needs this many times as many units: at four times the vectors."""

DRIFT = 0.8
"""Train a new codec when the best existing one captures less than this fraction of what it captured at first."""

MAX_PAUSE = 4096
"""Growth alone trains or measures a codec only if at most so many vectors are there, or if the batch is at least an
eighth of them: adding few vectors to a large index takes no time."""

MIN_CHECKED = 512
"""So many vectors show whether a codec fits them. Smaller batches use the newest one, and are checked once they are
so many together."""

PER_UNIT = 32
"""Vectors per unit that a codec is trained on."""

_SAMPLE = 512  # vectors, at most an eighth of a batch, that measure how well a codec fits
_MIN_SAMPLE = MIN_CHECKED // 8


@dataclass(frozen=True)
class Training:
    """The codec for a batch, the segments that are encoded again with it, and whether it was trained now."""

    codec: Codec
    again: tuple[ListSegment, ...] = ()
    new: bool = True


def may_pause(existing: int, new: int) -> bool:
    """Return whether adding so many vectors to the existing ones may take longer than to encode them."""
    return existing <= MAX_PAUSE or 8 * new >= existing


def has_drifted(segment: ListSegment, rng: np.random.Generator) -> bool:
    """Return whether the codec of a segment fits its vectors much less than those that it was trained for.

    Only where a refinement is kept: without one, the vectors are not known well enough to be encoded again.
    """
    if not segment.codec.refine:
        return False
    rows = np.flatnonzero(segment.live)
    sample = segment.reconstruct(np.sort(rng.choice(rows, min(_SAMPLE, len(rows)), replace=False)))
    return segment.codec.captured_energy(sample) < DRIFT * segment.codec.captured


def codec_for_batch(
    segments: Sequence[ListSegment],
    rows: FloatRows,
    settings: Callable[[int], CodecSettings],
    rng: np.random.Generator,
    workers: Workers,
    train: Callable[..., Codec] = Codec.train,
) -> Training:
    """Return the codec to encode a new batch with: reuse an existing one if it still fits, otherwise train one.

    After drift it is trained on the batch alone; after growth, on the batch and on the vectors that the old codec
    encodes, which are then encoded again if the codec keeps a refinement, so that this loses next to nothing.
    settings: those of a codec for so many vectors. train: `Codec.train`, or the same on another device.
    """
    order = rng.permutation(len(rows))
    held_out, others = np.split(order, [min(_SAMPLE, len(rows) // 8)])
    sample = rows[np.sort(held_out)]
    served = _best_fit(segments, sample)
    existing = sum(segment.count for segment in served)
    wanted = settings(existing + len(rows))
    if served:
        grown = wanted.units >= GROWTH * served[0].codec.units
        if not grown or not may_pause(existing, len(rows)):
            return Training(served[0].codec, new=False)
    fraction = min(1.0, PER_UNIT * wanted.units / (existing + len(rows)))
    parts = [rows[np.sort(others[: math.ceil(fraction * len(rows))])]]
    for segment in served:
        chosen = rng.choice(np.flatnonzero(segment.live), math.ceil(fraction * segment.count), replace=False)
        parts.append(segment.reconstruct(np.sort(chosen)))
    X = parts[0] if len(parts) == 1 else np.concatenate(parts)
    wanted = wanted._replace(units=min(wanted.units, len(X)))
    codec = train(X, wanted, rng, workers, normalized=rows.normalized)
    if len(sample) >= _MIN_SAMPLE:
        codec = replace(codec, captured=codec.captured_energy(sample))
    elif served:
        codec = replace(codec, captured=served[0].codec.captured)
    return Training(codec, tuple(served) if codec.refine else ())


def _best_fit(segments: Sequence[ListSegment], sample: Floats) -> list[ListSegment]:
    """Return the segments of the codec that captures most of a sample, or of the newest if it is too small.

    Return none if the sample has drifted from all codecs.
    """
    groups = list(by_codec(reversed(segments)).values())
    if len(sample) < _MIN_SAMPLE:
        return groups[0] if groups else []
    fitting = [
        (captured, served)
        for served in groups
        if (captured := served[0].codec.captured_energy(sample)) >= DRIFT * served[0].codec.captured
    ]
    return max(fitting, key=lambda fit: fit[0], default=(0.0, []))[1]

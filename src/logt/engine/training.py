"""Learning, (what is there, a new batch) -> the memory vectors that the batch is coded with."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from logt._threads import Workers
from logt._types import Floats
from logt._validation import UnitRows, row_norms, unit_rows
from logt.engine.segment import Method, Segment
from logt.stages.kmeans import KMeans
from logt.stages.quantize import Memory

GROWTH = 2.0
"""New memory vectors are learned once the rule asks for so many times as many: for four times the vectors."""

DRIFT = 0.8
"""And once those that fit a batch best capture less than this part of what they captured when they were learned."""

_LOOK = 512  # vectors, an eighth of a batch at most, that say how well memory vectors fit
_FEWEST = 64  # fewer say nothing


@dataclass(frozen=True)
class Learned:
    """Memory vectors, and how much of vectors that they were not learned from they capture; 0 where unknown."""

    memory: Memory
    fit: float


def memory_for(
    segments: tuple[Segment, ...], rows: UnitRows, method: Method, rng: np.random.Generator, workers: Workers
) -> Learned:
    """For a method that shares memory vectors: those of an earlier batch while they serve, else new ones.

    New ones are learned from the batch alone where the data drift, and where they only grow, from it and from the
    vectors that the old ones serve, as those are reconstructed.
    """
    group = method.group
    assert isinstance(group, KMeans)
    order = rng.permutation(len(rows))
    look, rest = np.split(order, [min(_LOOK, len(rows) // 8)])
    sample = rows[np.sort(look)]
    served = _best_fit(segments, sample)
    there = sum(segment.count for segment in served)
    units = group.count(there + len(rows))
    if served and units < GROWTH * served[0].memory.shape[0]:
        return Learned(served[0].memory, served[0].fit)
    share = min(1.0, group.sample * units / (there + len(rows)))
    parts = [rows[np.sort(rest[: math.ceil(share * len(rows))])]]
    for segment in served:
        chosen = rng.choice(np.flatnonzero(segment.live), math.ceil(share * segment.count), replace=False)
        known = segment.reconstructed(np.sort(chosen))
        parts.append(unit_rows(known, row_norms(known)))
    memory = replace(method, group=replace(group, units=units)).learn(np.concatenate(parts), rng, workers)
    return Learned(memory, _captured(sample, memory) if len(sample) >= _FEWEST else 0.0)


def _captured(X: Floats, memory: Memory) -> float:
    """The mean energy of unit vectors along the memory vector that is nearest to each."""
    return float(np.square(memory.measure(X).max(axis=1)).mean())


def _best_fit(segments: tuple[Segment, ...], sample: Floats) -> list[Segment]:
    """The segments of those memory vectors that capture most of a sample; of the newest where it cannot say.

    None where the sample has drifted from all of them.
    """
    by_memory: dict[int, list[Segment]] = {}
    for segment in reversed(segments):
        by_memory.setdefault(id(segment.memory), []).append(segment)
    if len(sample) < _FEWEST:
        return next(iter(by_memory.values()), [])
    fitting = [
        (captured, served)
        for served in by_memory.values()
        if (captured := _captured(sample, served[0].memory)) >= DRIFT * served[0].fit
    ]
    return max(fitting, key=lambda fit: fit[0], default=(0.0, []))[1]

"""Building several systems at once where they share work, (systems, X) -> built: the same bytes as one by one.

Methods with the same units and memory vectors need those only once; sparse decoders that differ only in L come from
one pursuit, and so do those that are fitted to Y and differ in how it is stored.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from logt._threads import Workers
from logt._types import Floats
from logt._validation import row_norms, unit_rows
from logt.baselines import Built, Composed, System
from logt.baselines.composed import of_index
from logt.engine.segment import Method
from logt.errors import InvalidInputError, MissingExtraError
from logt.index import Index
from logt.stages.decoder import Sparse
from logt.stages.memory_vectors import Pinv
from logt.stages.quantize import Float32, Memory

Unbuildable = MissingExtraError | InvalidInputError
Timed = tuple[System, Built | Unbuildable, float | None]
"""A system, what was built of it or why nothing was, and the seconds that its index takes where they were taken."""


def family(system: System) -> str:
    """What systems that are built together have in common."""
    if isinstance(system, Composed) and system.batches == 1 and _shares(system.method):
        return repr((system.method.group, system.method.memory))
    return repr(system)


def built_together(systems: Sequence[System], X: Floats, seed: int, workers: Workers) -> Iterator[Timed]:
    """The systems of one family."""
    composed = [system for system in systems if isinstance(system, Composed)]
    if len(systems) > 1 and len(composed) == len(systems):
        yield from _from_one_grouping(composed, X, seed, workers)
        return
    for system in systems:
        start = time.perf_counter()
        try:
            built = system.build(X, seed=seed, threads=workers.threads, progress=workers.progress)
        except (MissingExtraError, InvalidInputError) as error:
            yield system, error, None
        else:
            yield system, built, time.perf_counter() - start


def _shares(method: Method) -> bool:
    return isinstance(method.decode, Sparse) and isinstance(method.memory, Pinv) and method.sketch is None


def _pursuit(method: Method) -> str:
    """What methods that one pursuit serves have in common, given units and Y."""
    assert isinstance(method.decode, Sparse)
    fitted_to_y = method.fit == "exact" or isinstance(method.quantize, Float32)
    return repr((replace(method.decode, L=1), None if fitted_to_y else method.quantize))


def _from_one_grouping(systems: Sequence[Composed], X: Floats, seed: int, workers: Workers) -> Iterator[Timed]:
    """As `Index.add` of a first batch builds them, stage by stage."""
    start = time.perf_counter()
    X = unit_rows(X, row_norms(X))
    first = systems[0].method
    ids = np.arange(len(X), dtype=np.int64)
    rng = np.random.default_rng([seed, 0])
    units = first.group(X, rng, workers)
    assert isinstance(first.memory, Pinv)
    Y = first.memory(X, units, workers)
    drawn = rng.bit_generator.state
    shared = time.perf_counter() - start
    for name in dict.fromkeys(_pursuit(system.method) for system in systems):
        stored: list[tuple[Composed, Sparse, Memory, float]] = []
        for system in systems:
            if _pursuit(system.method) == name and isinstance(system.method.decode, Sparse):
                rng.bit_generator.state = drawn
                start = time.perf_counter()
                try:
                    kept: Memory = system.method.quantize(Y, rng)
                except (MissingExtraError, InvalidInputError) as error:
                    yield system, error, None
                else:
                    stored.append((system, system.method.decode, kept, time.perf_counter() - start))
        if not stored:
            continue
        leader, decode, memory, _ = stored[0]
        fitted = Y if leader.method.fit == "exact" else memory.decoded()
        start = time.perf_counter()
        path = decode.path(X, fitted, units, [sparse.L for _, sparse, _, _ in stored], workers)
        pursued, longest = time.perf_counter() - start, max(sparse.L for _, sparse, _, _ in stored)
        for (system, sparse, memory, quantized), codes in zip(stored, path, strict=True):
            segment = system.method.assembled(X, ids, units, memory, codes, workers)
            index = Index.of_segments([segment], X.shape[1], method=system.method, seed=seed, threads=workers.threads)
            yield system, of_index(index), shared + quantized + pursued if longest == sparse.L else None

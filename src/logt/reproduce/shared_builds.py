"""Shared builds: systems with the same units and memory vectors compute them once, with the bytes of separate builds.

Sparse decoders that differ only in L come from one run of matching pursuit, and so do decoders that are fitted to Y
and differ only in how Y is stored.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from logt._internal.threads import Workers
from logt._internal.types import Floats
from logt.baselines import BuiltSystem, Composed, System
from logt.errors import InvalidInputError, MissingExtraError
from logt.group_testing.decoder import Sparse
from logt.group_testing.grouping import Units
from logt.group_testing.memory_vectors import Pinv
from logt.group_testing.method import GroupTesting
from logt.group_testing.quantize import Float32

TimedBuild = tuple[System, BuiltSystem | MissingExtraError | InvalidInputError, float | None]
"""A system, its build or the error, and the seconds of the build; None if it used stages of an earlier one."""


def family(system: System) -> str:
    """Return a key that is the same for all systems that are built together."""
    method = _shared_method(system)
    return repr(system) if method is None else repr((method.group, method.memory))


def build_family(systems: Sequence[System], X: Floats, seed: int, workers: Workers) -> Iterator[TimedBuild]:
    """Build the systems of one family, one after the other, those with the most entries per vector first."""
    results: dict[str, Any] = {}
    lengths: dict[str, set[int]] = {}  # by pursuit
    for one in filter(None, map(_shared_method, systems)):
        lengths.setdefault(_pursuit(one), set()).add(_length(one))
    for system in sorted(systems, key=lambda system: _length(_shared_method(system)), reverse=True):
        method, is_first, shared = _shared_method(system), not results, system
        if method is not None:
            shared = Composed(_with_shared_stages(method, results, tuple(lengths[_pursuit(method)])))
        start = time.perf_counter()
        try:
            built = shared.build(X, seed=seed, threads=workers.threads, progress=workers.progress)
        except (MissingExtraError, InvalidInputError) as error:
            yield system, error, None
        else:
            yield system, built, time.perf_counter() - start if is_first else None


def _shared_method(system: System) -> GroupTesting | None:
    """Return the method of a system whose stages can be shared, or None."""
    method = system.method if isinstance(system, Composed) and system.batches == 1 else None
    if not isinstance(method, GroupTesting) or not isinstance(method.memory, Pinv):
        return None
    return method if isinstance(method.decode, Sparse) and method.decode.L is not None else None


def _length(method: GroupTesting | None) -> int:
    """Return L of a method whose stages can be shared; 0 for None."""
    return 0 if method is None else cast(int, cast(Sparse, method.decode).L)


def _pursuit(method: GroupTesting) -> str:
    """Return a key that is the same for methods whose codes come from one run of matching pursuit."""
    fitted_to = None if method.fit == "exact" or isinstance(method.quantize, Float32) else method.quantize
    return repr((replace(cast(Sparse, method.decode), L=1), fitted_to))


def _with_shared_stages(method: GroupTesting, results: dict[str, Any], lengths: Sequence[int]) -> GroupTesting:
    """Return a method whose stages take their results from those of its family, and keep new ones for it.

    results: by stage, or by pursuit. lengths: the values of L of its pursuit.
    """
    pursuit, stages = _pursuit(method), cast(Any, method)

    def group(X: Floats, rng: np.random.Generator, workers: Workers) -> Any:
        if "units" not in results:
            results["units"] = stages.group(X, rng, workers), rng.bit_generator.state
        units, rng.bit_generator.state = results["units"]
        return units

    def memory(X: Floats, units: Units, workers: Workers) -> Any:
        if "memory vectors" not in results:
            results["memory vectors"] = stages.memory(X, units, workers)
        return results["memory vectors"]

    def decode(X: Floats, Y: Floats, units: Units, workers: Workers) -> Any:
        if pursuit not in results:
            results[pursuit] = stages.decode.path(X, Y, units, lengths, workers)
        return results[pursuit][lengths.index(stages.decode.L)]

    return replace(method, **cast(Any, {"group": group, "memory": memory, "decode": decode}))

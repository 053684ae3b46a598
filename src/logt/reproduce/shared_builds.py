"""Shared builds: systems with common stages compute them once, with the same bytes as separate builds.

Methods with the same units and memory vectors compute these once. Sparse decoders that differ only in L come from one
run of matching pursuit, and so do decoders that are fitted to Y and differ only in how Y is stored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np

from logt._internal.threads import Workers
from logt._internal.types import Floats
from logt.baselines import BuiltSystem, Composed, System
from logt.engine.protocols import Method
from logt.errors import InvalidInputError, MissingExtraError
from logt.group_testing.codes import Codes
from logt.group_testing.decoder import Sparse
from logt.group_testing.grouping import Units
from logt.group_testing.memory_vectors import Pinv
from logt.group_testing.quantize import Float32

Result = TypeVar("Result")
BuildError = MissingExtraError | InvalidInputError
TimedBuild = tuple[System, BuiltSystem | BuildError, float | None]
"""A system, its build or the error, and the seconds of the build if they could be measured."""


def family(system: System) -> str:
    """Return a key that is the same for all systems that are built together."""
    if isinstance(system, Composed) and system.batches == 1 and _can_share(system.method):
        return repr((system.method.group, system.method.memory))
    return repr(system)


def build_family(systems: Sequence[System], X: Floats, seed: int, workers: Workers) -> Iterator[TimedBuild]:
    """Build the systems of one family, one after the other."""
    composed = [system for system in systems if isinstance(system, Composed)]
    cache = StageCache(_lengths(composed)) if len(systems) > 1 and len(composed) == len(systems) else None
    for system in systems:
        shared: System = system
        if cache is not None and isinstance(system, Composed):
            shared = replace(system, method=SharedMethod.from_method(system.method, cache))
        start = time.perf_counter()
        try:
            built = shared.build(X, seed=seed, threads=workers.threads, progress=workers.progress)
        except (MissingExtraError, InvalidInputError) as error:
            yield system, error, None
            continue
        seconds = time.perf_counter() - start
        if cache is not None and isinstance(system, Composed):
            yield system, built, cache.total_seconds(system.method, seconds)
        else:
            yield system, built, seconds


def _can_share(method: Method) -> bool:
    return isinstance(method.decode, Sparse) and isinstance(method.memory, Pinv) and method.residual is None


def _lengths(systems: Sequence[Composed]) -> dict[str, list[int]]:
    """Return the values of L of the decoders that differ in nothing else, by their common configuration."""
    lengths: dict[str, list[int]] = {}
    for system in systems:
        if isinstance(system.method.decode, Sparse):
            lengths.setdefault(repr(replace(system.method.decode, L=1)), []).append(system.method.decode.L)
    return lengths


@dataclass
class StageCache:
    """The results of stages over the same vectors, and the seconds that each took."""

    lengths: dict[str, list[int]]
    _results: dict[Any, tuple[Any, float]] = field(default_factory=dict)
    _saved: float = 0.0

    def get(self, key: Any, compute: Callable[[], Result]) -> Result:
        """Return the result for a key, computed at most once."""
        if key in self._results:
            self._saved += self._results[key][1]
        else:
            start = time.perf_counter()
            self._results[key] = compute(), time.perf_counter() - start
        result: Result = self._results[key][0]
        return result

    def total_seconds(self, method: Method, measured: float) -> float | None:
        """Return the seconds of a build including its cached stages; None if its pursuit ran on to a larger L."""
        saved, self._saved = self._saved, 0.0
        decode = method.decode
        if isinstance(decode, Sparse) and max(self.lengths[repr(replace(decode, L=1))]) > decode.L:
            return None
        return measured + saved


@dataclass(frozen=True)
class SharedMethod(Method):
    """A method that takes the results of its stages from a cache."""

    cache: StageCache = field(default_factory=lambda: StageCache({}), repr=False, compare=False)

    @classmethod
    def from_method(cls, method: Method, cache: StageCache) -> SharedMethod:
        """Return a method with a cache."""
        return cls(**{f.name: getattr(method, f.name) for f in fields(method)}, cache=cache)

    def units(self, X: Floats, rng: np.random.Generator, workers: Workers) -> Units:
        def compute() -> tuple[Units, Any]:
            return super(SharedMethod, self).units(X, rng, workers), rng.bit_generator.state

        units, rng.bit_generator.state = self.cache.get(("units", repr(self.group)), compute)
        return units

    def memory_vectors(self, X: Floats, units: Units, rng: np.random.Generator, workers: Workers) -> Floats:
        key = ("memory vectors", repr(self.group), repr(self.memory))
        return self.cache.get(key, lambda: super(SharedMethod, self).memory_vectors(X, units, rng, workers))

    def codes(self, X: Floats, Y: Floats, units: Units, workers: Workers) -> Codes:
        decode = self.decode
        if not isinstance(decode, Sparse):
            return super().codes(X, Y, units, workers)
        lengths = sorted(set(self.cache.lengths[repr(replace(decode, L=1))]))
        fitted_to = None if self.fit == "exact" or isinstance(self.quantize, Float32) else repr(self.quantize)
        key = ("codes", repr(replace(decode, L=1)), fitted_to)
        path = self.cache.get(key, lambda: decode.path(X, Y, units, lengths, workers))
        return path[lengths.index(decode.L)]

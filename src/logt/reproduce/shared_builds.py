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
from logt.errors import InvalidInputError, MissingExtraError
from logt.group_testing.codes import Codes
from logt.group_testing.decoder import Sparse
from logt.group_testing.grouping import Units
from logt.group_testing.memory_vectors import Pinv
from logt.group_testing.method import GroupTesting
from logt.group_testing.quantize import Float32

Result = TypeVar("Result")
TimedBuild = tuple[System, BuiltSystem | MissingExtraError | InvalidInputError, float | None]
"""A system, its build or the error, and the seconds of the build; None if it used stages of an earlier one."""


def family(system: System) -> str:
    """Return a key that is the same for all systems that are built together."""
    method = _shared_method(system)
    return repr(system) if method is None else repr((method.group, method.memory))


def build_family(systems: Sequence[System], X: Floats, seed: int, workers: Workers) -> Iterator[TimedBuild]:
    """Build the systems of one family, one after the other, those with the most entries per vector first."""
    methods = {repr(system): _shared_method(system) for system in systems}
    lengths = {repr(system): _entries(methods[repr(system)]) for system in systems}
    together = [method for method in methods.values() if method is not None]
    results: dict[Any, Any] = {}
    for system in sorted(systems, key=lambda system: lengths[repr(system)], reverse=True):
        method, is_first = methods[repr(system)], not results
        shared: System = system
        if isinstance(system, Composed) and method is not None:
            shared = replace(system, method=SharedMethod.from_method(method, together, results))
        start = time.perf_counter()
        try:
            built = shared.build(X, seed=seed, threads=workers.threads, progress=workers.progress)
        except (MissingExtraError, InvalidInputError) as error:
            yield system, error, None
        else:
            yield system, built, time.perf_counter() - start if is_first else None


def _shared_method(system: System) -> GroupTesting | None:
    """Return the method of a system whose stages can be shared, or None."""
    if not isinstance(system, Composed) or system.batches != 1:
        return None
    method = system.method
    if not isinstance(method, GroupTesting) or not isinstance(method.memory, Pinv):
        return None
    return method if isinstance(method.decode, Sparse) else None


def _entries(method: GroupTesting | None) -> int:
    return method.decode.L if method is not None and isinstance(method.decode, Sparse) else 0


@dataclass(frozen=True)
class SharedMethod(GroupTesting):
    """A method that takes the results of its stages from those of others, and keeps new ones for them.

    results: by stage and parameters. lengths: the values of L of the decoders that come from the same pursuit.
    """

    results: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    lengths: tuple[int, ...] = field(default=(), repr=False, compare=False)

    @classmethod
    def from_method(
        cls, method: GroupTesting, together: Sequence[GroupTesting], results: dict[Any, Any]
    ) -> SharedMethod:
        """Return a method that shares its results with others. together: these methods, itself included."""
        lengths = {_entries(other) for other in together if _pursuit(other.decode) == _pursuit(method.decode)}
        parameters = {f.name: getattr(method, f.name) for f in fields(method)}
        return cls(**parameters, results=results, lengths=tuple(sorted(lengths)))

    def units(self, X: Floats, rng: np.random.Generator, workers: Workers) -> Units:
        def compute() -> tuple[Units, Any]:
            return super(SharedMethod, self).units(X, rng, workers), rng.bit_generator.state

        units, rng.bit_generator.state = self._shared(("units", repr(self.group)), compute)
        return units

    def memory_vectors(self, X: Floats, units: Units, rng: np.random.Generator, workers: Workers) -> Floats:
        key = ("memory vectors", repr(self.group), repr(self.memory))
        return self._shared(key, lambda: super(SharedMethod, self).memory_vectors(X, units, rng, workers))

    def codes(self, X: Floats, Y: Floats, units: Units, workers: Workers) -> Codes:
        decode = self.decode
        if not isinstance(decode, Sparse):
            return super().codes(X, Y, units, workers)
        fitted_to = None if self.fit == "exact" or isinstance(self.quantize, Float32) else repr(self.quantize)
        key = ("codes", repr(_pursuit(decode)), fitted_to)
        path = self._shared(key, lambda: decode.path(X, Y, units, list(self.lengths), workers))
        return path[self.lengths.index(decode.L)]

    def _shared(self, key: Any, compute: Callable[[], Result]) -> Result:
        """Return the result for a key, computed at most once."""
        if key not in self.results:
            self.results[key] = compute()
        result: Result = self.results[key]
        return result


def _pursuit(decode: Any) -> Any:
    """Return what the decoders have in common that come from one run of matching pursuit."""
    return replace(decode, L=1) if isinstance(decode, Sparse) else decode

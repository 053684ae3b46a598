"""Measurement, trials -> points: accuracy, cost and time of each trial, with one build per system."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from logt._internal.threads import Progress, Workers, available_cores, single_threaded_blas
from logt._internal.types import Floats, Ids
from logt.baselines import BuiltSystem, Exhaustive
from logt.datasets import Benchmark
from logt.errors import MissingExtraError
from logt.evaluation import recall_at
from logt.reproduce.shared_builds import build_family
from logt.reproduce.trials import Point, Trial

ROUNDS, SINGLE_QUERIES, BATCH, K = 3, 10, 64, 100
"""Times are medians over rounds with k = K results; a system and exhaustive search take turns."""


@dataclass
class Evaluator:
    """Measures trials on a benchmark and compares them with exhaustive search."""

    benchmark: Benchmark
    list_length: int
    threads: int = field(default_factory=available_cores)

    @cached_property
    def exhaustive(self) -> BuiltSystem:
        return Exhaustive().build(self.benchmark.X)

    @cached_property
    def nearest(self) -> Ids:
        """The ten nearest vectors of each query."""
        return self.exhaustive.search(self.benchmark.Q, 10, threads=self.threads)

    def measure(
        self, trials: Sequence[Trial], progress: Progress | None, on_point: Callable[[Trial, Point], None]
    ) -> None:
        """Measure trials of one family and one seed; each point is passed to `on_point` when it is ready."""
        by_system: dict[str, list[Trial]] = {}
        for trial in trials:
            by_system.setdefault(repr(trial.system), []).append(trial)
        systems = [some[0].system for some in by_system.values()]
        workers = Workers(self.threads, progress)
        for system, built, seconds in build_family(systems, self.benchmark.X, trials[0].seed, workers):
            for trial in by_system[repr(system)]:
                if isinstance(built, BuiltSystem):
                    on_point(trial, {**self._evaluate(built, trial), "seconds": seconds})
                else:
                    reason = "not installed" if isinstance(built, MissingExtraError) else "not possible here"
                    on_point(trial, {"note": f"{reason}: {built}"})

    def _evaluate(self, built: BuiltSystem, trial: Trial) -> Point:
        """Return the accuracy and the cost of a trial, and its times if it is a timed one."""
        data, settings = self.benchmark, dict(trial.settings)
        cost = {
            "rho": built.rho(**settings),
            "memory": built.memory_ratio,
            "bytes": _search_bytes(built, settings),
        }
        if trial.depth == 0:
            return cost
        depth = len(data.X) if trial.depth is None else min(trial.depth, len(data.X))
        ids = built.search(data.Q, depth, threads=self.threads, **settings)
        scores = {name: data.score(ids, name) for name in data.truths}
        point: Point = {
            **cost,
            "map": {name: score.mean_ap for name, score in scores.items()},
            "map@cut": {name: data.mean_ap(ids[:, : self.list_length], name) for name in data.truths},
            "precision": {name: {str(k): p for k, p in score.precision.items()} for name, score in scores.items()},
            "depth": scores[data.main].depth,
            "recall@1": recall_at(1, ids, self.nearest),
            "recall@10": recall_at(10, ids, self.nearest),
        }
        return {**point, **self._times(built, settings, depth)} if trial.timed else point

    def _times(self, built: BuiltSystem, settings: dict[str, Any], depth: int) -> Point:
        """Return milliseconds per query on one thread, of single queries and of a batch, with exhaustive search."""
        k = min(K, depth)
        block = np.ascontiguousarray(np.resize(self.benchmark.Q, (BATCH, self.benchmark.Q.shape[1])))
        searches = {
            "": lambda Q: built.search(Q, k, threads=1, **settings),
            " exhaustive": lambda Q: self.exhaustive.search(Q, k, threads=1),
        }
        single: dict[str, list[float]] = {name: [] for name in searches}
        batch: dict[str, list[float]] = {name: [] for name in searches}
        with single_threaded_blas():
            for _ in range(ROUNDS):
                for name, search in searches.items():
                    single[name] += [_milliseconds(search, block[q : q + 1]) for q in range(SINGLE_QUERIES)]
                    batch[name].append(_milliseconds(search, block) / BATCH)
        times = {f"ms{name}": float(np.median(values)) for name, values in single.items()}
        return {**times, **{f"ms batch{name}": float(np.median(values)) for name, values in batch.items()}}


def _milliseconds(search: Callable[[Floats], Ids], Q: Floats) -> float:
    start = time.perf_counter()
    search(Q)
    return 1000 * (time.perf_counter() - start)


def _search_bytes(built: BuiltSystem, settings: dict[str, Any]) -> int:
    """Return the bytes that a search reads: without the correction, the units of each vector are not read."""
    if built.index is None or settings.get("correct", True):
        return built.nbytes
    return built.nbytes - int(built.index.report()["bytes by part"].get("units", 0))

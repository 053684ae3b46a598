"""Measurement, trials -> points: accuracy, cost and time of each trial, with one build per system."""

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
from logt.reproduce.trials import TRUNCATED, Point, Trial

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
                    on_point(trial, {**self._evaluate(built, trial), "index seconds": seconds})
                else:
                    reason = "not installed" if isinstance(built, MissingExtraError) else "not possible here"
                    on_point(trial, {"note": f"{reason}: {built}"})

    def _evaluate(self, built: BuiltSystem, trial: Trial) -> Point:
        """Return the accuracy and the cost of a trial, and its times if it is a timed one."""
        data, settings = self.benchmark, dict(trial.settings)
        size = _search_bytes(built, settings)
        cost = {"complexity": built.rho(**settings), "memory": built.memory_ratio, "bytes": size}
        cost["bytes per vector"] = size / len(data.X)
        if trial.depth == 0:
            return cost
        depth = len(data.X) if trial.depth is None else min(trial.depth, len(data.X))
        ids = built.search(data.Q, depth, threads=self.threads, **settings)
        score = data.score(ids)
        point: Point = {
            **cost,
            "mAP": score.mean_ap,
            **{f"mAP {name}": data.mean_ap(ids, name) for name in data.truths if name != data.main},
            TRUNCATED: data.mean_ap(ids[:, : self.list_length]),
            "list depth": score.depth,
            "recall@1": recall_at(1, ids, self.nearest),
            "recall@10": recall_at(10, ids, self.nearest),
        }
        return {**point, **self._times(built, settings, depth)} if trial.timed else point

    def _times(self, built: BuiltSystem, settings: dict[str, Any], depth: int) -> Point:
        """Return milliseconds per query on one thread, of single queries and of a batch, with exhaustive search."""
        k = min(K, depth)
        block = np.ascontiguousarray(np.resize(self.benchmark.Q, (BATCH, self.benchmark.Q.shape[1])))
        searches: tuple[Callable[[Floats], Ids], ...] = (
            lambda Q: built.search(Q, k, threads=1, **settings),
            lambda Q: self.exhaustive.search(Q, k, threads=1),
        )
        single: tuple[list[float], ...] = ([], [])
        batch: tuple[list[float], ...] = ([], [])
        with single_threaded_blas():
            for _ in range(ROUNDS):
                for search, alone, together in zip(searches, single, batch, strict=True):
                    alone += [_milliseconds(search, block[q : q + 1]) for q in range(SINGLE_QUERIES)]
                    together.append(_milliseconds(search, block) / BATCH)
        (ms, exhaustive), (ms_batch, exhaustive_batch) = np.median(single, axis=1), np.median(batch, axis=1)
        times = {"ms": ms, "ms exhaustive": exhaustive, "ms, batch": ms_batch}
        ratios = {"time ratio": ms / exhaustive, "time ratio, batch": ms_batch / exhaustive_batch}
        return {name: float(value) for name, value in (times | ratios).items()}


def _milliseconds(search: Callable[[Floats], Ids], Q: Floats) -> float:
    start = time.perf_counter()
    search(Q)
    return 1000 * (time.perf_counter() - start)


def _search_bytes(built: BuiltSystem, settings: dict[str, Any]) -> int:
    """Return the bytes that a search reads: without the correction, the units of each vector are not read."""
    if built.index is None or settings.get("correct", True):
        return built.nbytes
    return built.nbytes - int(built.index.report()["bytes by part"].get("units", 0))

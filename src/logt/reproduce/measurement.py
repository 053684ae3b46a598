"""Measuring, (system, settings) -> points: each index is built once for all that is asked of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from logt._threads import Progress, Workers, available_cores, single_threaded_blas
from logt._types import Floats, Ids
from logt.baselines import BuiltSystem, Exhaustive
from logt.datasets import Benchmark
from logt.errors import MissingExtraError
from logt.evaluation import recall_at
from logt.reproduce.shared_builds import build_family
from logt.reproduce.trials import Measured, Trial

ROUNDS, IN_A_ROW, BATCH, K = 3, 10, 64, 100
"""Times are medians over rounds, ours and those of exhaustive search in turn; k = 100 results are asked for."""


@dataclass
class Lab:
    """A benchmark, and exhaustive search in it, which all is compared with."""

    benchmark: Benchmark
    cut: int
    threads: int = field(default_factory=available_cores)

    @cached_property
    def exhaustive(self) -> BuiltSystem:
        return Exhaustive().build(self.benchmark.X)

    @cached_property
    def exact(self) -> Ids:
        """The ten nearest vectors of each query."""
        return self.exhaustive.search(self.benchmark.Q, 10, threads=self.threads)

    def measure(
        self, trials: Sequence[Trial], progress: Progress | None, done: Callable[[Trial, Measured], None]
    ) -> None:
        """Measure trials of one family and one seed; `done` is told each point as it is made."""
        systems = {repr(trial.system): trial.system for trial in trials}
        workers = Workers(self.threads, progress)
        made = build_family(list(systems.values()), self.benchmark.X, trials[0].seed, workers)
        for system, built, seconds in made:
            for trial in trials:
                if repr(trial.system) != repr(system):
                    continue
                if isinstance(built, BuiltSystem):
                    done(trial, {**self._searched(built, trial), "seconds": seconds})
                else:
                    why = "not installed" if isinstance(built, MissingExtraError) else "not possible here"
                    done(trial, {"note": f"{why}: {built}"})

    def _searched(self, built: BuiltSystem, trial: Trial) -> Measured:
        data, setting = self.benchmark, dict(trial.setting)
        depth = len(data.X) if trial.depth is None else min(trial.depth, len(data.X))
        ids = built.search(data.Q, depth, threads=self.threads, **setting)
        whole = {name: data.score(ids, name) for name in data.truths}
        point: Measured = {
            "map": {name: score.mean_ap for name, score in whole.items()},
            "map@cut": {name: data.mean_ap(ids[:, : self.cut], name) for name in data.truths},
            "precision": {name: {str(k): p for k, p in score.precision.items()} for name, score in whole.items()},
            "depth": whole[data.main].depth,
            "recall@1": recall_at(1, ids, self.exact),
            "recall@10": recall_at(10, ids, self.exact),
            "rho": built.rho(**setting),
            "memory": built.memory_ratio,
            "bytes": _bytes(built, setting),
        }
        return {**point, **self._times(built, setting, depth)} if trial.timed else point

    def _times(self, built: BuiltSystem, setting: dict[str, Any], depth: int) -> Measured:
        """Milliseconds per query on one thread, alone and in a batch, beside those of exhaustive search."""
        k = min(K, depth)
        block = np.ascontiguousarray(np.resize(self.benchmark.Q, (BATCH, self.benchmark.Q.shape[1])))
        searches = {
            "": lambda Q: built.search(Q, k, threads=1, **setting),
            " exhaustive": lambda Q: self.exhaustive.search(Q, k, threads=1),
        }
        alone: dict[str, list[float]] = {name: [] for name in searches}
        batch: dict[str, list[float]] = {name: [] for name in searches}
        with single_threaded_blas():
            for _ in range(ROUNDS):
                for name, search in searches.items():
                    alone[name] += [_milliseconds(search, block[q : q + 1]) for q in range(IN_A_ROW)]
                    batch[name].append(_milliseconds(search, block) / BATCH)
        times = {f"ms{name}": float(np.median(values)) for name, values in alone.items()}
        return {**times, **{f"ms batch{name}": float(np.median(values)) for name, values in batch.items()}}


def _milliseconds(search: Callable[[Floats], Ids], Q: Floats) -> float:
    start = time.perf_counter()
    search(Q)
    return 1000 * (time.perf_counter() - start)


def _bytes(built: BuiltSystem, setting: dict[str, Any]) -> int:
    """Without the unit lists that only a correction reads, where it is left out."""
    if built.index is None or setting.get("correct", True):
        return built.nbytes
    return built.nbytes - int(built.index.report()["bytes by part"].get("units", 0))

"""One system in a process of its own: a library that crashes, or starts threads, does not affect the others."""

import gc
import os
import pickle
import resource
import sys
import time
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.interface import Built, Collection, System, UnsupportedError
from benchmarks.memory import memory_of
from benchmarks.systems import systems
from logt._internal.subprocess_worker import FOREVER, Child, ChildError
from logt._internal.threads import single_threaded_blas

SINGLE, BATCH = 128, 64  # queries: one after the other, and together
LEAST, BATCHES = 20, 3  # of a round: single queries at least, and batches at most
PATIENCE = 0.5  # seconds of a round, after which a slow system is measured no further


class WorkerError(Exception):
    """The process of a system failed; the message states how."""


class Worker:
    """The process of one system. Calls wait for its answer."""

    def __init__(self, system: System, folder: Path, metric: str, threads: int):
        self._session = (system.name, folder, metric, threads)
        path = os.pathsep.join(filter(None, sys.path))
        self._child = Child("benchmarks.worker:answer", environment={**system.environment, "PYTHONPATH": path})

    def call(self, method: str, *arguments: Any, limit: float = FOREVER) -> Any:
        """Return what a method of the session returns, or raise WorkerError; limit: seconds to wait for it."""
        try:
            reply, _ = self._child.ask(pickle.dumps((self._session, method, arguments)), seconds=limit)
        except ChildError as error:
            raise WorkerError(f"{method}: {error}") from error
        succeeded, result = pickle.loads(reply)
        if not succeeded:
            raise WorkerError(result)
        return result

    def stop(self) -> None:
        """End the process."""
        self._child.kill()


class Session:
    """What runs in the process: build once, then search and measure times."""

    def __init__(self, system: System, folder: Path, metric: str, threads: int):
        self._system, self._folder, self._metric, self._threads = system, folder, metric, threads
        self._timed = np.load(folder / "timed.npy")
        self._built: Built

    def build(self) -> dict[str, Any]:
        """Build the system; return its seconds, peak memory above that of the vectors, and bytes."""
        X = np.load(self._folder / "vectors.npy").astype(np.float32, copy=False)
        self._vectors = len(X)
        before = memory_of(os.getpid(), "VmRSS")
        start = time.perf_counter()
        self._built = self._system.build(Collection(X, self._metric, self._threads, self._folder))
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        del X
        gc.collect()
        ram, disk = self._built.sizes()
        return {
            "version": self._system.version(),
            "ram": ram,
            "disk": disk,
            "seconds": seconds + self._built.seconds,
            "peak": max(0, peak),
        }

    def search(self, which: str, setting: str, k: int) -> np.ndarray:
        """Return the ids of k results for one of the stored sets of queries; -1 where there are fewer."""
        Q = np.load(self._folder / f"{which}.npy")
        with single_threaded_blas():
            ids = self._built.search(Q, k, **self._system.settings[setting])
        found = np.asarray(ids).astype(np.int64).reshape(len(Q), -1)
        return np.where((found >= 0) & (found < self._vectors), found, -1)  # some libraries pad with 2³² - 1

    def measure(self, setting: str, k: int, number: int) -> dict[str, Any]:
        """Return the seconds of single queries, those of a query in each batch, and the cores that batches used."""
        singles = [np.ascontiguousarray(q[None]) for q in self._some_queries(SINGLE, 0)]  # the same in all rounds
        batches = np.split(self._some_queries(BATCHES * BATCH, number), BATCHES)
        search, arguments = self._built.search, self._system.settings[setting]
        with single_threaded_blas():
            search(singles[-1], k, **arguments)  # after another setting, the caches hold other data
            single = _seconds(lambda q: search(q, k, **arguments), singles, LEAST)
            used = time.process_time()
            batch = _seconds(lambda Q: search(Q, k, **arguments), batches, 1)
            used = time.process_time() - used
        return {"single": single, "batch": [seconds / BATCH for seconds in batch], "cores": used / sum(batch)}

    def _some_queries(self, count: int, number: int) -> np.ndarray:
        rows = np.arange(number * count, (number + 1) * count) % len(self._timed)
        return np.ascontiguousarray(self._timed[rows])


def _seconds(step: Callable[[np.ndarray], object], values: list[np.ndarray], least: int) -> list[float]:
    """Return the time of each step, or of the first ones if they take long."""
    times: list[float] = []
    for value in values:
        start = time.perf_counter()
        step(value)
        times.append(time.perf_counter() - start)
        if len(times) >= least and sum(times) > PATIENCE:
            break
    return times


def answer(request: bytes, _: bytes) -> tuple[bytes, bytes]:
    """Return the pickled result of a call, or the error; the first call opens the session."""
    session, method, arguments = pickle.loads(request)
    try:
        reply = True, getattr(_open_session(*session), method)(*arguments)
    except Exception as error:
        lines = [] if isinstance(error, UnsupportedError) else traceback.format_exc().splitlines(keepends=True)[-6:]
        reply = False, "".join([f"{type(error).__name__}: {error}\n", *lines])
    return pickle.dumps(reply), b""


@cache
def _open_session(name: str, folder: Path, metric: str, threads: int) -> Session:
    system = next(system for system in systems() if system.name == name)
    return Session(system, folder, metric, threads)

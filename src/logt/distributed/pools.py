"""Where tasks run: worker processes of this machine, or a Ray cluster. Both give the same results."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from logt._internal.threads import available_cores
from logt._internal.validation import check_int
from logt.distributed.tasks import Result, Task, parse_result, run_task
from logt.errors import WorkerError

MAX_ATTEMPTS = 4
"""How often a task is started whose worker died."""

Finished = Callable[[int, Result], None]
"""Called with the number of a task and its result, from the calling thread."""


class Pool(ABC):
    """Runs tasks.

    threads: of a task, if as many run as there are workers. machine_threads: of a task that runs alone. received:
    bytes of results that have been handed to this process.
    """

    threads = 1
    machine_threads = 1
    received = 0

    @abstractmethod
    def run(self, tasks: Sequence[Task], finished: Finished) -> None:
        """Run all tasks, in any order; the first error cancels those that have not started.

        finished: called with the number of each task and its result.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop the workers."""

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class ProcessPool(Pool):
    """Worker processes on this machine; one that dies is replaced, and its task starts again."""

    def __init__(self, workers: int | None = None):
        """workers: the number of processes, by default one per core."""
        count = available_cores() if workers is None else check_int("workers", workers)
        self.threads, self.machine_threads = max(1, available_cores() // count), available_cores()
        self._workers = [_Process() for _ in range(count)]

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers that run."""
        return [worker.process.pid for worker in self._workers if worker.process is not None]

    def run(self, tasks: Sequence[Task], finished: Finished) -> None:
        """Run all tasks; finished: called with the number of each task and its result."""
        waiting = iter(range(len(tasks)))
        results: queue.Queue[tuple[int, str | BaseException]] = queue.Queue()
        stopped = threading.Event()
        lock = threading.Lock()

        def serve(worker: _Process) -> None:
            while not stopped.is_set():
                with lock:
                    number = next(waiting, None)
                if number is None:
                    return
                try:
                    results.put((number, worker.run(json.dumps(tasks[number]), stopped)))
                except BaseException as error:
                    results.put((number, error))
                    return

        threads = [threading.Thread(target=serve, args=(worker,), daemon=True) for worker in self._workers]
        for thread in threads:
            thread.start()
        try:
            for _ in tasks:
                number, result = results.get()
                if isinstance(result, BaseException):
                    raise result
                self.received += len(result)
                finished(number, parse_result(result, tasks[number]))
        except BaseException:
            stopped.set()
            self.close()
            raise
        finally:
            for thread in threads:
                thread.join()

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()


class _Process:
    """One worker process, started when it is first used."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def run(self, line: str, stopped: threading.Event) -> str:
        """Return the result of a task; if the process dies, start another one."""
        for _ in range(MAX_ATTEMPTS):
            if self.process is None:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "logt.distributed.worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    encoding="utf-8",
                )
            process = self.process
            with suppress(BrokenPipeError):
                process.stdin.write(line + "\n")  # type: ignore[union-attr]
                process.stdin.flush()  # type: ignore[union-attr]
                result = process.stdout.readline()  # type: ignore[union-attr]
                if result.endswith("\n"):
                    return result
            self.kill()
            if stopped.is_set():
                break
        raise WorkerError(
            f"a worker died {MAX_ATTEMPTS} times in the same task, perhaps for lack of memory: {line:.500}"
        )

    def kill(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(BrokenPipeError):
                        stream.close()


class RayPool(Pool):
    """Tasks of a Ray cluster; a task whose node dies starts again on another one."""

    def __init__(self, address: str | None = None, workers: int | None = None):
        """address: of the cluster, see `logt.distributed.connect`. workers: run at most so many tasks at a time."""
        from logt.distributed.cluster import connect

        self._ray: Any = connect(address)
        nodes = [node["Resources"].get("CPU", 0) for node in self._ray.nodes() if node["Alive"]]
        cores = int(max(nodes, default=1)) or 1
        limit = int(sum(nodes)) or 1 if workers is None else check_int("workers", workers)
        self.threads, self.machine_threads = max(1, min(cores, int(sum(nodes)) // limit)), cores
        self._limit = limit
        self._remote = self._ray.remote(run_task)

    def run(self, tasks: Sequence[Task], finished: Finished) -> None:
        """Run all tasks; finished: called with the number of each task and its result."""
        waiting = list(range(len(tasks)))[::-1]
        running: dict[Any, int] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self._limit:
                    number = waiting.pop()
                    cores = tasks[number].get("threads", 1)
                    remote = self._remote.options(num_cpus=cores, max_retries=MAX_ATTEMPTS)
                    running[remote.remote(json.dumps(tasks[number]))] = number
                (ready,), _ = self._ray.wait(list(running), num_returns=1)
                number = running.pop(ready)
                try:
                    result = self._ray.get(ready)
                except self._ray.exceptions.RayError as error:
                    raise WorkerError(f"a task of kind {tasks[number]['kind']!r} failed: {error}") from error
                self.received += len(result)
                finished(number, parse_result(result, tasks[number]))
        except BaseException:
            for task in running:
                self._ray.cancel(task, force=True)
            raise

    def close(self) -> None:
        """Do nothing: the cluster stays connected."""

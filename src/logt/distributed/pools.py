"""Where tasks run: worker processes of this machine, or a Ray cluster. Both give the same results."""

import json
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, Self

from logt._internal.extras import needs_extra
from logt._internal.subprocess_worker import Child, ChildError, ChildPool
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

    threads: int = 1
    machine_threads: int = 1
    received: int = 0

    @abstractmethod
    def run(self, tasks: Sequence[Task], finished: Finished) -> None:
        """Run all tasks, in any order; the first error cancels those that have not started.

        finished: called with the number of each task and its result.
        """

    def close(self) -> None:  # noqa: B027
        """Stop the workers of this pool."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class ProcessPool(Pool):
    """Worker processes on this machine; one that dies is replaced, and its task starts again."""

    def __init__(self, workers: int | None = None):
        """workers: the number of processes, by default one per core."""
        self._count = available_cores() if workers is None else check_int("workers", workers)
        self.threads: int = max(1, available_cores() // self._count)
        self.machine_threads: int = available_cores()
        self.received: int = 0
        self._children = ChildPool(lambda: Child("logt.distributed.tasks:answer"), self._count)

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers that run."""
        return [child.pid for child in self._children.children]

    def run(self, tasks: Sequence[Task], finished: Finished) -> None:
        stopped = threading.Event()

        def run_one(task: Task) -> bytes:
            line = json.dumps(task).encode()
            for _ in range(MAX_ATTEMPTS):
                try:
                    return self._children.ask(line)[0]
                except ChildError:
                    if stopped.is_set():
                        break
            raise WorkerError(
                f"a worker died {MAX_ATTEMPTS} times in the same task, perhaps for lack of memory: {line[:500]!r}"
            )

        with ThreadPoolExecutor(self._count) as threads:
            running = {threads.submit(run_one, task): number for number, task in enumerate(tasks)}
            try:
                for future in as_completed(running):
                    result, number = future.result(), running[future]
                    self.received += len(result)
                    finished(number, parse_result(result, tasks[number]))
            except BaseException:
                stopped.set()
                threads.shutdown(wait=False, cancel_futures=True)
                self.close()
                while not all(future.done() for future in running):
                    time.sleep(0.02)
                    self.close()  # a worker that was just being started
                raise

    def close(self) -> None:
        self._children.close()


class RayPool(Pool):
    """Tasks of a Ray cluster, which stays connected; a task whose node dies starts again on another one."""

    def __init__(self, address: str | None = None, workers: int | None = None):
        """address: of the cluster, see `logt.distributed.connect`. workers: run at most so many tasks at a time."""
        self._ray: Any = connect(address)
        nodes = [node["Resources"].get("CPU", 0) for node in self._ray.nodes() if node["Alive"]]
        cores = int(max(nodes, default=1)) or 1
        self._limit = int(sum(nodes)) or 1 if workers is None else check_int("workers", workers)
        self.threads: int = max(1, min(cores, int(sum(nodes)) // self._limit))
        self.machine_threads: int = cores
        self.received: int = 0
        self._remote = self._ray.remote(run_task)

    def run(self, tasks: Sequence[Task], finished: Finished) -> None:
        waiting = list(range(len(tasks)))[::-1]
        running: dict[Any, int] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self._limit:
                    number = waiting.pop()
                    cores = tasks[number].get("threads", 1)
                    remote = self._remote.options(num_cpus=cores, max_retries=MAX_ATTEMPTS)
                    running[remote.remote(json.dumps(tasks[number]).encode())] = number
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


def connect(address: str | None = None) -> Any:
    """Connect this process to a Ray cluster, unless it is connected, and return the module `ray`.

    address: of a cluster ("auto" is the one that runs on this machine, or RAY_ADDRESS), or "local" to start one on
    this machine; None is "auto" if there is a cluster, otherwise "local".
    """
    with needs_extra("ray", "Ray is not installed"):
        import ray
    if not ray.is_initialized():
        if address is None and os.environ.get("RAY_ADDRESS"):
            address = "auto"
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        if address == "local":
            options["include_dashboard"] = False
        try:
            ray.init(address, **options)
        except ConnectionError as error:
            raise ConnectionError(
                f"no Ray cluster at {address or 'auto'!r}; start one with `ray start --head`"
            ) from error
    return ray

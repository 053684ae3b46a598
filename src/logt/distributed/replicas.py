"""The actors of a Ray cluster that hold the shards of an index: several of each, on different nodes.

A call goes to one replica of each shard. If that one is dead or does not return in time, the next one is called. Dead
actors are replaced by new ones, which open the same files.
"""

import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from logt.distributed.shard import Shard
from logt.errors import MissingShardsError

LOAD_SECONDS = 3600.0
"""The deadline for opening the segments of a shard, which may have to be fetched first."""

_POLL = 0.02  # seconds between looks for an actor that replaces a dead one


@dataclass(eq=False)
class Replica:
    """One actor. calls, failures, seconds: of its searches so far."""

    actor: Any
    node: str
    calls: int = 0
    failures: int = 0
    seconds: float = 0.0


@dataclass
class _Call:
    """A call of one replica. result: a reference of Ray. ended: 0 while it is not known."""

    replica: Replica
    started: float
    result: Any
    ended: float = 0.0


class Replicas:
    """`count` actors of each shard of one saved state of an index, which have opened their segments."""

    def __init__(self, ray: Any, path: str, state: str, parts: Sequence[Sequence[int]], count: int, seconds: float):
        """parts: the numbers of the segments of each shard. seconds: the deadline of a call to one actor."""
        self._ray, self._seconds = ray, seconds
        self._actor_class = ray.remote(Shard)
        self._sources = [(path, state, part) for part in parts]
        self._turn = itertools.count()
        self._lock = threading.Lock()
        self._closed = False
        self._totals: Any = None
        self.shards: list[list[Replica]] = [[] for _ in parts]  # a list is replaced, never changed
        self.replaced, self._pid = 0, os.getpid()
        try:
            for number, shard in itertools.product(range(count), range(len(parts))):
                self.shards[shard] = [*self.shards[shard], self._create(shard, number)]
            loaded = self._call_all("load")
            self._totals = ray.put([sum(same[1:], same[0]) for same in zip(*loaded.values(), strict=True)])
            self._call_all("activate", self._totals)
        except BaseException:
            self.close()
            raise

    def call(
        self, method: str, arguments: Callable[[int], tuple[Any, ...]], missing: list[int] | None = None
    ) -> list[Any]:
        """Return the result of a method of each shard, from any of its replicas.

        arguments: by the number of the shard. missing: gets the numbers of shards without a result, which are None;
        without it, they raise MissingShardsError.
        """
        until, turn = time.monotonic() + self._seconds, next(self._turn)
        calls = [
            self._send(replicas[turn % len(replicas)], method, *arguments(shard)) if replicas else None
            for shard, replicas in enumerate(self.shards)
        ]
        pending = {call.result: call for call in calls if call is not None}
        while pending and (ready := self._ray.wait(list(pending), timeout=max(until - time.monotonic(), 0))[0]):
            pending.pop(ready[0]).ended = time.monotonic()
        results, lost = [], {}
        for shard, call in enumerate(calls):
            try:
                results.append(self._result(shard, call, until, method, *arguments(shard)))
            except MissingShardsError as error:
                results.append(None)
                lost[shard] = str(error)
        if lost and missing is None:
            raise MissingShardsError(
                f"no result from {len(lost)} of {len(calls)} shards: {'; '.join(lost.values())}", tuple(lost)
            )
        if missing is not None:
            missing.extend(lost)
        return results

    def call_first(self, method: str) -> list[Any]:
        """Return the result of a method of the first replica of each shard, which may take as long as loading."""
        calls = [self._send(replicas[0], method) for replicas in self.shards]
        return [self._finish(shard, call, LOAD_SECONDS) for shard, call in enumerate(calls)]

    def close(self) -> None:
        """Stop all actors, unless the connection to the cluster has ended, or this is a fork of their process."""
        if os.getpid() != self._pid or not self._ray.is_initialized():
            return  # a call would start another cluster
        with self._lock:
            self._closed = True
        for replica in itertools.chain(*self.shards):
            with suppress(Exception):
                self._ray.kill(replica.actor)

    # ----------------------------------------------------------------------------------------------------- calls

    def _call_all(self, method: str, *arguments: Any) -> dict[int, Any]:
        """Call all replicas, which must all return; return the result of each shard."""
        calls = [
            (shard, self._send(replica, method, *arguments))
            for shard, replicas in enumerate(self.shards)
            for replica in replicas
        ]
        return {shard: self._finish(shard, call, LOAD_SECONDS) for shard, call in calls}

    def _send(self, replica: Replica, method: str, *arguments: Any) -> _Call:
        replica.calls += 1
        return _Call(replica, time.monotonic(), getattr(replica.actor, method).remote(*arguments))

    def _result(self, shard: int, call: _Call | None, until: float, method: str, *arguments: Any) -> Any:
        """Return the result of a call, or that of another replica if it fails.

        If all have failed, wait until a time for an actor that replaces a dead one.
        """
        tried, reason = [], f"shard {shard}: no replica is alive"
        while True:
            if call is not None:
                tried.append(call.replica)
                try:
                    return self._finish(shard, call, self._seconds)
                except MissingShardsError as error:
                    reason = str(error)
            others = [replica for replica in self.shards[shard] if replica not in tried]
            if not others and (self._closed or time.monotonic() > until):
                raise MissingShardsError(reason, (shard,))
            if not others:
                time.sleep(_POLL)
            call = self._send(others[0], method, *arguments) if others else None

    def _finish(self, shard: int, call: _Call, seconds: float) -> Any:
        """Return the result of a call; raise MissingShardsError if the actor is dead or late."""
        left = max(call.started + seconds - time.monotonic(), 0)
        ready, _ = self._ray.wait([call.result], timeout=left)
        call.replica.seconds += (call.ended or time.monotonic()) - call.started
        try:
            if ready:
                return self._ray.get(call.result)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None
        except self._ray.exceptions.RayError as error:
            call.replica.failures += 1
            self._replace(shard, call.replica)
            raise MissingShardsError(f"shard {shard}: its actor died ({type(error).__name__})", (shard,)) from None
        call.replica.failures += 1
        self._ray.cancel(call.result)
        raise MissingShardsError(f"shard {shard}: no result in time", (shard,))

    # ---------------------------------------------------------------------------------------------------- actors

    def _create(self, shard: int, number: int = 0) -> Replica:
        """Start an actor on a node that has none of the shard, if there is one, and few others."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        nodes = sorted(node["NodeID"] for node in self._ray.nodes() if node["Alive"])
        mine = [replica.node for replica in self.shards[shard]]
        every = [replica.node for replica in itertools.chain(*self.shards)]
        turn = nodes[(shard + number) % len(nodes) :] + nodes[: (shard + number) % len(nodes)]
        node = min(turn, key=lambda name: (mine.count(name), every.count(name)))
        strategy = NodeAffinitySchedulingStrategy(node, soft=True)
        options = {"num_cpus": 0, "max_concurrency": 16, "scheduling_strategy": strategy}
        return Replica(self._actor_class.options(**options).remote(*self._sources[shard]), node)

    def _replace(self, shard: int, dead: Replica) -> None:
        """Take a dead actor out, and start another one, which is called once it has opened its segments."""
        with self._lock:
            if self._closed or self._totals is None or dead not in self.shards[shard]:
                return
            self.shards[shard] = [replica for replica in self.shards[shard] if replica is not dead]
            self.replaced += 1
        threading.Thread(target=self._start_again, args=(shard,), daemon=True).start()

    def _start_again(self, shard: int) -> None:
        with suppress(self._ray.exceptions.RayError, OSError, RuntimeError):
            fresh = self._create(shard)
            self._ray.get(fresh.actor.load.remote())
            self._ray.get(fresh.actor.activate.remote(self._totals))
            with self._lock:
                self.shards[shard] = [*self.shards[shard], fresh]
                if self._closed:
                    self._ray.kill(fresh.actor)

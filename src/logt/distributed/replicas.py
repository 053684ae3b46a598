"""The actors of a Ray cluster that hold the shards of an index: several of each, on different nodes.

A call goes to one replica of each shard. If that one is dead or does not return in time, the next one is called. Dead
actors are replaced by new ones, which open the same files.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from logt.distributed.shard import Shard
from logt.errors import MissingShardsError
from logt.lists.shards import ListTotals

LOAD_SECONDS = 3600.0
"""The deadline for opening the segments of a shard, which may have to be fetched first."""

_POLL = 0.02  # seconds between looks for an actor that replaces a dead one

Arguments = Callable[[int], tuple[Any, ...]]
"""The arguments of a call, by the number of the shard."""


@dataclass
class Replica:
    """One actor. calls, failures, seconds: of its searches so far."""

    actor: Any
    node: str
    calls: int = 0
    failures: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Layout:
    """Which segments are in which shard, for one state of the index; totals: of all shards together."""

    state: str
    shards: tuple[tuple[int, ...], ...]
    totals: tuple[ListTotals, ...] = ()


@dataclass
class _Call:
    """A call of one shard that has not returned."""

    shard: int
    replica: Replica
    started: float
    tried: list[Replica] = field(default_factory=list)


@dataclass
class _Wait:
    """A shard without a replica that could be called: how long a new one is waited for, and why there is none."""

    until: float
    reason: str
    tried: list[Replica] = field(default_factory=list)


class Replicas:
    """`count` actors of each shard. seconds: the deadline of a call to one of them."""

    def __init__(self, ray: Any, path: str, shards: int, count: int, seconds: float):
        self._ray, self._path, self._seconds = ray, path, seconds
        self._actor_class = ray.remote(Shard)
        self._layouts: dict[str, Layout] = {}
        self._turn = itertools.count()
        self._lock = threading.Lock()
        self._closed = False
        self.shards: list[list[Replica]] = [[] for _ in range(shards)]
        self.replaced = 0
        for number in range(count):
            for shard in range(shards):
                self.shards[shard].append(self._create(shard, number))

    # ---------------------------------------------------------------------------------------------------- states

    def load(self, layout: Layout) -> Layout:
        """Let all actors open a state; return it with its totals."""
        each = self.call(
            "load", lambda shard: (layout.state, layout.shards[shard]), everyone=True, seconds=LOAD_SECONDS
        )
        sums = tuple(sum(same[1:], same[0]) for same in zip(*each, strict=True))
        ready = Layout(layout.state, layout.shards, sums)
        shared = self._ray.put(sums)
        with self._lock:
            self._layouts[layout.state] = ready  # an actor that replaces another one from now on opens it too
        try:
            self.call(
                "activate",
                lambda shard: (layout.state, layout.shards[shard], shared),
                everyone=True,
                seconds=LOAD_SECONDS,
            )
        except BaseException:
            self.drop(layout.state)
            raise
        return ready

    def drop(self, state: str) -> None:
        """Let all actors forget a state."""
        with self._lock:
            self._layouts.pop(state, None)
        for replica in self._all():
            with suppress(self._ray.exceptions.RayError):
                replica.actor.drop.remote(state)

    # ----------------------------------------------------------------------------------------------------- calls

    def call(
        self,
        method: str,
        arguments: Arguments,
        *,
        everyone: bool = False,
        missing: list[int] | None = None,
        seconds: float | None = None,
    ) -> list[Any]:
        """Return the result of a method of each shard, from any of its replicas; with `everyone`, call all of them.

        missing: gets the numbers of shards without a result, which are None; without it, they raise
        MissingShardsError. seconds: the deadline of one call, if not that of searches.
        """
        seconds = seconds or self._seconds
        results: dict[int, Any] = {}
        lost: dict[int, str] = {}
        pending: dict[Any, _Call] = {}
        turn = next(self._turn)
        waiting: dict[int, _Wait] = {}
        for shard, replicas in enumerate(list(self.shards)):
            alive = list(replicas)
            chosen = alive if everyone else alive[turn % max(len(alive), 1) :][:1]
            for replica in chosen:
                self._send(pending, method, arguments, _Call(shard, replica, 0.0))
            if not chosen:
                waiting[shard] = _Wait(time.monotonic() + seconds, "no replica is alive")
        while pending or waiting:
            self._call_replacements(pending, method, arguments, waiting, lost)
            if not pending:
                time.sleep(_POLL if waiting else 0)
                continue
            oldest = min(call.started for call in pending.values())
            wait = max(oldest + seconds - time.monotonic(), 0)
            ready, _ = self._ray.wait(list(pending), num_returns=1, timeout=min(wait, _POLL) if waiting else wait)
            late = [ref for ref, call in pending.items() if time.monotonic() - call.started >= seconds]
            for ref in ready or late:
                call = pending.pop(ref)
                reason = self._finish(ref, call, results, late=not ready)
                if reason is not None and not everyone:
                    wait_for = _Wait(time.monotonic() + (seconds if ready else 0), reason, call.tried)
                    self._retry(pending, method, arguments, call, waiting, wait_for)
                elif reason is not None and call.shard not in results:
                    lost[call.shard] = reason
        lost = {shard: reason for shard, reason in lost.items() if shard not in results}
        if lost and missing is None:
            reasons = "; ".join(f"shard {shard}: {reason}" for shard, reason in sorted(lost.items()))
            raise MissingShardsError(
                f"no result from {len(lost)} of {len(self.shards)} shards: {reasons}", tuple(lost)
            )
        if missing is not None:
            missing.extend(sorted(lost))
        return [results.get(shard) for shard in range(len(self.shards))]

    def _send(self, pending: dict[Any, _Call], method: str, arguments: Arguments, call: _Call) -> None:
        call.started = time.monotonic()
        call.tried.append(call.replica)
        call.replica.calls += 1
        pending[getattr(call.replica.actor, method).remote(*arguments(call.shard))] = call

    def _finish(self, ref: Any, call: _Call, results: dict[int, Any], *, late: bool) -> str | None:
        """Take the result of a call; return why there is none, if so."""
        call.replica.seconds += time.monotonic() - call.started
        if late:
            call.replica.failures += 1
            self._ray.cancel(ref)
            return "no result in time"
        try:
            results[call.shard] = self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:
            cause = getattr(error, "cause", None)
            raise cause if isinstance(cause, Exception) else error from None
        except self._ray.exceptions.RayError as error:
            call.replica.failures += 1
            self._replace(call.shard, call.replica)
            return f"its actor died ({type(error).__name__})"
        return None

    def _retry(
        self,
        pending: dict[Any, _Call],
        method: str,
        arguments: Arguments,
        call: _Call,
        waiting: dict[int, _Wait],
        wait: _Wait,
    ) -> None:
        """Call a replica of the shard that was not tried; if there is none, wait for one that replaces a dead one."""
        others = [replica for replica in self.shards[call.shard] if not any(replica is t for t in call.tried)]
        if others:
            self._send(pending, method, arguments, _Call(call.shard, others[0], 0.0, call.tried))
        else:
            waiting[call.shard] = wait

    def _call_replacements(
        self,
        pending: dict[Any, _Call],
        method: str,
        arguments: Arguments,
        waiting: dict[int, _Wait],
        lost: dict[int, str],
    ) -> None:
        """Call replicas that have been started for shards that wait for one; give up those past their deadline."""
        for shard, wait in list(waiting.items()):
            fresh = [replica for replica in self.shards[shard] if not any(replica is t for t in wait.tried)]
            if fresh:
                self._send(pending, method, arguments, _Call(shard, fresh[0], 0.0, wait.tried))
                del waiting[shard]
            elif time.monotonic() > wait.until or self._closed:
                lost[shard] = wait.reason
                del waiting[shard]

    # ------------------------------------------------------------------------------------------------ replacement

    def _create(self, shard: int, number: int = 0) -> Replica:
        """Start an actor on a node that has none of the shard, if there is one, and few others."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        nodes = sorted(node["NodeID"] for node in self._ray.nodes() if node["Alive"])
        mine = [replica.node for replica in self.shards[shard]]
        every = [replica.node for replica in self._all()]
        turn = nodes[(shard + number) % len(nodes) :] + nodes[: (shard + number) % len(nodes)]
        node = min(turn, key=lambda name: (mine.count(name), every.count(name)))
        strategy = NodeAffinitySchedulingStrategy(node, soft=True)
        options = {"num_cpus": 0, "max_concurrency": 16, "scheduling_strategy": strategy}
        return Replica(self._actor_class.options(**options).remote(self._path), node)

    def _replace(self, shard: int, dead: Replica) -> None:
        """Take a dead actor out, and start another one, which is called once it has opened its segments."""
        with self._lock:
            if self._closed or not any(replica is dead for replica in self.shards[shard]):
                return
            self.shards[shard] = [replica for replica in self.shards[shard] if replica is not dead]
            self.replaced += 1
        threading.Thread(target=self._start_again, args=(shard,), daemon=True).start()

    def _start_again(self, shard: int) -> None:
        with suppress(self._ray.exceptions.RayError, OSError, RuntimeError):
            fresh = self._create(shard)
            done: set[str] = set()
            while True:
                with self._lock:
                    waiting = [layout for layout in self._layouts.values() if layout.state not in done]
                    if not waiting:  # nothing has been loaded meanwhile
                        if self._closed:
                            self._ray.kill(fresh.actor)
                        else:
                            self.shards[shard] = [*self.shards[shard], fresh]
                        return
                for layout in waiting:
                    self._ray.get(fresh.actor.activate.remote(layout.state, layout.shards[shard], layout.totals))
                    done.add(layout.state)

    def close(self) -> None:
        """Stop all actors."""
        with self._lock:
            self._closed = True
        for replica in self._all():
            with suppress(Exception):
                self._ray.kill(replica.actor)

    def _all(self) -> Sequence[Replica]:
        return [replica for replicas in self.shards for replica in replicas]

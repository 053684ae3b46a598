"""The queue of changes: those that wait are applied together and saved once, before their responses are sent."""

import asyncio
import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

from logt._internal.types import Array
from logt.server.collection import AnyChange, Id
from logt.server.errors import HTTPError, to_http_error

MAX_REMEMBERED = 1000
"""Changes whose outcome is remembered, for clients that ask for it or send the same change again."""

MAX_REMEMBERED_IDS = 1_000_000
"""Ids in the outcomes that are remembered, in total."""

REMEMBER_SECONDS = 3600.0
"""How long an outcome is remembered."""

ChangeState = Literal["waiting", "running", "done", "failed"]


@dataclass(eq=False)
class Ticket:
    """One change and what became of it; used in the event loop only."""

    change: AnyChange | None
    key: str | None
    fingerprint: bytes
    outcome: asyncio.Future[Any]
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    state: ChangeState = "waiting"
    waiters: int = 0
    finished: float = 0.0
    ids: int = 0


class ChangeRunningError(Exception):
    """The time limit was reached while the change was being applied; `ticket` has its state."""

    def __init__(self, ticket: Ticket):
        super().__init__("the change is still running")
        self.ticket = ticket


class ChangeQueue:
    """Changes that wait for one writer thread.

    apply: applies a group of changes and saves them, as `BaseCollection.apply`. tidy: called after each group.
    max_waiting, max_bytes: if so many changes wait, or so many bytes of them, the next is refused with a 503 error.
    """

    def __init__(
        self,
        apply: Callable[[Sequence[AnyChange]], list[Any]],
        tidy: Callable[[], None],
        max_waiting: int,
        max_bytes: int,
    ):
        self._apply, self._tidy = apply, tidy
        self._max_waiting, self._max_bytes = max_waiting, max_bytes
        self._waiting: list[Ticket] = []
        self._tickets: OrderedDict[str, Ticket] = OrderedDict()
        self._keys: dict[str, Ticket] = {}
        self._remembered_ids = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="logt-change")
        self._writing = False
        self._closed = False

    async def submit(self, change: AnyChange, key: str | None = None, fingerprint: bytes = b"") -> Any:
        """Return the result of a change once it is saved, or raise its exception.

        A change whose key was used before is not applied again: it has the result of the first; `fingerprint` must
        be the same. If the caller is cancelled, a change that only waits is dropped; for one that runs, this raises
        ChangeRunningError.
        """
        ticket = self._find(key, fingerprint) or self._enqueue(change, key, fingerprint)
        ticket.waiters += 1
        try:
            return await asyncio.shield(ticket.outcome)
        except asyncio.CancelledError:
            if ticket.outcome.done():  # at the last moment: it is saved, so the answer must say so
                return ticket.outcome.result()
            if ticket.state == "running":
                raise ChangeRunningError(ticket) from None
            if ticket.state == "waiting" and ticket.waiters == 1:
                self._waiting.remove(ticket)
                self._forget(ticket)
            raise
        finally:
            ticket.waiters -= 1

    def find(self, id: str) -> Ticket:
        """Return a change by its id; raise a 404 error if it is not known, or no longer."""
        if id not in self._tickets:
            raise HTTPError(404, "not_found", "there is no change with this id, or it was too long ago")
        return self._tickets[id]

    def close(self) -> None:
        """Wait for the changes that are being applied; those that still wait are dropped."""
        self._waiting.clear()
        self._closed = True
        self._thread.shutdown()

    def _find(self, key: str | None, fingerprint: bytes) -> Ticket | None:
        self._forget_old()
        ticket = self._keys.get(key) if key is not None else None
        if ticket is not None and ticket.fingerprint != fingerprint:
            message = f"the idempotency key {key!r} was used for another request; use a new one"
            raise HTTPError(422, "key_reused", message)
        return ticket

    def _enqueue(self, change: AnyChange, key: str | None, fingerprint: bytes) -> Ticket:
        waiting_bytes = sum(ticket.change.nbytes for ticket in self._waiting if ticket.change is not None)
        if len(self._waiting) >= self._max_waiting or waiting_bytes >= self._max_bytes:
            raise HTTPError(503, "busy", "too many changes are waiting; try again later", {"Retry-After": "1"})
        ticket = Ticket(change, key, fingerprint, asyncio.get_running_loop().create_future())
        self._tickets[ticket.id] = ticket
        if key is not None:
            self._keys[key] = ticket
        self._waiting.append(ticket)
        self._start()
        return ticket

    def _start(self) -> None:
        """Apply everything that waits, unless the writer thread is busy; then it follows when that has ended."""
        if self._writing or not self._waiting or self._closed:
            return
        group, self._waiting = self._waiting, []
        changes = [ticket.change for ticket in group if ticket.change is not None]
        for ticket in group:
            ticket.state, ticket.change = "running", None
        self._writing = True
        loop = asyncio.get_running_loop()

        def write() -> None:
            try:
                results = self._apply(changes)
            except Exception as error:
                results = [error] * len(group)
            loop.call_soon_threadsafe(self._finish, group, results)
            self._tidy()

        self._thread.submit(write)

    def _finish(self, group: list[Ticket], results: list[Any]) -> None:
        self._writing = False
        for ticket, result in zip(group, results, strict=True):
            ticket.finished = time.monotonic()
            if isinstance(result, Exception):
                ticket.state = "failed"
                ticket.outcome.set_exception(to_http_error(result))
                ticket.outcome.exception()  # the request may have ended: mark it as retrieved
                self._forget_key(ticket)  # it changed nothing, so it may be sent again
            else:
                ticket.state, ticket.ids = "done", len(result) if isinstance(result, list) else 1
                self._remembered_ids += ticket.ids
                ticket.outcome.set_result(result)
        self._start()

    def _forget_old(self) -> None:
        limit = time.monotonic() - REMEMBER_SECONDS
        while self._tickets:
            oldest = next(iter(self._tickets.values()))
            full = len(self._tickets) > MAX_REMEMBERED or self._remembered_ids > MAX_REMEMBERED_IDS
            if not oldest.finished or (oldest.finished > limit and not full):
                return
            self._forget(oldest)

    def _forget(self, ticket: Ticket) -> None:
        if self._tickets.pop(ticket.id, None) is not None:
            self._remembered_ids -= ticket.ids
        self._forget_key(ticket)

    def _forget_key(self, ticket: Ticket) -> None:
        if ticket.key is not None:
            self._keys.pop(ticket.key, None)


def fingerprint(X: Array, ids: list[Id] | None, replace: bool) -> bytes:
    """Return a checksum of an add, to tell a repeated request from another one with the same key."""
    about = repr((ids, replace, X.shape)).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(about + X.tobytes(), digest_size=16).digest()

"""Limits of connections: headers, requests that wait, time to wait for a client, number in total and per address.

uvicorn alone counts connections that never send a request, and keeps them without a limit of time: some hundreds of
them would stop the service.
"""

import asyncio
from collections.abc import Iterable
from typing import cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from logt.server.access import address_group
from logt.server.settings import Limits

MAX_HEAD_BYTES = 64 << 10
"""Bytes of the request line and the headers, and of the trailers."""
MAX_HEADERS = 100
"""Headers and trailers of a request: each takes much more memory than its bytes."""

_REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\ntoo many connections\n"


def server_config(app: ASGIApp, limits: Limits) -> uvicorn.Config:
    """Return the configuration of a server that keeps the limits of connections."""

    class LimitedProtocol(_LimitedProtocol):
        _limits = limits

    return uvicorn.Config(
        app,
        http=LimitedProtocol,
        ws="none",
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=max(1, int(limits.idle_seconds)),
        timeout_graceful_shutdown=5,
    )


class _LimitedProtocol(HttpToolsProtocol):
    """One connection. A timer runs while the server waits for the client: for a request, or until it reads.

    If there are too many connections, the one that has waited longest for its client is closed. So silent and slow
    clients cannot lock others out; connections whose requests the server works on are never closed.

    While a response is not complete, one more request may wait. What follows these two is not read, and the
    connection is closed after their responses: requests that wait would take memory without a limit.
    """

    _limits: Limits
    _group = ""
    _since = 0.0
    _head_bytes = 0  # since the last byte of a body, or the end of a request
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._group = address_group(self.client[0]) if self.client else ""
        self._watch()
        everyone = [cast(_LimitedProtocol, other) for other in self.connections]
        self._make_room(everyone, self._limits.connections)
        same_address = [other for other in everyone if other._group == self._group]
        self._make_room(same_address, self._limits.connections_per_address)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_read and not self.cycle.keep_alive:
            return
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > MAX_HEAD_BYTES:
            self.transport.abort()
        self._watch()

    def on_message_begin(self) -> None:
        if self.pipeline:
            raise ValueError("more than one request waits")  # goes to send_400_response
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= MAX_HEADERS:
            raise ValueError("too many headers")
        super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be parsed; behind complete requests, only close the connection after their responses."""
        if self._is_read:
            self.cycle.keep_alive = False
        else:
            super().send_400_response(msg)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_timer()
        self._watch()

    @property
    def _in_request(self) -> bool:
        """Whether the headers of a request are complete, and its response is not."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def _is_read(self) -> bool:
        """Whether the last request is complete, and its response is not."""
        return self._in_request and not self.cycle.more_body

    def _watch(self) -> None:
        """Start the timer if the server waits for the client; bytes of incomplete headers do not restart it."""
        if self._in_request and not self.flow.write_paused:
            self._stop_timer()
        elif self._timer is None:
            self._since = self.loop.time()
            self._timer = self.loop.call_later(self._limits.idle_seconds, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _make_room(self, connections: "Iterable[_LimitedProtocol]", most: int) -> None:
        """Close a connection if there are more than `most`; this one if the server works on all others."""
        opened = [other for other in connections if not other.transport.is_closing()]
        if len(opened) <= most:
            return
        waiting = [other for other in opened if other._timer is not None or other.cycle.more_body]
        longest = min(waiting, key=lambda other: other._since)
        if longest is self:
            self.transport.write(_REFUSAL)
            self.transport.close()
        else:
            longest.transport.abort()

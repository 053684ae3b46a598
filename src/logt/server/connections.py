"""Limits of connections, which uvicorn lacks: time to send the headers or to stay idle, and number per address."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from logt.server.access import address_group
from logt.server.settings import Limits

MAX_HEAD_BYTES = 64 << 10
"""Bytes of the request line and the headers."""

_Protocol: Any = AutoHTTPProtocol
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n"
    b"too many connections from this address\n"
)


def server_config(app: ASGIApp, limits: Limits) -> uvicorn.Config:
    """Return the configuration of a server that keeps the limits of connections."""
    return uvicorn.Config(
        app,
        http=_limited_protocol(limits),
        ws="none",
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=max(1, int(limits.idle_seconds)),
        limit_concurrency=limits.connections,
        timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
    )


def _limited_protocol(limits: Limits) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with limits; all its connections share the count per address."""
    connections: Counter[str] = Counter()

    class LimitedProtocol(_Protocol):  # type: ignore[misc]
        """One connection. While no request is in progress, or the client does not read, a timer runs."""

        _group = ""
        _head_bytes = 0
        _idle_timer: asyncio.TimerHandle | None = None
        _stall_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._group = address_group(self.client[0]) if self.client else ""
            connections[self._group] += 1
            if connections[self._group] > limits.connections_per_address:
                transport.write(_REFUSAL)
                transport.close()
            self._watch()

        def connection_lost(self, error: Exception | None) -> None:
            connections[self._group] -= 1
            if not connections[self._group]:
                del connections[self._group]
            _cancel(self._idle_timer)
            _cancel(self._stall_timer)
            super().connection_lost(error)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._head_bytes = 0 if self._in_request else self._head_bytes + len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.transport.abort()
            self._watch()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._watch()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stall_timer = self.loop.call_later(limits.idle_seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            _cancel(self._stall_timer)

        @property
        def _in_request(self) -> bool:
            """Whether the headers of a request are complete, and its response is not."""
            return self.cycle is not None and not self.cycle.response_complete

        def _watch(self) -> None:
            """Start the timer when no request is in progress; bytes of incomplete headers do not restart it."""
            if self._in_request:
                _cancel(self._idle_timer)
                self._idle_timer = None
            elif self._idle_timer is None:
                self._idle_timer = self.loop.call_later(limits.idle_seconds, self.transport.abort)

    return LimitedProtocol


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()

"""ASGI middleware around the application: access checks, request limits, security headers, metrics."""

import asyncio
import time
from collections.abc import Callable

from python_multipart.multipart import parse_options_header
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from logt.server.access import LoginAttempts, check_host, check_origin, check_token
from logt.server.errors import HTTPError, to_http_error
from logt.server.metrics import ServerMetrics
from logt.server.settings import Settings, format_bytes

ErrorRenderer = Callable[[Scope, HTTPError], Response]

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers send "Origin: null" for forms of this page
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_METHODS = {"GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH"}
_CLIENT_CLOSED_REQUEST = 499
_FORMS = (b"multipart/form-data", b"application/x-www-form-urlencoded")
_CHARSETS = {b"utf-8", b"utf8", b"us-ascii", b"ascii", b"iso-8859-1", b"latin-1", b"latin1"}


class ServerMiddleware:
    """Outermost middleware: check each request, limit its size and time, and add headers to each response."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: ServerMetrics, render_error: ErrorRenderer):
        self._app, self._settings, self._metrics, self._render_error = app, settings, metrics, render_error
        self._attempts = LoginAttempts()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, sender = time.perf_counter(), _ResponseSender(send)
        try:
            await self._forward(scope, receive, sender)
        except Exception as exception:
            error = to_http_error(exception)
            if not sender.status:
                await self._render_error(scope, error)(scope, receive, sender.send)
        finally:
            method = scope["method"] if scope["method"] in _METHODS else "OTHER"
            route = getattr(scope.get("route"), "path", "other")
            status = sender.status or _CLIENT_CLOSED_REQUEST
            self._metrics.observe_request(method, route, status, time.perf_counter() - start)

    async def _forward(self, scope: Scope, receive: Receive, sender: "_ResponseSender") -> None:
        headers, limits = Headers(scope=scope), self._settings.limits
        check_host(headers, self._settings.hosts)
        check_origin(scope, headers)
        login = check_token(scope, headers, self._settings.token, self._attempts)
        scope["login_attempts"] = self._attempts
        if login is not None:
            await login(scope, receive, sender.send)
            return
        _check_form_charset(headers)
        receive = _limit_body(receive, headers, limits.body_bytes)
        try:
            async with asyncio.timeout(limits.seconds) as deadline:
                scope["deadline"] = deadline  # a download may take longer
                await self._app(scope, receive, sender.send)
        except TimeoutError:
            raise HTTPError(504, "timeout", f"the request exceeded the limit of {limits.seconds:g} s") from None


def _check_form_charset(headers: Headers) -> None:
    """Raise a 415 error for a form in an unusual charset: some codecs of Python take minutes for a small form."""
    media_type, options = parse_options_header(headers.get("content-type"))
    charset = options.get(b"charset", b"utf-8")
    if media_type in _FORMS and charset.lower() not in _CHARSETS:
        message = f"the charset of a form must be utf-8, us-ascii or iso-8859-1, got {charset.decode('latin-1')!r}"
        raise HTTPError(415, "unknown_charset", message, {"Connection": "close"})


class _ResponseSender:
    """Send a response with the security headers; `status` is 0 until the response has started."""

    def __init__(self, send: Send):
        self._send, self.status = send, 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers[name] = value
            if "cache-control" not in headers:
                headers["Cache-Control"] = "no-cache" if "etag" in headers else "no-store"
        await self._send(message)


def _limit_body(receive: Receive, headers: Headers, max_bytes: int) -> Receive:
    """Return a function that receives a body of at most `max_bytes`, with or without a Content-Length header."""
    content_length, received = headers.get("content-length", ""), 0
    if content_length.isdecimal() and (len(content_length) > 18 or int(content_length) > max_bytes):
        raise _too_large(max_bytes)

    async def receive_limited() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > max_bytes:
            raise _too_large(max_bytes)
        return message

    return receive_limited


def _too_large(max_bytes: int) -> HTTPError:
    message = f"the request exceeds the limit of {format_bytes(max_bytes)}"
    return HTTPError(413, "too_large", message, {"Connection": "close"})

"""What every request passes: who asks, from where, how much and how long; every answer gets the headers of safety."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import time
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from logt.server.errors import HTTPError, to_http_error
from logt.server.metrics import ServerMetrics
from logt.server.settings import Settings

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # no-referrer would make browsers hide the origin of our own forms, see _origin
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
OPEN = ("/api/v1/health", "/login", "/static/")
"""Paths that need no token."""
_METHODS = {"GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH"}


class Gate:
    """The outermost layer of the service."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        metrics: ServerMetrics,
        explain: Callable[[Scope, HTTPError], Response],
    ):
        self._app, self._settings, self._metrics, self._explain = app, settings, metrics, explain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, answer = time.perf_counter(), _Answer(send)
        try:
            await self._admit(scope, receive, answer)
        except Exception as error:
            told = to_http_error(error)
            if not answer.status:
                await self._explain(scope, told)(scope, receive, answer.send)
        finally:
            method = scope["method"] if scope["method"] in _METHODS else "OTHER"
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.observe_request(method, route, answer.status or 499, time.perf_counter() - begun)

    async def _admit(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        headers, limits = Headers(scope=scope), self._settings.limits
        _check_host(headers, self._settings.hosts)
        _check_origin(scope, headers)
        entering = self._check_token(scope, headers)
        if entering is not None:
            await entering(scope, receive, answer.send)
            return
        body = _Body(receive, headers, limits.body_bytes)
        try:
            async with asyncio.timeout(limits.seconds):
                await self._app(scope, body.receive, body.guarded(answer.send))
        except TimeoutError:
            raise HTTPError(504, "timeout", f"this took longer than {limits.seconds:g} s and was given up") from None
        finally:
            if body.over and not answer.status:
                raise too_large(limits.body_bytes)

    def _check_token(self, scope: Scope, headers: Headers) -> Response | None:
        """Raise unless the request has the token; an answer of its own if it brings the token to the page."""
        token, path = self._settings.token, scope["path"]
        if token is None or path.startswith(OPEN):
            return None
        given = headers.get("authorization", "")
        if given[:7].lower() == "bearer " and same(given[7:].strip(), token):
            return None
        name, value = cookie(scope, token)
        if same(_cookies(headers).get(name, ""), value):
            return None
        if path == "/" and scope["method"] == "GET":
            brought = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
            if same(brought, token):
                return entered(scope, token)
        raise HTTPError(
            401,
            "unauthorized",
            "this service asks for its token: send it as 'Authorization: Bearer TOKEN'",
            {"WWW-Authenticate": "Bearer"},
        )


class _Answer:
    """The way to the client; knows whether an answer has begun, and gives it its headers."""

    def __init__(self, send: Send):
        self._send, self.status = send, 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            if "cache-control" not in headers:
                headers["Cache-Control"] = "no-store"
        await self._send(message)


class _Body:
    """A body that may not be longer than `most` bytes, announced or not."""

    def __init__(self, receive: Receive, headers: Headers, most: int):
        self._receive, self._most, self._bytes, self.over = receive, most, 0, False
        announced = headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > most:
            raise too_large(most)

    async def receive(self) -> Message:
        message = await self._receive()
        self._bytes += len(message.get("body", b""))
        if self._bytes > self._most:
            self.over = True
            raise too_large(self._most)
        return message

    def guarded(self, send: Send) -> Send:
        """What the application says of a body that it could not read to its end is not passed on."""

        async def guarded(message: Message) -> None:
            if not self.over:
                await send(message)

        return guarded


def too_large(most: int) -> HTTPError:
    return HTTPError(413, "too_large", f"a request may have at most {most:,} bytes", {"Connection": "close"})


def same(given: str, wanted: str) -> bool:
    """Whether two texts are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted.encode())


def cookie(scope: Scope, token: str) -> tuple[str, str]:
    """The name and value that the page keeps instead of the token; cookies are shared by the ports of a host."""
    port = (scope.get("server") or ("", 0))[1] or 0
    return f"logt_{port}", hmac.digest(token.encode(), b"logt page", "sha256").hex()


def entered(scope: Scope, token: str) -> Response:
    """On to the page, with the cookie and without the token in the address."""
    answer = RedirectResponse("/", 303)
    name, value = cookie(scope, token)
    secure = scope.get("scheme") == "https"
    answer.set_cookie(name, value, httponly=True, samesite="strict", secure=secure, max_age=30 * 86400)
    return answer


def _cookies(headers: Headers) -> dict[str, str]:
    try:
        return {name: morsel.value for name, morsel in SimpleCookie(headers.get("cookie", "")).items()}
    except CookieError:
        return {}


def _check_host(headers: Headers, known: tuple[str, ...]) -> None:
    """A page of another site can point a name of its own at this machine, but not an address: names must be known."""
    given = headers.get("host", "")
    try:
        name = (urlsplit(f"//{given}").hostname or "").rstrip(".")
    except ValueError:
        name = ""
    if name not in ("localhost", *(host.lower() for host in known)) and not _is_address(name):
        raise HTTPError(421, "unknown_host", f"this service is not called {given!r}; start it with --allow-host NAME")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _check_origin(scope: Scope, headers: Headers) -> None:
    """What changes or costs something is not done for the pages of other sites."""
    if scope["method"] in ("GET", "HEAD", "OPTIONS"):
        return
    origin = headers.get("origin")
    if origin is None:
        foreign = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
    else:
        foreign = urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    if foreign:
        raise HTTPError(403, "cross_origin", "a page of another site may not use this service")

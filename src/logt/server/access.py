"""Access checks of a request: host, origin and token."""

from __future__ import annotations

import hmac
import ipaddress
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from logt.server.errors import HTTPError

PUBLIC_PATHS = ("/api/v1/health", "/login", "/static/")
"""Prefixes of the paths that need no token."""
COOKIE_SECONDS = 30 * 86400


def check_host(headers: Headers, allowed: tuple[str, ...]) -> None:
    """Raise a 421 error unless the Host header is an IP address, localhost or an allowed name.

    This prevents DNS rebinding: another site can let its own name resolve to this machine, but not an IP address.
    """
    host = headers.get("host", "")
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        name = ""
    if name not in ("localhost", *(known.lower() for known in allowed)) and not _is_ip_address(name):
        raise HTTPError(421, "unknown_host", f"unknown host {host!r}; start the server with --allow-host NAME")


def check_origin(scope: Scope, headers: Headers) -> None:
    """Raise a 403 error for a cross-origin request that is not a plain read; this prevents request forgery."""
    if scope["method"] in ("GET", "HEAD", "OPTIONS"):
        return
    origin = headers.get("origin")
    if origin is None:
        cross_origin = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
    else:
        cross_origin = urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    if cross_origin:
        raise HTTPError(403, "cross_origin", "cross-origin requests are not allowed")


def check_token(scope: Scope, headers: Headers, token: str | None) -> Response | None:
    """Raise a 401 error unless the request has the token.

    Return the login response if the request is for the page and has the token in its URL, otherwise None.
    """
    path = scope["path"]
    if token is None or path.startswith(PUBLIC_PATHS):
        return None
    authorization = headers.get("authorization", "")
    if authorization[:7].lower() == "bearer " and tokens_equal(authorization[7:].strip(), token):
        return None
    name, value = _session_cookie(scope, token)
    if tokens_equal(_parse_cookies(headers).get(name, ""), value):
        return None
    if path == "/" and scope["method"] == "GET":
        url_token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if tokens_equal(url_token, token):
            return login_response(scope, token)
    raise HTTPError(
        401,
        "unauthorized",
        "a token is required; send it as 'Authorization: Bearer TOKEN'",
        {"WWW-Authenticate": "Bearer"},
    )


def tokens_equal(given: str, expected: str) -> bool:
    """Compare two strings in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected.encode())


def login_response(scope: Scope, token: str) -> Response:
    """Return a redirect to the page that sets the session cookie and removes the token from the URL."""
    response = RedirectResponse("/", 303)
    name, value = _session_cookie(scope, token)
    secure = scope.get("scheme") == "https"
    response.set_cookie(name, value, httponly=True, samesite="strict", secure=secure, max_age=COOKIE_SECONDS)
    return response


def _session_cookie(scope: Scope, token: str) -> tuple[str, str]:
    """Return the name and value of the cookie. All ports of a host share cookies, so the name contains the port."""
    port = (scope.get("server") or ("", 0))[1] or 0
    return f"logt_{port}", hmac.digest(token.encode(), b"logt page", "sha256").hex()


def _parse_cookies(headers: Headers) -> dict[str, str]:
    try:
        return {name: morsel.value for name, morsel in SimpleCookie(headers.get("cookie", "")).items()}
    except CookieError:
        return {}


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

"""Access checks of a request: host, origin and token."""

import hmac
import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Sequence
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from logt.errors import InvalidInputError
from logt.server.errors import HTTPError
from logt.server.settings import is_loopback, parse_ip

PUBLIC_PATHS = ("/api/v1/health", "/login", "/static/")
"""Prefixes of the paths that need no token."""
COOKIE_SECONDS = 30 * 86400
MAX_ATTEMPTS, ATTEMPT_SECONDS = 20, 60.0
"""Wrong tokens that a client address may send in so many seconds."""
MAX_ADDRESSES = 10_000
"""Addresses whose attempts are counted."""
_FORWARDED = ("forwarded", "via", "x-real-ip")  # headers of proxies, besides those that start with x-forwarded


def check_host(headers: Headers, allowed: tuple[str, ...]) -> None:
    """Raise a 421 error unless the Host header is an IP address, localhost or an allowed name.

    This prevents DNS rebinding: another site can let its own name resolve to this machine, but not an IP address.
    """
    host = headers.get("host", "")
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        name = ""
    if name not in ("localhost", *(known.lower() for known in allowed)) and parse_ip(name) is None:
        raise HTTPError(421, "unknown_host", f"unknown host {host!r}; start the server with --allow-host NAME")


def is_local(scope: Scope, headers: Headers, proxies: Sequence[str]) -> bool:
    """Return whether a request comes from this machine, to an address of this machine, and not through a proxy.

    proxies: addresses or networks of those that are trusted; they may set no header.
    """
    client, host = (scope.get("client") or ("",))[0], urlsplit(f"//{headers.get('host', '')}").hostname or ""
    forwarded = any(name in _FORWARDED or name.startswith("x-forwarded") for name in headers)
    return is_loopback(client) and is_loopback(host) and not forwarded and not _is_in(client, proxies)


def check_origin(scope: Scope, headers: Headers) -> None:
    """Raise a 403 error for a cross-origin request that is not a plain read; this prevents request forgery."""
    if scope["method"] in ("GET", "HEAD", "OPTIONS"):
        return
    origin = headers.get("origin")
    if origin is None:
        cross_origin = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
    else:
        cross_origin = _netloc(origin) != headers.get("host", "").lower()
    if cross_origin:
        raise HTTPError(403, "cross_origin", "cross-origin requests are not allowed")


class LoginAttempts:
    """Wrong tokens per client address. After MAX_ATTEMPTS in ATTEMPT_SECONDS, the next ones get a 429 error.

    The right token is always accepted: clients may share an address, and one of them must not lock out the others.
    """

    def __init__(self) -> None:
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()  # number, and time of the first

    def check(self, scope: Scope, given: str, token: str) -> bool:
        """Return whether a token is right; raise a 429 error if it is one of too many wrong ones."""
        if tokens_equal(given, token):
            return True
        address = address_group((scope.get("client") or ("",))[0])
        number, start = self._failures.get(address, (0, 0.0))
        wait = start + ATTEMPT_SECONDS - time.monotonic()
        if wait <= 0:
            number, start = 0, time.monotonic()
        elif number >= MAX_ATTEMPTS:
            message = f"too many wrong tokens; try again in {math.ceil(wait)} s"
            raise HTTPError(429, "too_many_attempts", message, {"Retry-After": str(math.ceil(wait))})
        self._failures[address] = number + 1, start
        self._failures.move_to_end(address)
        if len(self._failures) > MAX_ADDRESSES:
            self._failures.popitem(last=False)
        return False


def check_token(scope: Scope, headers: Headers, token: str | None, attempts: LoginAttempts) -> Response | None:
    """Raise a 401 error unless the request has the token.

    Return the login response if the request is for the page and has the token in its URL, otherwise None.
    """
    path = scope["path"]
    if token is None or path.startswith(PUBLIC_PATHS):
        return None
    name, value = _session_cookie(scope, token)
    if tokens_equal(cookie_parser(headers.get("cookie", "")).get(name, ""), value):
        return None
    authorization = headers.get("authorization", "")
    if authorization[:7].lower() == "bearer " and attempts.check(scope, authorization[7:].strip(), token):
        return None
    if path == "/" and scope["method"] == "GET":
        url_token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if url_token and attempts.check(scope, url_token, token):
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


def _netloc(url: str) -> str | None:
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:
        return None


def address_group(address: str) -> str:
    """Return an IPv4 address, or the /64 network of an IPv6 address: one client has as many as it wants of those."""
    parsed = parse_ip(address)
    if not isinstance(parsed, ipaddress.IPv6Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))


def _is_in(client: str, proxies: Sequence[str]) -> bool:
    address = parse_ip(client)
    return address is not None and any(address in ipaddress.ip_network(name) for name in trusted_networks(proxies))


def trusted_networks(proxies: Sequence[str]) -> list[str]:
    """Return the networks of addresses, of IPv4 also as a socket that listens on IPv6 names them."""
    networks: list[str] = []
    for proxy in proxies:
        try:
            network = ipaddress.ip_network(proxy)
        except ValueError as error:
            raise InvalidInputError(
                f"a trusted proxy must be an IP address or a network such as 10.0.0.0/24, got {proxy!r}: {error}"
            ) from None
        networks.append(str(network))
        if isinstance(network, ipaddress.IPv4Network):
            networks.append(f"::ffff:{network.network_address}/{96 + network.prefixlen}")
    return networks

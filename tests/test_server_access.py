"""Access checks by themselves; `test_server_security.py` tests them in requests."""

import re

import pytest
from server_testing import TOKEN
from starlette.datastructures import Headers

from logt.errors import InvalidInputError
from logt.server import access
from logt.server.access import (
    LoginAttempts,
    address_group,
    check_host,
    check_origin,
    check_token,
    is_local,
    login_response,
    tokens_equal,
    trusted_networks,
)
from logt.server.errors import HTTPError


def scope(method="GET", path="/", **more):
    about = {"client": ("10.0.0.1", 5000), "server": ("127.0.0.1", 8000), "query_string": b""}
    return {"method": method, "path": path, **about, **more}


def refused(status, check, *arguments):
    """The error response of a check that refuses a request."""
    with pytest.raises(HTTPError) as raised:
        check(*arguments)
    assert raised.value.status == status
    return raised.value


@pytest.fixture
def now(monkeypatch):
    """The time of the clock, in a list."""
    now = [1000.0]
    monkeypatch.setattr(access.time, "monotonic", lambda: now[0])
    return now


def guess(attempts, number=1, address="10.0.0.1"):
    for _ in range(number):
        assert not attempts.check({"client": (address, 1)}, "wrong", TOKEN)


@pytest.mark.parametrize(
    "host", ["localhost", "localhost.", "Home.Example.", "home.example:80", "10.0.0.1", "[fe80::1]"]
)
def test_a_host_is_compared_without_case_port_and_last_dot(host):
    check_host(Headers({"host": host}), ("home.EXAMPLE",))


@pytest.mark.parametrize("headers", [{}, {"host": "evil"}, {"host": "["}, {"host": "home.example.evil"}])
def test_other_hosts_are_refused_by_name(headers):
    error = refused(421, check_host, Headers(headers), ("home.example",))
    assert repr(headers.get("host", "")) in error.message


FORWARDED = (
    "forwarded",
    "via",
    "x-real-ip",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-forwarded",
)


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "127.0.0.1", "[::1]:80"])
@pytest.mark.parametrize("client", ["127.0.0.1", "::1", "127.8.8.8"])
def test_a_client_and_an_address_of_this_machine_are_local(client, host):
    assert is_local(scope(client=(client, 1)), Headers({"host": host}), ("10.0.0.7",))


@pytest.mark.parametrize(
    ("client", "headers", "proxies"),
    [
        (("10.0.0.1", 1), {"host": "localhost"}, ()),
        (None, {"host": "localhost"}, ()),
        (("127.0.0.1", 1), {}, ()),
        (("127.0.0.1", 1), {"host": "home.example"}, ()),  # rebound to this machine, or by a proxy
        (("127.0.0.1", 1), {"host": "10.0.0.1"}, ()),
        *((("127.0.0.1", 1), {"host": "localhost", name: "https"}, ()) for name in FORWARDED),
        (("127.0.0.1", 1), {"host": "localhost"}, ("10.0.0.7", "127.0.0.0/24")),
        (("::ffff:127.0.0.1", 1), {"host": "localhost"}, ("127.0.0.0/24",)),
    ],
)
def test_others_are_not_local(client, headers, proxies):
    assert not is_local(scope(client=client), Headers(headers), proxies)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_plain_reads_may_be_cross_origin(method):
    check_origin(scope(method), Headers({"origin": "http://evil.example", "sec-fetch-site": "cross-site"}))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "same-origin"},
        {"host": "home.example:80", "origin": "http://home.example:80"},
        {"host": "HOME.example", "origin": "https://home.EXAMPLE", "sec-fetch-site": "cross-site"},
    ],
)
def test_changes_of_the_same_origin_are_allowed(headers):
    check_origin(scope("POST"), Headers(headers))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "same-site"},
        {"origin": "http://home.example"},  # a port is missing
        {"origin": "null", "sec-fetch-site": "same-origin"},
        {"origin": "http://["},
    ],
)
def test_changes_of_other_origins_are_refused(method, headers):
    refused(403, check_origin, scope(method), Headers({"host": "home.example:80", **headers}))


def test_wrong_tokens_are_counted_for_a_minute_after_the_first(now):
    attempts = LoginAttempts()
    guess(attempts)
    now[0] += 40
    guess(attempts, 19)
    for seconds, wait in ((0, "20"), (19.5, "1")):
        now[0] = 1040 + seconds
        error = refused(429, attempts.check, scope(), "wrong", TOKEN)
        assert error.headers == {"Retry-After": wait}
        assert f"{wait} s" in error.message
        assert attempts.check(scope(), TOKEN, TOKEN)
        guess(attempts, address=f"10.0.1.{wait}")
    now[0] = 1060
    guess(attempts, 20)
    refused(429, attempts.check, scope(), "wrong", TOKEN)


def test_a_clock_that_has_just_started_counts_too(now):
    now[0] = 0.0
    attempts = LoginAttempts()
    guess(attempts, 20)
    refused(429, attempts.check, scope(), "wrong", TOKEN)


def test_clients_without_an_address_and_of_one_network_count_together():
    attempts = LoginAttempts()
    for number in range(20):
        guess(attempts, address=f"2001:db8::{number}")
        assert not attempts.check({"client": None}, "wrong", TOKEN)
    refused(429, attempts.check, {"client": ("2001:db8::ff", 1)}, "wrong", TOKEN)
    refused(429, attempts.check, {}, "wrong", TOKEN)


def test_attempts_of_a_bounded_number_of_addresses_are_counted(monkeypatch):
    monkeypatch.setattr(access, "MAX_ADDRESSES", 3)
    attempts = LoginAttempts()
    for number in (*range(9), 7, 9):  # the one that tries again stays
        guess(attempts, address=f"10.0.0.{number}")
    assert list(attempts._failures) == ["10.0.0.8", "10.0.0.7", "10.0.0.9"]


def test_addresses_of_one_ipv6_network_count_together():
    assert address_group("2001:db8::1") == address_group("2001:db8::ffff:0:1") == "2001:db8::/64"
    assert address_group("2001:db8:0:1::1") != address_group("2001:db8::1")
    assert address_group("::ffff:10.0.0.7") == address_group("10.0.0.7") == "10.0.0.7"
    assert address_group("fe80::1%eth0") == "fe80::/64"
    assert address_group("a path") == "a path"


def cookie(response):
    """The name and value of the cookie that a response sets, and its attributes."""
    pair, *attributes = response.headers["set-cookie"].lower().split("; ")
    return pair, set(attributes)


def test_the_cookie_is_not_the_token_and_for_this_server_and_month():
    response = login_response(scope(scheme="http"), TOKEN)
    assert (response.status_code, response.headers["location"]) == (303, "/")
    pair, attributes = cookie(response)
    assert attributes == {"httponly", "max-age=2592000", "path=/", "samesite=strict"}
    assert cookie(login_response(scope(scheme="https"), TOKEN)) == (pair, attributes | {"secure"})
    for server, name in ((("127.0.0.1", 9), "logt_9"), (None, "logt_0"), (("/run/socket", None), "logt_0")):
        assert cookie(login_response(scope(server=server), TOKEN))[0].startswith(f"{name}=")
    assert cookie(login_response(scope(), TOKEN + "!"))[0] != pair


def allowed(headers=(), *, token=TOKEN, **about):
    """What the check of the token returns for a request that it allows."""
    return check_token(scope(**about), Headers(dict(headers)), token, LoginAttempts())


def test_a_request_with_the_token_is_allowed():
    assert allowed(path="/api/v1/info", token=None) is None
    pair = cookie(login_response(scope(), TOKEN))[0]
    assert allowed({"cookie": f"a=b; {pair}"}, path="/api/v1/info") is None
    for scheme in ("Bearer ", "bearer  ", "BEARER "):
        assert allowed({"authorization": scheme + TOKEN}, path="/api/v1/info", method="POST") is None
    for path in ("/api/v1/health", "/login", "/static/app.js"):
        assert allowed(path=path) is None
    login = allowed(query_string=b"id=a&token=" + TOKEN.replace(" ", "+").encode())
    assert cookie(login)[0] == pair


@pytest.mark.parametrize(
    ("headers", "about"),
    [
        ({}, {"path": "/api/v1/info"}),
        ({}, {"path": "/static"}),
        ({"authorization": f"Bearer{TOKEN}"}, {}),
        ({"authorization": f"Basic   {TOKEN}"}, {}),
        ({"authorization": "Bearer "}, {}),
        ({"cookie": f"logt_8000={TOKEN}"}, {}),
        ({}, {"query_string": f"token={TOKEN}".encode(), "method": "POST"}),
        ({}, {"query_string": f"token={TOKEN}".encode(), "path": "/map"}),
        ({}, {"query_string": f"other={TOKEN}".encode()}),
        ({}, {"query_string": b"token=\xff"}),
    ],
)
def test_a_request_without_the_token_is_refused(headers, about):
    error = refused(401, check_token, scope(**about), Headers(headers), TOKEN, LoginAttempts())
    assert error.headers == {"WWW-Authenticate": "Bearer"}


def test_the_cookie_of_another_port_or_token_is_refused():
    for other in (login_response(scope(server=("127.0.0.1", 9)), TOKEN), login_response(scope(), TOKEN + "!")):
        refused(401, check_token, scope(), Headers({"cookie": cookie(other)[0]}), TOKEN, LoginAttempts())


def test_no_token_and_old_cookies_are_no_attempts():
    attempts = LoginAttempts()
    for headers in ({}, {"cookie": "logt_8000=old"}, {"authorization": "Basic wrong"}):
        for query in (b"", b"token=", b"tokens=wrong"):
            refused(401, check_token, scope(query_string=query), Headers(headers), TOKEN, attempts)
    assert not attempts._failures
    refused(401, check_token, scope(query_string=b"token=wrong"), Headers(), TOKEN, attempts)
    assert attempts._failures


def test_tokens_of_any_text_are_compared():
    assert tokens_equal("a", "a")
    assert tokens_equal("ü", "ü")
    for given in ("", "A", "a ", "ü", "\udcff"):
        assert not tokens_equal(given, "a")


@pytest.mark.parametrize("proxy", ["*", "proxy.example", "10.0.0.1/24", ""])
def test_a_trusted_proxy_is_an_address(proxy):
    with pytest.raises(InvalidInputError, match=re.escape(f"got {proxy!r}")):
        trusted_networks([proxy])


def test_a_proxy_with_an_ipv4_address_also_connects_by_ipv6():
    assert trusted_networks(["10.0.0.0/24", "::1"]) == ["10.0.0.0/24", "::ffff:10.0.0.0/120", "::1/128"]
    assert trusted_networks(["10.0.0.7"]) == ["10.0.0.7/32", "::ffff:10.0.0.7/128"]

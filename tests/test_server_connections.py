"""Limits of connections: raw sockets that are silent, slow or too many."""

import asyncio
import socket
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import urlsplit

import pytest
from server_testing import run_server, wait_until

from logt.server.connections import MAX_HEAD_BYTES, MAX_HEADERS

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
SLOW = b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = b"POST /body HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
BODY = b"POST /body HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
IDLE = 0.4
LARGE = 64 << 20


def at(path):
    """Return a request for a path, after which the connection is closed."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()


async def app(scope, receive, send):
    """Send "/slow" after a while, "/body" after the body of the request, and a large response for "/large"."""
    if scope["type"] != "http":
        return
    if scope["path"] == "/slow":
        await asyncio.sleep(3 * IDLE)
    while scope["path"] == "/body" and (await receive()).get("more_body"):
        pass
    body = bytes(LARGE) if scope["path"] == "/large" else b"hello"
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    for start in range(0, len(body), 1 << 20):
        await send({"type": "http.response.body", "body": body[start : start + (1 << 20)], "more_body": True})
    await send({"type": "http.response.body"})


@contextmanager
def connecting(**limits):
    """A function that opens a connection to the application."""
    with run_server(app, **limits) as url, ExitStack() as stack:

        def connect(sent=b""):
            parts = urlsplit(url)
            connection = stack.enter_context(socket.create_connection((parts.hostname, parts.port), timeout=30))
            connection.sendall(sent)
            return connection

        yield connect


@pytest.fixture(scope="module")
def connect():
    """A function that opens a connection to an application that closes silent ones after a short time."""
    with connecting(idle_seconds=IDLE) as connect:
        yield connect


def read_all(connection):
    """Return everything that is received until the server closes the connection."""
    received = b""
    try:
        while data := connection.recv(1 << 16):
            received += data
    except ConnectionResetError:
        pass
    return received


def is_closed(connection):
    """Send a byte; return whether the server has closed the connection."""
    try:
        connection.sendall(b"x")
        connection.settimeout(0.01)
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize("sent", [b"", b"GE", GET[:-2], b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Le"])
def test_a_connection_without_a_request_is_closed(connect, sent):
    assert read_all(connect(sent)) == b""


@pytest.mark.parametrize("sent", [GET[:-2] + b"X: ", BODY.replace(b"/body", b"/")], ids=["headers", "body"])
def test_bytes_that_never_end_do_not_keep_a_connection(connect, sent):
    connection = connect(sent)
    wait_until(lambda: is_closed(connection))


@pytest.mark.parametrize("rest", [b"", GET[:-2]])
def test_an_idle_connection_is_closed_after_a_response(connect, rest):
    received = read_all(connect(GET + rest))
    assert received.endswith(b"hello")
    assert received.count(b"HTTP/1.1") == 1


def test_a_slow_response_is_waited_for(connect):
    received = read_all(connect(at("/slow")))
    assert received.endswith(b"hello")


def test_a_client_that_does_not_read_is_disconnected(connect):
    connection = connect(at("/large"))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    assert len(connection.recv(100)) > 0
    wait_until(lambda: is_closed_for_writing(connection))
    assert len(read_all(connection)) < LARGE


def is_closed_for_writing(connection):
    try:
        connection.sendall(b"x")
    except OSError:
        return True
    return False


def test_too_long_headers_are_refused(connect):
    connection = connect()
    received = b""
    try:
        connection.sendall(GET[:-2] + b"X: " + b"x" * (4 * MAX_HEAD_BYTES))
        received = read_all(connection)
    except OSError:
        pass
    assert b"200" not in received


@pytest.mark.parametrize(
    "sent",
    [SLOW + GET[:-2] + b"X: ", SLOW + b"\r\n", CHUNKED + b"0\r\nX: ", CHUNKED + b"5;x="],
    ids=["next headers", "empty lines", "trailers", "chunk extension"],
)
def test_bytes_that_are_no_body_are_limited_while_a_request_is_worked_on(connect, sent):
    connection = connect(sent)
    with suppress(OSError):
        for _ in range(1000):
            connection.sendall((b"\r\n" if sent.endswith(b"\r\n") else b"xx") * 1000)
    assert b"hello" not in read_all(connection)


@pytest.mark.parametrize("sent", [GET[:-2], CHUNKED + b"0\r\n"], ids=["headers", "trailers"])
def test_the_number_of_headers_is_limited(connect, sent):
    headers = b"".join(b"a%d:\r\n" % n for n in range(MAX_HEADERS))
    assert read_all(connect(sent + headers + b"\r\n")).startswith(b"HTTP/1.1 400 ")
    few = headers[: headers.index(b"a%d:" % (MAX_HEADERS - 10))]
    assert b"hello" in read_all(connect(sent + few + b"Connection: close\r\n\r\n"))


@pytest.mark.parametrize("rest", [GET * 100, b"\0" * 9, GET + b"\0"], ids=["requests", "garbage", "both"])
def test_at_most_one_request_waits_behind_a_response_and_nothing_after_it_is_read(connect, rest):
    received = read_all(connect(SLOW + rest))
    assert received.count(b"HTTP/1.1 200") == received.count(b"hello") == (2 if rest.startswith(GET) else 1)
    assert received.endswith(b"hello")


def test_requests_that_follow_each_other_may_have_any_number_of_bytes_together(connect):
    connection = connect()
    for _ in range(20):
        connection.sendall(GET[:-2] + b"X: " + b"x" * (MAX_HEAD_BYTES // 10) + b"\r\n\r\n")
        received = b""
        while not received.endswith(b"hello"):
            received += connection.recv(1 << 16)


@pytest.mark.parametrize("limit", ["connections", "connections_per_address"])
def test_silent_and_slow_connections_do_not_lock_others_out(limit):
    """Those that have waited longest for their clients are closed; a request that is worked on goes on."""
    with connecting(**{limit: 5}) as connect:
        working, silent = connect(at("/slow")), []
        for sent in (b"", b"GET", GET, BODY, at("/large")) * 2:
            silent.append(connect(sent))
            assert b"hello" in read_all(connect(at("/")))
        assert b"hello" in read_all(working)
        wait_until(lambda: all(map(is_closed_for_writing, silent[:5])))


def test_connections_beyond_the_limit_are_refused_while_the_server_works_on_all_others():
    with connecting(connections=3) as connect:
        working = [connect(at("/slow")) for _ in range(3)]
        wait_until(lambda: b"503" in read_all(connect(at("/"))))
        assert all(b"hello" in read_all(connection) for connection in working)
        assert b"hello" in read_all(connect(at("/")))

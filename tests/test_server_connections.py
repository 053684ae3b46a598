"""Limits of connections: raw sockets that are silent, slow or too many."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
from server_testing import run_server, wait_until

from logt.server.access import address_group
from logt.server.connections import MAX_HEAD_BYTES

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
IDLE = 0.4
LARGE = 64 << 20


async def app(scope, receive, send):
    """Send "/slow" after a while, and a large response for "/large"."""
    if scope["type"] != "http":
        return
    if scope["path"] == "/slow":
        await asyncio.sleep(3 * IDLE)
    body = bytes(LARGE) if scope["path"] == "/large" else b"hello"
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    for start in range(0, len(body), 1 << 20):
        await send({"type": "http.response.body", "body": body[start : start + (1 << 20)], "more_body": True})
    await send({"type": "http.response.body"})


@pytest.fixture
def connect():
    """A function that opens a connection to the application."""
    with run_server(app, idle_seconds=IDLE, connections_per_address=5) as url, ExitStack() as stack:

        def connect(sent=b""):
            parts = urlsplit(url)
            connection = stack.enter_context(socket.create_connection((parts.hostname, parts.port), timeout=30))
            connection.sendall(sent)
            return connection

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


def test_headers_that_arrive_byte_by_byte_have_the_same_time(connect):
    connection = connect(GET[:-2] + b"X: ")
    wait_until(lambda: is_closed(connection))


@pytest.mark.parametrize("rest", [b"", GET[:-2]])
def test_an_idle_connection_is_closed_after_a_response(connect, rest):
    received = read_all(connect(GET + rest))
    assert received.endswith(b"hello")
    assert received.count(b"HTTP/1.1") == 1


def test_a_body_that_never_ends_does_not_keep_a_connection(connect):
    connection = connect(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n")
    wait_until(lambda: is_closed(connection))


def test_a_slow_response_is_waited_for(connect):
    received = read_all(connect(GET.replace(b" / ", b" /slow ")))
    assert received.endswith(b"hello")


def test_a_client_that_does_not_read_is_disconnected(connect):
    connection = connect(GET.replace(b" / ", b" /large "))
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


def test_an_address_has_a_limited_number_of_connections(connect):
    connections = [connect(b"GET") for _ in range(5)]
    assert b"503" in read_all(connect(GET))
    connections[0].close()
    wait_until(lambda: b"hello" in read_all(connect(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))))


def test_addresses_of_one_ipv6_network_count_together():
    assert address_group("2001:db8::1") == address_group("2001:db8::ffff:0:1") == "2001:db8::/64"
    assert address_group("2001:db8:0:1::1") != address_group("2001:db8::1")
    assert address_group("::ffff:10.0.0.7") == address_group("10.0.0.7") == "10.0.0.7"
    assert address_group("fe80::1%eth0") == "fe80::/64"
    assert address_group("a path") == "a path"

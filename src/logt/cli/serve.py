"""`logt serve`: words over the service."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from logt.cli.console import err
from logt.errors import InvalidInputError, MissingExtraError
from logt.server.collection import Collection
from logt.server.photo_collection import opened
from logt.server.settings import SHORTEST_TOKEN, Limits, Settings

if TYPE_CHECKING:
    import uvicorn


def serve(
    index: Annotated[Path, typer.Argument(help="A folder made by logt images index, or an index of vectors.")],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all of them.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    token: Annotated[
        str | None, typer.Option(envvar="LOGT_TOKEN", help="Ask callers for this text; better given by LOGT_TOKEN.")
    ] = None,
    read_only: Annotated[bool, typer.Option(help="Refuse to add and remove.")] = False,
    allow_upload: Annotated[bool, typer.Option(help="Let callers add photos, into FOLDER/uploads.")] = False,
    allow_host: Annotated[list[str] | None, typer.Option(help="A name that the service is called by.")] = None,
    upload_mb: Annotated[int, typer.Option(min=1, help="Largest request.")] = 32,
    seconds: Annotated[float, typer.Option(min=0.1, help="Longest time for one request.")] = 30.0,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Serve an index over HTTP: a page to search by photos, and a JSON API."""
    if read_only and allow_upload:
        raise InvalidInputError("--read-only and --allow-upload exclude each other")
    limits = Limits(body_bytes=upload_mb << 20, seconds=seconds)
    settings = Settings(token or None, read_only, _names(host, allow_host or []), limits)
    collection = opened(index, uploads=allow_upload)
    if settings.token is None and not _is_loopback(host):
        _say(
            f"warning: everyone who can reach {host} can search, see and change this index; "
            f"set LOGT_TOKEN to a text of {SHORTEST_TOKEN} or more characters, or pass --read-only",
            style="yellow",
        )
    server, listening = _server(collection, settings, host, port)
    url = _address(host, listening.getsockname()[1])
    _say(f"{len(collection.index):,} {'photos' if collection.pictures else 'vectors'} of {collection.title} at {url}")
    _say("Ctrl-C stops")
    if show:
        _open_when_ready(server, url + (f"?token={quote(settings.token, safe='')}" if settings.token else ""))
    server.run(sockets=[listening])
    _say("stopped")


def _server(collection: Collection, settings: Settings, host: str, port: int) -> tuple[uvicorn.Server, socket.socket]:
    try:
        import uvicorn

        from logt.server.app import create
    except ImportError as error:
        raise MissingExtraError(f'serving needs more packages: pip install "logt-search[serve]" ({error})') from error

    class Server(uvicorn.Server):
        """Ctrl-C is the way to stop, and no error."""

        def run(self, sockets: Any = None) -> None:
            with suppress(KeyboardInterrupt):
                super().run(sockets)

    config = uvicorn.Config(
        create(collection, settings),
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=15,
        limit_concurrency=512,
        timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=64 << 10,
    )
    return Server(config), _listening(host, port)


def _listening(host: str, port: int) -> socket.socket:
    """A socket on the address; a taken port is named before anything starts."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise InvalidInputError(f"--host {host!r} is no address of this machine: {error.strerror}") from error
    listening = socket.socket(family, kind, proto)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
        listening.listen(1024)  # who calls from now on is answered once the service is up
    except OSError as error:
        listening.close()
        raise InvalidInputError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from error
    return listening


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _names(host: str, allowed: list[str]) -> tuple[str, ...]:
    """Names that the service answers to: those allowed, and its own where others can reach it."""
    own = [] if _is_loopback(host) else [host, socket.gethostname(), f"{socket.gethostname()}.local"]
    return tuple(dict.fromkeys([*allowed, *own]))


def _address(host: str, port: int) -> str:
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"


def _open_when_ready(server: Any, url: str) -> None:
    def open_page() -> None:
        while not server.started and not server.should_exit:
            time.sleep(0.05)
        if server.started:
            webbrowser.open(url)

    threading.Thread(target=open_page, daemon=True).start()


def _say(text: str, **style: Any) -> None:
    err.print(text, highlight=False, markup=False, soft_wrap=True, **style)

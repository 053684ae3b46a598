"""The command `logt serve`."""

from __future__ import annotations

import importlib
import os
import socket
import sys
import threading
import webbrowser
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from logt._internal.extras import install_hint, needs_extra
from logt.cli.console import Device, MovedModel, Ray, count_of, err, refuse_unused, say
from logt.engine.rerank import ScoreFunction
from logt.errors import InvalidInputError, MissingExtraError
from logt.photos.index_folder import photo_index
from logt.server.settings import MIN_TOKEN_LENGTH, Limits, Settings, is_loopback
from logt.storage.locations import is_url
from logt.storage.manifest import MANIFEST

if TYPE_CHECKING:
    import uvicorn

    from logt.server.collection import BaseCollection

_NEEDS = "logt serve needs more packages"


def serve(
    index: Annotated[
        str,
        typer.Argument(
            metavar="INDEX", help="A folder of photos with an index, or an index of vectors; with --ray, also a URL."
        ),
    ],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 listens on all interfaces.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 selects a free port.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="LOGT_TOKEN",
            help="Require this token. The environment variable is safer: others can see a command line.",
        ),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Do not allow changes to the index.")] = False,
    allow_upload: Annotated[
        bool, typer.Option("--allow-upload", help="Allow clients to add photos, to FOLDER/uploads.")
    ] = False,
    allow_download: Annotated[
        bool,
        typer.Option(
            "--allow-download", help="Allow clients to download the original files of photos, with their metadata."
        ),
    ] = False,
    allow_changes: Annotated[
        bool,
        typer.Option(
            "--allow-changes",
            help="Allow moving photos to FOLDER/.trash, and downloading a model to search by text, from this "
            "machine or with the token.",
        ),
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Update the index of photos now, and whenever their folder changes.")
    ] = False,
    model: MovedModel = None,
    rerank: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help='Re-rank the results of requests with "rerank": "function" by a function (query, ids, scores) -> '
            "scores. The module is imported from the current folder or from an installed package.",
        ),
    ] = None,
    allow_host: Annotated[list[str] | None, typer.Option(help="Accept this host name; can be repeated.")] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="Address or network of a reverse proxy: use its headers X-Forwarded-For and X-Forwarded-Proto, and "
            "take no client behind it for a local one; can be repeated.",
        ),
    ] = None,
    upload_mb: Annotated[int, typer.Option(min=1, help="Maximum size of a request in MB.")] = 32,
    seconds: Annotated[float, typer.Option(min=0.1, help="Time limit of a request in seconds.")] = 30.0,
    ray: Ray = None,
    replicas: Annotated[
        int | None, typer.Option(min=1, help="With --ray: number of actors per shard. Default: 2.")
    ] = None,
    shards: Annotated[int | None, typer.Option(min=1, help="With --ray: number of shards.")] = None,
    device: Device = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Serve an index over HTTP. Includes a web page for photos and a JSON API."""
    changing = {"--allow-upload": allow_upload, "--allow-changes": allow_changes, "--watch": watch}
    is_photos = photo_index(index) is not None
    for option, is_given in {**changing, "--allow-download": allow_download, "--model": model}.items():
        if is_given and read_only and option in changing:
            raise InvalidInputError(f"--read-only and {option} cannot be combined")
        if is_given and not is_photos:
            raise InvalidInputError(f"{index} is not an index of photos; {option} needs one")
    if is_photos and (ray is not None or device is not None):
        raise InvalidInputError(f"{index} is an index of photos; --ray and --device serve indexes of vectors")
    if ray is None:
        refuse_unused({"--replicas": replicas, "--shards": shards}, "is for indexes in shards; pass --ray")
    function = None if rerank is None else _import_function(rerank)
    limits, proxies = Limits(body_bytes=upload_mb << 20, seconds=seconds), tuple(trusted_proxy or ())
    if proxies:
        limits = replace(limits, connections_per_address=limits.connections)  # nearly all are of the proxy
    hosts = _host_names(host, allow_host or [])
    settings = Settings(
        token or None, read_only, allow_download, allow_changes, watch, hosts=hosts, proxies=proxies, limits=limits
    )
    if not is_url(index):
        _check_indexed(Path(index))
    elif ray is None:
        raise InvalidInputError(f"{index}: an index by URL is served with --ray; or copy it to a folder")
    with needs_extra("serve", _NEEDS):
        from logt.server.device_collection import DeviceCollection
        from logt.server.photo_collection import open_collection
    if device is not None:
        if ray is not None or not read_only:
            raise InvalidInputError("--device serves an index of vectors for reading: pass --read-only, and no --ray")
        collection: BaseCollection = DeviceCollection(Path(index), device)
    elif ray is None:
        collection = open_collection(
            Path(index), allow_uploads=allow_upload, allow_changes=allow_changes, model=model
        )
    else:
        from logt.distributed.searching import open as open_shards
        from logt.server.shard_collection import ShardCollection

        collection = ShardCollection(open_shards(index, replicas or 2, shards=shards, address=ray or None), index)
        settings = replace(settings, read_only=True)
    collection.function = function
    if watch and find_spec("watchfiles") is None:
        raise MissingExtraError(f"--watch needs watchfiles: {install_hint('serve')}")
    if settings.token is None and not is_loopback(host):
        actions = "search and view" if settings.read_only else "search, view and change"
        say(
            f"warning: no token is set; everyone who can connect to {host} can {actions} this index. "
            f"Set LOGT_TOKEN to a string of at least {MIN_TOKEN_LENGTH} characters",
            err,
            "yellow",
        )
    server, listener = _create_server(collection, settings, host, port)
    url = _page_url(host, listener.getsockname()[1])
    items = count_of(len(collection.index), "photo" if collection.has_photos else "vector")
    say(f"Serving {items} from {collection.title} at {url}", err)
    if collection.folders not in ([], [Path(index).resolve()]):
        say(f"The photos are in {', '.join(repr(str(folder)) for folder in collection.folders)}", err)
    say("Press Ctrl+C to stop", err)
    if open_browser:
        threading.Thread(target=_open_page, args=(url,), name="logt-open", daemon=True).start()
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listener])
    say("Stopped", err)


def _import_function(name: str) -> ScoreFunction:
    """Return the function that MODULE:FUNCTION names."""
    module, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInputError(f"--rerank {name!r} must be MODULE:FUNCTION: {error}") from error
    if not callable(function):
        raise InvalidInputError(f"--rerank {name!r} is no function but {type(function).__name__}")
    return cast(ScoreFunction, function)


def _check_indexed(path: Path) -> None:
    """Raise if a folder holds no index; it may be one of photos that were not indexed yet."""
    if path.is_dir() and photo_index(path) is None and not (path / MANIFEST).exists():
        raise InvalidInputError(
            f"{path} holds no index. If it is a folder of photos, index it first: logt images index {path}"
        )


def _create_server(
    collection: BaseCollection, settings: Settings, host: str, port: int
) -> tuple[uvicorn.Server, socket.socket]:
    with needs_extra("serve", _NEEDS):
        import uvicorn

        from logt.server.app import create_app
        from logt.server.connections import server_config

    return uvicorn.Server(server_config(create_app(collection, settings), settings.limits)), _listen(host, port)


def _listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, opened here so that a port in use gives a clear error before the server starts."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise InvalidInputError(f"--host {host!r} is not an address of this machine: {error.strerror}") from error
    listener = socket.socket(family, kind, proto)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(1024)  # connections wait in this queue until the server has started
    except OSError as error:
        listener.close()
        raise InvalidInputError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from error
    return listener


def _host_names(host: str, allowed: list[str]) -> tuple[str, ...]:
    """Return the host names to accept: `allowed`, and those of this machine unless `host` is a loopback address."""
    own = [] if is_loopback(host) else [host, socket.gethostname(), f"{socket.gethostname()}.local"]
    return tuple(dict.fromkeys([*allowed, *own]))


def _page_url(host: str, port: int) -> str:
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{address}]' if ':' in address else address}:{port}/"


def _open_page(url: str) -> None:
    """Open the page, without the token: other users can see the command line of a browser."""
    if not webbrowser.open(url):
        say(f"no browser can be started; open {url}", err)

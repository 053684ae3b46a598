"""HTTP client of `logt serve`. Needs urllib3, which the extra "serve" installs."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from pathlib import Path
from typing import Any, BinaryIO, Concatenate, Literal, ParamSpec, Self, TypedDict, TypeVar, Unpack
from urllib.parse import quote, urlsplit

import numpy as np

from logt._internal.extras import needs_extra
from logt._internal.validation import check_int
from logt.errors import BusyError, InvalidInputError, LockedError, ReadOnlyError
from logt.server.collection import Hit, Id, Rerank

with needs_extra("serve", "logt.server.client needs urllib3"):
    import urllib3
    from urllib3.exceptions import HTTPError, ProtocolError

__all__ = [
    "AsyncClient",
    "Client",
    "Hit",
    "Id",
    "NotFoundError",
    "SearchOptions",
    "ServiceBusyError",
    "ServiceError",
    "UnauthorizedError",
]

P = ParamSpec("P")
T = TypeVar("T")

PREFIX = "/api/v1"
_CONNECTIONS = 128  # that are kept open at most, as many as a server allows one address
PhotoFile = str | os.PathLike[str] | bytes | BinaryIO
"""A path, the bytes of a photo, or an open file."""


class ServiceError(OSError):
    """An error response, or no response.

    status: the HTTP status, 0 without a response. code: a word for the error. message: a sentence.
    """

    status: int
    code: str

    def __init__(self, status: int, code: str, message: str):
        super().__init__(message)
        self.status, self.code = status, code


class UnauthorizedError(ServiceError):
    """The token is missing or wrong."""


class NotFoundError(ServiceError, KeyError):
    """The id is not in the index."""

    def __str__(self) -> str:
        return OSError.__str__(self)


class ServiceBusyError(ServiceError, BusyError):
    """The server is busy or the request timed out; try again later."""


_STATUS_ERRORS: dict[int, type[ServiceError]] = {
    401: UnauthorizedError,
    404: NotFoundError,
    503: ServiceBusyError,
    504: ServiceBusyError,
}
_LIBRARY_ERRORS: dict[str, type[Exception]] = {
    "invalid_input": InvalidInputError,
    "bad_box": InvalidInputError,
    "locked": LockedError,
    "read_only": ReadOnlyError,
}


class SearchOptions(TypedDict, total=False):
    """What searches by vector and by id take by name.

    effort: from 0 (fastest) to 1 (everything is scanned); by default that of the index.
    recall: the fraction of the results of a full scan to find, instead of an effort.
    like: the kind of the queries, by the name that the index was tuned with.
    rerank: "diffusion" re-ranks the results on the neighbor graph of the index, if it has one; "function" by the
    function that the server was started with.
    wanted: only these ids can be found.
    unwanted: these ids are not among the results.
    by: "item" returns the k best items, `item` of a hit, each with its best vector.
    """

    effort: float | None
    recall: float | None
    like: str | None
    rerank: Rerank
    wanted: Iterable[Id] | None
    unwanted: Iterable[Id] | None
    by: Literal["vector", "item"]


class Client:
    """Client of a server. It keeps connections open for later requests, and is safe to share between threads.

    url: the address of the server, such as "http://127.0.0.1:8000".
    token: of the server; by default the environment variable LOGT_TOKEN, if it is set.
    timeout: seconds to wait for a response.
    """

    def __init__(self, url: str = "http://127.0.0.1:8000", *, token: str | None = None, timeout: float = 60.0):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInputError(f"url must be a URL such as http://127.0.0.1:8000, got {url!r}")
        self._address, self._timeout = f"{parts.scheme}://{parts.netloc}", timeout
        self._base = f"{self._address}{quote(parts.path.rstrip('/'))}{PREFIX}"
        token = token or os.environ.get("LOGT_TOKEN")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._pool = urllib3.PoolManager(headers=headers, timeout=timeout, retries=False, maxsize=_CONNECTIONS)

    def close(self) -> None:
        """Close all connections; a later request opens new ones."""
        self._pool.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def search(self, vectors: Any, k: int = 10, **options: Unpack[SearchOptions]) -> list[list[Hit]]:
        """Return the k nearest vectors of each query: one list of hits per row.

        vectors: one query per row, (nq, dim), or a single query, (dim,).
        k: the number of results per query.
        options: see `SearchOptions`.
        """
        rows = np.atleast_2d(np.asarray(vectors, np.float32)).tolist()
        body = {"vectors": rows, "k": k, **_to_fields(options)}
        return _hits(self._send("POST", "/search", json=body))

    def search_id(self, id: Id, k: int = 10, **options: Unpack[SearchOptions]) -> list[Hit]:
        """Return the k nearest vectors of a vector in the index, without the vector itself.

        id: of the vector.
        k, options: as in `search`.
        """
        body = {"ids": [_to_json_id(id)], "k": k, **_to_fields(options)}
        return _hits(self._send("POST", "/search/ids", json=body))[0]

    def search_photo(
        self,
        photo: PhotoFile,
        k: int = 10,
        *,
        box: tuple[float, float, float, float] | None = None,
        rerank: Rerank = None,
    ) -> list[Hit]:
        """Return the k most similar photos to a photo.

        photo: path, bytes or open file of the photo.
        k: the number of results.
        box: search with this region of the upright photo: left, top, right, bottom. Four numbers from 0 to 1 are
        fractions of its width and height; other numbers are whole pixels inside it.
        rerank: as in `search`.
        """
        fields = {"k": str(k), "box": ",".join(map(str, box or ())), "rerank": rerank or ""}
        return _hits(self._send("POST", "/search/photo", fields={**fields, "photo": _form_file(photo)}))[0]

    def search_text(self, text: str, k: int = 10) -> list[Hit]:
        """Return the k photos that match a text best; the photos need a model with a text encoder.

        text: a few words, such as "a red bus".
        k: the number of results.
        """
        return _hits(self._send("POST", "/search/text", json={"text": text, "k": k}))[0]

    def add(
        self, vectors: Any, ids: Any = None, *, replace: bool = False, idempotency_key: str | None = None
    ) -> list[Id]:
        """Add vectors and return their ids. The index is saved when this returns.

        vectors: one vector per row, (n, dim), or a single vector, (dim,).
        ids: one id per vector, all integers or all strings; by default the next free integers.
        replace: replace vectors that have the same ids.
        idempotency_key: any string; the same call with the same key within an hour adds nothing twice.
        """
        rows = np.atleast_2d(np.asarray(vectors, np.float32)).tolist()
        body = {"vectors": rows, "ids": None if ids is None else list(map(_to_json_id, ids)), "replace": replace}
        headers = {"Idempotency-Key": idempotency_key or secrets.token_hex(16)}  # `_send` may send it twice
        return list(self._change("/vectors", json=body, headers=headers)["ids"])

    def add_photo(self, photo: PhotoFile) -> str:
        """Upload a photo and return its id; the server must have been started with --allow-upload.

        photo: path, bytes or open file of the photo.
        """
        response = self._change("/photos", fields={"photo": _form_file(photo)})
        return str(response["ids"][0] if "ids" in response else response["id"])

    def remove(self, ids: Any) -> int:
        """Remove vectors by id and return how many were removed; unknown ids are ignored."""
        id_list = list(map(_to_json_id, [ids] if np.ndim(ids) == 0 else ids))
        return int(self._change("/vectors/remove", json={"ids": id_list})["removed"])

    def compact(self) -> None:
        """Free the space of removed vectors, and merge small segments."""
        self._change("/compact")

    def photo(self, id: str, size: str = "large") -> bytes:
        """Return a photo in the index as JPEG.

        id: of the photo.
        size: "thumb" or "large".
        """
        return bytes(self._send("GET", "/photo", fields={"id": id, "size": size}))

    def info(self) -> dict[str, Any]:
        """Return the contents and size of the index, and the limits of the server."""
        return dict(self._send("GET", "/info"))

    def health(self) -> dict[str, Any]:
        """Return {"status": "ok", …}, or "stale" if the server cannot read the newest saved index."""
        return dict(self._send("GET", "/health"))

    def _change(self, path: str, **request: Any) -> Any:
        """Return the response to a change; wait for one that the server still works on."""
        response = self._send("POST", path, **request)
        end = time.monotonic() + self._timeout
        while response.get("state") in ("waiting", "running"):
            if time.monotonic() > end:
                message = f"the change {response['id']} is still running; GET {PREFIX}/changes/ID returns its state"
                raise ServiceBusyError(202, "running", message)
            time.sleep(0.2)
            response = self._send("GET", f"/changes/{response['id']}")
        if response.get("error"):
            raise _to_exception(500, json.dumps(response).encode())
        return response

    def _send(self, method: str, path: str, *, headers: dict[str, str] | None = None, **request: Any) -> Any:
        """Return the parsed JSON, or the bytes, of a successful response; raise the error of any other.

        request: json or fields, as in `urllib3.PoolManager.request`.
        """
        headers = {**self._pool.headers, **(headers or {})}
        try:
            try:
                response = self._pool.request(method, self._base + path, headers=headers, **request)
            except ProtocolError:  # the server has just closed a connection that was idle: use a new one
                response = self._pool.request(method, self._base + path, headers=headers, **request)
        except HTTPError as error:
            message = f"no response from {self._address}: {error}; is logt serve running?"
            raise ServiceError(0, "unreachable", message) from error
        kind = response.headers.get("Content-Type", "")
        if not 200 <= response.status < 300 or not kind.startswith(("application/json", "image/")):
            raise _to_exception(response.status, response.data)
        try:
            return response.data if kind.startswith("image/") else response.json()
        except ValueError:
            raise _to_exception(response.status, response.data) from None


def _in_thread(method: Callable[Concatenate[Client, P], T]) -> Callable[Concatenate[AsyncClient, P], Awaitable[T]]:
    """Return a method of `Client` as a coroutine function of `AsyncClient`."""

    @wraps(method)
    async def call(self: AsyncClient, /, *args: P.args, **settings: P.kwargs) -> T:
        request = partial(method, self._client, *args, **settings)
        return await asyncio.get_running_loop().run_in_executor(self._threads, request)

    return call


class AsyncClient:
    """The methods of `Client` as coroutines, for asyncio: same parameters, results and errors.

    Requests run in threads that share the connections of one `Client`. A request whose task is cancelled still ends
    in its thread. Use it as `async with AsyncClient() as client`, or call `close`.

    url, token, timeout: as of `Client`.
    concurrency: requests at the same time, at most; others wait.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        token: str | None = None,
        timeout: float = 60.0,
        concurrency: int = 32,
    ):
        self._client = Client(url, token=token, timeout=timeout)
        self._threads = ThreadPoolExecutor(check_int("concurrency", concurrency), thread_name_prefix="logt-client")

    search = _in_thread(Client.search)
    search_id = _in_thread(Client.search_id)
    search_photo = _in_thread(Client.search_photo)
    search_text = _in_thread(Client.search_text)
    add = _in_thread(Client.add)
    add_photo = _in_thread(Client.add_photo)
    remove = _in_thread(Client.remove)
    compact = _in_thread(Client.compact)
    photo = _in_thread(Client.photo)
    info = _in_thread(Client.info)
    health = _in_thread(Client.health)

    async def close(self) -> None:
        """Wait for the requests that run, and close all connections; later calls raise RuntimeError."""
        await asyncio.to_thread(self._threads.shutdown)
        self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


def _to_exception(status: int, content: bytes) -> Exception:
    """Return the exception for an error response: one of the library's where there is one, else a ServiceError."""
    try:
        error = json.loads(content)["error"]
        code, message = str(error["code"]), str(error["message"])
    except (ValueError, KeyError, TypeError):
        code, message = "unknown", f"status {status}; the response is not from logt serve"
    if code in _LIBRARY_ERRORS:
        return _LIBRARY_ERRORS[code](message)
    return _STATUS_ERRORS.get(status, ServiceError)(status, code, message)


def _to_fields(options: Any) -> dict[str, Any]:
    lists = {name: options.pop(name, None) for name in ("wanted", "unwanted")}
    ids = {name: list(map(_to_json_id, some)) for name, some in lists.items() if some is not None}
    return {**options, "filter": ids}


def _hits(response: Any) -> list[list[Hit]]:
    return [[Hit(**hit) for hit in hits] for hits in response["results"]]


def _to_json_id(id: Any) -> Id:
    return id if isinstance(id, str) else int(id)


def _form_file(photo: PhotoFile) -> tuple[str, bytes]:
    if isinstance(photo, str | os.PathLike):
        return "photo", Path(photo).read_bytes()
    return "photo", photo if isinstance(photo, bytes) else photo.read()

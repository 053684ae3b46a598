"""A client of the service; it needs nothing but the standard library and NumPy."""

from __future__ import annotations

import http.client
import json
import os
import secrets
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, urlencode, urlsplit

import numpy as np

from logt.errors import InvalidInputError, LockedError, ReadOnlyError
from logt.server.hits import Hit, Id

__all__ = ["BusyError", "Client", "Hit", "Id", "NotFoundError", "ServiceError", "UnauthorizedError"]

PREFIX = "/api/v1"


class ServiceError(OSError):
    """An answer that is no success, or none at all: `status` (0 if none), `code` and a message."""

    def __init__(self, status: int, code: str, message: str):
        super().__init__(message)
        self.status, self.code = status, code


class UnauthorizedError(ServiceError):
    """The token is missing or wrong."""


class NotFoundError(ServiceError, KeyError):
    """An id that is not in the index."""

    __str__ = OSError.__str__


class BusyError(ServiceError):
    """The service has too much to do, or took too long; try again."""


_ERRORS: dict[int, type[ServiceError]] = {
    401: UnauthorizedError,
    404: NotFoundError,
    503: BusyError,
    504: BusyError,
}
_OF_THE_LIBRARY: dict[str, type[Exception]] = {
    "invalid_input": InvalidInputError,
    "bad_box": InvalidInputError,
    "locked": LockedError,
    "read_only": ReadOnlyError,
}


class Client:
    """The index behind an address such as "http://127.0.0.1:8000"; may be used by several threads.

    Without `token`, the environment variable LOGT_TOKEN is used if it is set.
    """

    def __init__(self, url: str = "http://127.0.0.1:8000", *, token: str | None = None, timeout: float = 60.0):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInputError(f"url must be such as http://127.0.0.1:8000, got {url!r}")
        self._parts, self._timeout = parts, timeout
        self._token = token or os.environ.get("LOGT_TOKEN")

    def search(self, vectors: Any, k: int = 10, *, effort: float | None = None) -> list[list[Hit]]:
        """The k best for each row of `vectors`, or for one vector of shape (dim,)."""
        rows = np.atleast_2d(np.asarray(vectors, np.float32)).tolist()
        return _hits(self._send("POST", "/search", {"vectors": rows, "k": k, "effort": effort}))

    def search_id(self, id: Id, k: int = 10, *, effort: float | None = None) -> list[Hit]:
        """The k best for a vector of the index, without itself."""
        return _hits(self._send("POST", "/search/ids", {"ids": [_plain(id)], "k": k, "effort": effort}))[0]

    def search_image(
        self,
        photo: str | os.PathLike[str] | bytes | BinaryIO,
        k: int = 10,
        *,
        box: tuple[float, float, float, float] | None = None,
    ) -> list[Hit]:
        """The k best for a picture, or for a region of it: left, top, right, bottom as parts from 0 to 1."""
        body, kind = multipart({"k": str(k), "box": ",".join(map(str, box or ()))}, "photo", _bytes(photo))
        return _hits(self._send("POST", "/search/image", body, kind))[0]

    def add(self, vectors: Any, ids: Any = None, *, replace: bool = False) -> list[Id]:
        """Add vectors, saved when this returns; their ids."""
        rows = np.atleast_2d(np.asarray(vectors, np.float32)).tolist()
        given = None if ids is None else list(map(_plain, ids))
        answer: list[Id] = self._send("POST", "/vectors", {"vectors": rows, "ids": given, "replace": replace})["ids"]
        return answer

    def add_picture(self, photo: str | os.PathLike[str] | bytes | BinaryIO) -> str:
        """Add a photo to a service that takes some; its id."""
        return str(self._send("POST", "/pictures", *multipart({}, "photo", _bytes(photo)))["id"])

    def remove(self, ids: Any) -> int:
        """Remove vectors by id; how many there were."""
        given = list(map(_plain, [ids] if isinstance(ids, int | str) else ids))
        return int(self._send("POST", "/vectors/remove", {"ids": given})["removed"])

    def picture(self, id: str, size: str = "large") -> bytes:
        """A picture of the index as JPEG, of size "thumb" or "large"."""
        image: bytes = self._send("GET", f"/picture?{urlencode({'id': id, 'size': size})}")
        return image

    def info(self) -> dict[str, Any]:
        """What the index holds, and the limits of the service."""
        answer: dict[str, Any] = self._send("GET", "/info")
        return answer

    def health(self) -> dict[str, Any]:
        """{"status": "ok"} while the service answers and the newest state can be read."""
        answer: dict[str, Any] = self._send("GET", "/health")
        return answer

    def _send(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        headers = {"Content-Type": kind} if data is not None else {}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        connection = self._connection()
        try:
            connection.request(method, quote(self._parts.path.rstrip("/")) + PREFIX + path, data, headers)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            where = f"{self._parts.scheme}://{self._parts.netloc}"
            raise ServiceError(
                0, "unreachable", f"no answer from {where}: {error}; is logt serve running?"
            ) from error
        finally:
            connection.close()
        if answer.status >= 400:
            raise _error(answer.status, content)
        return json.loads(content) if "json" in answer.headers.get("Content-Type", "") else content

    def _connection(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        return kind(self._parts.hostname or "", self._parts.port, timeout=self._timeout)


def _error(status: int, content: bytes) -> Exception:
    """The error that the service told, as the library would have raised it where it can."""
    try:
        told = json.loads(content)["error"]
        code, message = str(told["code"]), str(told["message"])
    except (ValueError, KeyError, TypeError):
        code, message = "unknown", f"status {status}, and not an answer of logt serve"
    if code in _OF_THE_LIBRARY:
        return _OF_THE_LIBRARY[code](message)
    return _ERRORS.get(status, ServiceError)(status, code, message)


def _hits(answer: Any) -> list[list[Hit]]:
    return [[Hit(hit["id"], hit["score"]) for hit in hits] for hits in answer["results"]]


def _plain(id: Any) -> Id:
    return id if isinstance(id, str) else int(id)


def _bytes(photo: str | os.PathLike[str] | bytes | BinaryIO) -> bytes:
    if isinstance(photo, bytes):
        return photo
    return Path(photo).read_bytes() if isinstance(photo, str | os.PathLike) else photo.read()


def multipart(fields: dict[str, str], file: str, content: bytes) -> tuple[bytes, str]:
    """A multipart form with one file, and its content type."""
    border = secrets.token_hex(16)
    parts = [
        f'--{border}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    ]
    head = f'--{border}\r\nContent-Disposition: form-data; name="{file}"; filename="photo"\r\n'
    head += "Content-Type: application/octet-stream\r\n\r\n"
    body = "".join(parts).encode() + head.encode() + content + f"\r\n--{border}--\r\n".encode()
    return body, f"multipart/form-data; boundary={border}"

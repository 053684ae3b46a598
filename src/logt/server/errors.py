"""Errors of the HTTP API: a status and the body {"error": {"code", "message"}}."""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from logt.descriptors.boxes import BoxError
from logt.descriptors.image_io import ImageError
from logt.errors import (
    BusyError,
    CorruptIndexError,
    InvalidInputError,
    LockedError,
    MissingExtraError,
    MissingShardsError,
    ReadOnlyError,
)


class HTTPError(Exception):
    """An error response: HTTP status, machine-readable code, message, extra headers."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None):
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, dict(headers or {})

    @property
    def body(self) -> dict[str, dict[str, str]]:
        return {"error": {"code": self.code, "message": self.message}}


_LIBRARY_ERRORS: tuple[tuple[type[Exception], int, str], ...] = (
    (BoxError, 422, "bad_box"),
    (InvalidInputError, 422, "invalid_input"),
    (LockedError, 409, "locked"),
    (ReadOnlyError, 403, "read_only"),
    (MissingExtraError, 501, "missing_extra"),
    (BusyError, 503, "busy"),
    (MissingShardsError, 503, "missing_shards"),
    (CorruptIndexError, 500, "corrupt_index"),
)
LIBRARY_ERROR_TYPES = tuple(error_type for error_type, _, _ in _LIBRARY_ERRORS)
_log = logging.getLogger("logt.server")


def to_http_error(error: Exception) -> HTTPError:
    """Return the HTTP error for any exception; an unexpected one is logged and its details are not sent."""
    if isinstance(error, HTTPError):
        return error
    if isinstance(error, ImageError):
        return HTTPError(415, "not_a_photo", error.reason)  # its message may contain a path
    for error_type, status, code in _LIBRARY_ERRORS:
        if isinstance(error, error_type):
            return HTTPError(status, code, str(error))
    _log.error("unexpected error", exc_info=error)
    return HTTPError(500, "internal", "internal server error; see the server log")


def without_paths(error: HTTPError, private: Iterable[Path]) -> HTTPError:
    """Return an error whose message names these folders, and what is in them, without the folders above."""
    message = error.message
    for path in sorted(private, key=lambda path: len(str(path)), reverse=True):
        message = message.replace(str(path), path.name or "/")
    return HTTPError(error.status, error.code, message, error.headers)


def photo_file_missing() -> HTTPError:
    """Return the 410 error for a photo whose file was deleted after it was indexed."""
    return HTTPError(410, "gone", "the file of this photo no longer exists; run logt images index again")

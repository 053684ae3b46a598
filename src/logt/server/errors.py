"""What goes wrong -> a status and {"error": {"code", "message"}}."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from logt.errors import CorruptIndexError, InvalidInputError, LockedError, MissingExtraError, ReadOnlyError


class RefusedError(Exception):
    """A request that is answered by an error: a status, a code for programs, a message for people."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None):
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, dict(headers or {})

    @property
    def body(self) -> dict[str, dict[str, str]]:
        return {"error": {"code": self.code, "message": self.message}}


_OF_THE_LIBRARY: tuple[tuple[type[Exception], int, str], ...] = (
    (InvalidInputError, 422, "invalid_input"),
    (LockedError, 409, "locked"),
    (ReadOnlyError, 403, "read_only"),
    (MissingExtraError, 501, "missing_extra"),
    (CorruptIndexError, 500, "corrupt_index"),
)


FORESEEN = tuple(kind for kind, _, _ in _OF_THE_LIBRARY)
_log = logging.getLogger("logt.server")


def refusal(error: Exception) -> RefusedError:
    """The refusal that stands for an error; one that nobody foresaw tells nothing of the inside."""
    if isinstance(error, RefusedError):
        return error
    for kind, status, code in _OF_THE_LIBRARY:
        if isinstance(error, kind):
            return RefusedError(status, code, str(error))
    _log.error("unforeseen", exc_info=error)
    return RefusedError(500, "internal", "something went wrong inside; the log of the service says what")


def not_found(id: object) -> RefusedError:
    return RefusedError(404, "not_found", f"id {id!r} is not in the index")

"""JSON bodies: the number of their values is bounded first, and they are parsed outside of the event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from logt.server.errors import HTTPError
from logt.server.service import Service

Body = TypeVar("Body", bound=BaseModel)
_OTHER_VALUES = 64
_QUOTES_PER_ROW = 8


def json_body(model: type[Body], rows: Literal["queries", "vectors"]) -> Callable[[Request], Awaitable[Body]]:
    """Return a dependency that reads the body of a request as a model.

    model: the model. Only the first error of its lists is reported.
    rows: the limit that bounds the number of vectors or ids in the body.
    """

    async def read(request: Request) -> Body:
        service: Service = request.app.state.service
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise HTTPError(422, "invalid_input", "the body must be JSON, with Content-Type: application/json")
        content = await request.body()
        most = getattr(service.settings.limits, rows)
        return await service.parse(parse_json, model, content, most, service.collection.index.dim)

    return read


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the part of an operation's OpenAPI description for a body that `json_body` reads."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": model.model_json_schema()}}}}


def parse_json(model: type[Body], content: bytes, rows: int, dim: int) -> Body:
    """Return the body as a model; raise a 422 error that names the first invalid value.

    A body with more values than `rows` vectors of dimension `dim` and their ids have is refused without parsing it.
    """
    quotes = content.count(b'"')
    if quotes > _QUOTES_PER_ROW * rows + _OTHER_VALUES or _count_values(content) > rows * (dim + 3) + _OTHER_VALUES:
        message = f"the body has too many values; at most {rows:,} vectors or ids are allowed in one request"
        raise HTTPError(422, "invalid_input", message)
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(map(str, first["loc"])) or "body"
        raise HTTPError(422, "invalid_input", f"{field}: {first['msg']}") from None


def _count_values(content: bytes) -> int:
    """Return at least the number of values in a JSON text: its commas, brackets and braces outside of strings."""
    count, start = 1, 0
    while start < len(content):
        quote = content.find(b'"', start)
        end = len(content) if quote < 0 else quote
        count += sum(content.count(mark, start, end) for mark in (b",", b"[", b"{"))
        start = _end_of_string(content, quote) if quote >= 0 else end
    return count


def _end_of_string(content: bytes, quote: int) -> int:
    """Return the position after the string that starts at a quotation mark."""
    end = content.find(b'"', quote + 1)
    while end >= 0 and _backslashes(content, quote + 1, end) % 2:
        end = content.find(b'"', end + 1)
    return len(content) if end < 0 else end + 1


def _backslashes(content: bytes, start: int, end: int) -> int:
    """Return how many backslashes there are right before a position, and after `start`."""
    size = 64
    while True:
        tail = content[max(start, end - size) : end]
        count = len(tail) - len(tail.rstrip(b"\\"))
        if count < size:
            return count
        size *= 8

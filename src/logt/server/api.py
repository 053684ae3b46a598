"""The JSON API, under /api/v1: search by vector and id, changes, state of the server."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Depends, Header, Path, Request
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, ValidationError
from starlette.responses import JSONResponse, PlainTextResponse, Response

import logt
from logt.errors import InvalidInputError
from logt.server import schemas
from logt.server.changes import Ticket
from logt.server.collection import Hit
from logt.server.errors import HTTPError
from logt.server.service import Service
from logt.server.settings import format_bytes

PREFIX = "/api/v1"
_MARKS_PER_ROW = 32


def get_service(request: Request) -> Service:
    """Return the service of the app."""
    service: Service = request.app.state.service
    return service


ServiceDependency = Annotated[Service, Depends(get_service)]


class ASCIIJSONResponse(JSONResponse):
    """JSON in ASCII: string ids may contain lone surrogates, which UTF-8 cannot encode."""

    def render(self, content: Any) -> bytes:
        return _to_json(content)


def _to_json(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()


router = APIRouter(
    prefix=PREFIX,
    responses={
        "4XX": {"model": schemas.ErrorResponse, "description": "The request is wrong, or not allowed."},
        "5XX": {"model": schemas.ErrorResponse, "description": "The request failed; 503 and 504: try again later."},
    },
)
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
Body = TypeVar("Body", bound=BaseModel)


async def read_body(
    request: Request, model: type[Body], rows: Literal["queries", "vectors"] = "queries"
) -> tuple[Service, Body]:
    """Return the service, and the body of a request as a model, read outside of the event loop.

    rows: the limit that bounds the number of vectors or ids in the body.
    """
    service = get_service(request)
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise HTTPError(422, "invalid_input", "the body must be JSON, with Content-Type: application/json")
    content = await request.body()
    limits, dim = service.settings.limits, service.collection.index.dim
    body = await service.parse_pool.run(parse_json, model, content, getattr(limits, rows), dim, limits.vectors)
    return service, body


def parse_json(model: type[Body], content: bytes, rows: int, dim: int, ids: int = 0) -> Body:
    """Return the body as a model; raise an error that names the first invalid value.

    A body with more commas and brackets than `rows` vectors of dimension `dim` with their ids have, and two filters
    of `ids` each, is refused without parsing it: millions of empty lists take gigabytes.
    """
    if sum(content.count(mark) for mark in (b",", b"[", b"{")) > (rows + 1) * (dim + _MARKS_PER_ROW) + 2 * ids:
        message = f"the body has too many values; at most {rows:,} vectors or ids are allowed in one request"
        raise HTTPError(422, "invalid_input", message)
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        raise RequestValidationError(
            error.errors(include_url=False, include_input=False, include_context=False)
        ) from None


def json_schema(model: type[BaseModel] | None) -> dict[str, Any] | None:
    """Return the part of an operation's OpenAPI description for a body that `read_body` reads."""
    if model is None:
        return None
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": model.model_json_schema()}}}}


def search_route(path: str, body: type[BaseModel] | None = None) -> Decorator:
    """Return the decorator of a search. body: of a JSON request."""
    return router.post(path, response_model=schemas.SearchResponse, openapi_extra=json_schema(body))


def change_route(path: str, response: type[BaseModel], body: type[BaseModel] | None = None) -> Decorator:
    """Return the decorator of a change. response: if it ended in time. body: of a JSON request."""
    description = "The time limit was reached while the change was being applied. Its state is at /api/v1/changes/ID."
    accepted = {"model": schemas.ChangeResponse, "description": description}
    return router.post(path, response_model=response, responses={202: accepted}, openapi_extra=json_schema(body))


async def search_response(service: Service, results: list[list[Hit]], milliseconds: float) -> Response:
    """Return search results as JSON, without pydantic: validating thousands of hits costs more than the search."""
    content = await service.parse_pool.run(render_hits, results, milliseconds, service.settings.limits.response_bytes)
    return Response(content, media_type="application/json")


def render_hits(results: list[list[Hit]], milliseconds: float, most: int) -> bytes:
    """Return search results as JSON of at most `most` bytes; query by query, so that other threads run meanwhile."""
    lists: list[bytes] = []
    size = 0
    for hits in results:
        fields = (hit._asdict().items() for hit in hits)
        lists.append(_to_json([{name: value for name, value in hit if value is not None} for hit in fields]))
        size += len(lists[-1])
        if size > most:
            raise InvalidInputError(
                f"the response exceeds the limit of {format_bytes(most)}; ask for fewer queries, or a smaller k"
            )
    return b'{"results":[%s],"milliseconds":%s}' % (b",".join(lists), _to_json(milliseconds))


@search_route("/search", schemas.VectorSearchRequest)
async def search_by_vector(request: Request) -> Any:
    """Return the nearest vectors of each query vector."""
    service, body = await read_body(request, schemas.VectorSearchRequest)
    results, milliseconds = await service.search_vectors(body.vectors, body.k, body.options)
    return await search_response(service, results, milliseconds)


@search_route("/search/ids", schemas.IdSearchRequest)
async def search_by_id(request: Request) -> Any:
    """Return the nearest vectors of vectors in the index. A vector is not among its own results."""
    service, body = await read_body(request, schemas.IdSearchRequest)
    results, milliseconds = await service.search_ids(body.ids, body.k, body.options)
    return await search_response(service, results, milliseconds)


@change_route("/vectors", schemas.AddResponse, schemas.AddRequest)
async def add_vectors(
    request: Request,
    idempotency_key: Annotated[
        str | None,
        Header(
            min_length=1,
            max_length=255,
            description="Any string. A request that is sent again with the same key within an hour is applied once.",
        ),
    ] = None,
) -> Any:
    """Add vectors, all or none. The index is saved before the response is sent."""
    service, body = await read_body(request, schemas.AddRequest, "vectors")
    ids = await service.add(body.vectors, body.ids, body.replace, idempotency_key)
    return {"ids": ids, "vectors": len(service.collection.index)}


@change_route("/vectors/remove", schemas.RemoveResponse, schemas.RemoveRequest)
async def remove_vectors(request: Request) -> Any:
    """Remove vectors by id, or uploaded photos with their files. Unknown ids are ignored."""
    service, body = await read_body(request, schemas.RemoveRequest, "vectors")
    removed = await service.remove(body.ids)
    return {"removed": removed, "vectors": len(service.collection.index)}


@change_route("/compact", schemas.CompactResponse)
async def compact(service: ServiceDependency) -> Any:
    """Free the space of removed vectors, and merge small segments."""
    await service.compact()
    return {"vectors": len(service.collection.index), "bytes": service.collection.report()["bytes"]}


@router.get("/changes/{id}", response_model=schemas.ChangeResponse)
async def get_change(
    service: ServiceDependency, id: Annotated[str, Path(max_length=64, description="Id of the change.")]
) -> Any:
    """Return the state of a change whose response had status 202. It is remembered for an hour."""
    return change_response(service, service.changes.find(id))


def change_response(service: Service, ticket: Ticket, status: int = 200) -> Response:
    """Return the state of a change; status 202 if it is the response to the change itself."""
    headers = {"Location": f"{PREFIX}/changes/{ticket.id}"} if status == 202 else None
    return ASCIIJSONResponse(schemas.describe_change(ticket, service.collection.private_paths), status, headers)


@router.get("/info", response_model=schemas.InfoResponse)
async def info(service: ServiceDependency) -> Any:
    """Return the contents and size of the index, and the limits of the server."""
    return await service.search_pool.run(_describe_index, service)


def _describe_index(service: Service) -> dict[str, Any]:
    collection, settings = service.collection, service.settings
    return {
        "version": logt.__version__,
        "generation": collection.generation,
        "vectors": len(collection.index),
        "dim": collection.index.dim,
        "metric": collection.index.metric,
        "photos": collection.has_photos,
        "rerank": collection.has_graph,
        "function": collection.function is not None,
        "text": collection.has_text,
        "read_only": settings.read_only,
        "uploads": collection.allows_uploads,
        "originals": settings.originals,
        "indexing": collection.indexing and collection.indexing._asdict(),
        "limits": asdict(settings.limits),
        "report": dict(collection.report()),
    }


@router.get("/health", response_model=schemas.HealthResponse)
async def health(service: ServiceDependency) -> Any:
    """Return whether the server works. No token is required."""
    if not service.collection.is_stale:
        return {"status": "ok", "trouble": None}
    return {"status": "stale", "trouble": "the newest saved index cannot be read; see the server log"}


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(service: ServiceDependency) -> Response:
    """Return request counts, latencies and sizes in the Prometheus text format."""
    content = await service.search_pool.run(service.metrics.render)
    return Response(content, headers={"Content-Type": CONTENT_TYPE_LATEST})

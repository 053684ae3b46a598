"""The JSON API, under /api/v1."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, File, Form, Header, Path, Query, Request, UploadFile
from pydantic import BaseModel
from starlette.responses import JSONResponse, PlainTextResponse, Response

import logt
from logt.descriptors.boxes import check_box
from logt.errors import InvalidInputError
from logt.server import schemas
from logt.server.changes import ChangeRunningError
from logt.server.metrics import CONTENT_TYPE
from logt.server.request_body import json_body, json_schema
from logt.server.service import Service, TimedHits
from logt.server.settings import format_bytes

PREFIX = "/api/v1"
_ERRORS = {
    400: "The body cannot be parsed.",
    401: "The token is missing or wrong.",
    403: "Not allowed: the server is read-only, or the request is cross-origin.",
    404: "The id is not in the index.",
    409: "Not possible with this index, or another process is writing to it.",
    410: "The file of the photo no longer exists.",
    413: "The request is too large.",
    415: "The file is not a readable image.",
    422: "A value is invalid; the message names it.",
    429: "Too many wrong tokens were sent from this address; try again later.",
    503: "Too many requests are waiting; try again later.",
    504: "The request exceeded the time limit. Nothing was changed.",
}


def get_service(request: Request) -> Service:
    """Return the service of the app."""
    service: Service = request.app.state.service
    return service


ServiceDependency = Annotated[Service, Depends(get_service)]


def _error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {
        status: {"model": schemas.ErrorResponse, "description": _ERRORS[status]}
        for status in (400, 401, *statuses, 429)
    }


class ASCIIJSONResponse(JSONResponse):
    """JSON in ASCII: string ids may contain lone surrogates, which UTF-8 cannot encode."""

    def render(self, content: Any) -> bytes:
        return _to_json(content)


def _to_json(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()


router = APIRouter(prefix=PREFIX)
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _search_route(path: str, *statuses: int, body: type[BaseModel] | None = None) -> Decorator:
    """Return the decorator of a search. statuses: of errors that not every search has. body: of a JSON request."""
    return router.post(
        path,
        response_model=schemas.SearchResponse,
        responses=_error_responses(409, 413, 422, 503, 504, *statuses),
        openapi_extra=None if body is None else json_schema(body),
        tags=["search"],
    )


def _change_route(
    path: str, response: type[BaseModel], *statuses: int, body: type[BaseModel] | None = None
) -> Decorator:
    """Return the decorator of a change. response: if it ended in time. statuses, body: as in `_search_route`."""
    description = "The time limit was reached while the change was being applied. Its state is at /api/v1/changes/ID."
    accepted = {"model": schemas.ChangeResponse, "description": description}
    return router.post(
        path,
        response_model=response,
        responses={202: accepted, **_error_responses(403, 409, 413, 422, 503, 504, *statuses)},
        openapi_extra=None if body is None else json_schema(body),
        tags=["change"],
    )


async def _search_response(service: Service, timed: TimedHits) -> Response:
    """Return search results as JSON, without pydantic: validating thousands of hits costs more than the search."""
    content = await service.parse(render_hits, timed, service.settings.limits.response_bytes)
    return Response(content, media_type="application/json")


def render_hits(timed: TimedHits, most: int) -> bytes:
    """Return search results as JSON of at most `most` bytes; query by query, so that other threads run meanwhile."""
    lists: list[bytes] = []
    size = 0
    for hits in timed.results:
        lists.append(_to_json([hit._asdict() for hit in hits]))
        size += len(lists[-1])
        if size > most:
            raise InvalidInputError(
                f"the response exceeds the limit of {format_bytes(most)}; ask for fewer queries, or a smaller k"
            )
    return b'{"results":[%s],"milliseconds":%s}' % (b",".join(lists), _to_json(timed.milliseconds))


@_search_route("/search", body=schemas.VectorSearchRequest)
async def search_by_vector(
    body: Annotated[schemas.VectorSearchRequest, Depends(json_body(schemas.VectorSearchRequest, "queries"))],
    service: ServiceDependency,
) -> Any:
    """Return the nearest vectors of each query vector."""
    return await _search_response(
        service, await service.search_vectors(body.vectors, body.k, body.effort, body.rerank)
    )


@_search_route("/search/ids", 404, body=schemas.IdSearchRequest)
async def search_by_id(
    body: Annotated[schemas.IdSearchRequest, Depends(json_body(schemas.IdSearchRequest, "queries"))],
    service: ServiceDependency,
) -> Any:
    """Return the nearest vectors of vectors in the index. A vector is not among its own results."""
    return await _search_response(service, await service.search_ids(body.ids, body.k, body.effort, body.rerank))


@_search_route("/search/image", 415)
async def search_by_image(
    service: ServiceDependency,
    photo: Annotated[UploadFile, File(description="The image to search with. It is not stored.")],
    box: Annotated[
        str,
        Form(description="Region to search with: left,top,right,bottom as fractions or in pixels. Empty: all of it."),
    ] = "",
    k: Annotated[int, Form(ge=1, le=schemas.MAX_K, description="Number of results.")] = 10,
    rerank: Annotated[
        Literal["", "diffusion"], Form(description="diffusion: re-rank the results on the neighbor graph.")
    ] = "",
) -> Any:
    """Return the photos that are most similar to an uploaded image, or to a region of it."""
    return await _search_response(
        service, await service.search_image(photo.file, schemas.parse_box_field(box), k, rerank or None)
    )


@_search_route("/search/region", 404, 410, 415, body=schemas.RegionSearchRequest)
async def search_by_region(
    body: Annotated[schemas.RegionSearchRequest, Depends(json_body(schemas.RegionSearchRequest, "queries"))],
    service: ServiceDependency,
) -> Any:
    """Return the photos that are most similar to a region of a photo in the index, without that photo."""
    return await _search_response(
        service, await service.search_region(body.id, check_box(body.box), body.k, body.rerank)
    )


@_search_route("/search/text", body=schemas.TextSearchRequest)
async def search_by_text(
    body: Annotated[schemas.TextSearchRequest, Depends(json_body(schemas.TextSearchRequest, "queries"))],
    service: ServiceDependency,
) -> Any:
    """Return the photos that match a text best. They can be searched so if text of /api/v1/info is true."""
    return await _search_response(service, await service.search_text(body.text, body.k))


@router.get(
    "/picture",
    response_class=Response,
    responses={
        200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}, "description": "JPEG."},
        304: {"description": "Not modified."},
        **_error_responses(404, 409, 410, 415, 422, 503, 504),
    },
    tags=["search"],
)
async def get_photo(
    request: Request,
    service: ServiceDependency,
    id: Annotated[str, Query(max_length=4096, description="Id of a photo in the index.")],
    size: Annotated[
        Literal["thumb", "large"], Query(description="At most 480 (thumb) or 2048 (large) pixels on the longer side.")
    ] = "thumb",
) -> Response:
    """Return a photo in the index as JPEG, upright and without metadata."""
    thumbnail = service.find_thumbnail(id, size)
    etag = f'"{thumbnail.key}"'
    headers = {"ETag": etag, "Cache-Control": "private, max-age=60"}
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(await service.render(thumbnail), media_type="image/jpeg", headers=headers)


@_change_route("/vectors", schemas.AddResponse, body=schemas.AddRequest)
async def add_vectors(
    body: Annotated[schemas.AddRequest, Depends(json_body(schemas.AddRequest, "vectors"))],
    service: ServiceDependency,
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
    ids = await service.add(body.vectors, body.ids, body.replace, idempotency_key)
    return {"ids": ids, "vectors": len(service.collection.index)}


@_change_route("/vectors/remove", schemas.RemoveResponse, body=schemas.RemoveRequest)
async def remove_vectors(
    body: Annotated[schemas.RemoveRequest, Depends(json_body(schemas.RemoveRequest, "vectors"))],
    service: ServiceDependency,
) -> Any:
    """Remove vectors by id, or uploaded photos with their files. Unknown ids are ignored."""
    removed = await service.remove(body.ids)
    return {"removed": removed, "vectors": len(service.collection.index)}


@_change_route("/pictures", schemas.UploadResponse, 415)
async def upload_photo(
    service: ServiceDependency,
    photo: Annotated[UploadFile, File(description="The photo. It is stored in the upload folder.")],
) -> Any:
    """Add a photo to the index. Requires that the server was started with --allow-upload."""
    photo_id = await service.upload(photo.file)
    return {"id": photo_id, "vectors": len(service.collection.index)}


@router.get(
    "/changes/{id}", response_model=schemas.ChangeResponse, responses=_error_responses(404, 422), tags=["change"]
)
async def get_change(
    service: ServiceDependency, id: Annotated[str, Path(max_length=64, description="Id of the change.")]
) -> Any:
    """Return the state of a change whose response had status 202. It is remembered for an hour."""
    return ASCIIJSONResponse(schemas.describe_change(service.changes.find(id)))


def accepted(running: ChangeRunningError) -> Response:
    """Return the response to a change that is still being applied."""
    location = f"{PREFIX}/changes/{running.ticket.id}"
    return ASCIIJSONResponse(schemas.describe_change(running.ticket), 202, {"Location": location})


@router.get("/info", response_model=schemas.InfoResponse, responses=_error_responses(), tags=["server"])
async def info(service: ServiceDependency) -> Any:
    """Return the contents and size of the index, and the limits of the server."""
    collection, settings = service.collection, service.settings
    return {
        "version": logt.__version__,
        "generation": collection.generation,
        "vectors": len(collection.index),
        "dim": collection.index.dim,
        "metric": collection.index.metric,
        "pictures": collection.has_photos,
        "rerank": collection.has_graph,
        "text": collection.has_text,
        "read_only": settings.read_only,
        "uploads": collection.allows_uploads,
        "originals": settings.originals,
        "indexing": collection.indexing and collection.indexing._asdict(),
        "limits": asdict(settings.limits),
        "report": dict(collection.report()),
    }


@router.get("/health", response_model=schemas.HealthResponse, tags=["server"])
async def health(service: ServiceDependency) -> Any:
    """Return whether the server works. No token is required."""
    error = service.collection.refresh_error
    return {"status": "ok" if error is None else "stale", "trouble": error}


@router.get("/metrics", response_class=PlainTextResponse, responses=_error_responses(), tags=["server"])
async def metrics(service: ServiceDependency) -> Response:
    """Return request counts, latencies and sizes in the Prometheus text format."""
    return Response(service.metrics.render(), headers={"Content-Type": CONTENT_TYPE})

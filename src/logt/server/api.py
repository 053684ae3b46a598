"""The JSON API, under /api/v1."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, File, Form, Query, Request, UploadFile
from starlette.responses import JSONResponse, PlainTextResponse, Response

import logt
from logt.server import schemas
from logt.server.metrics import CONTENT_TYPE
from logt.server.schemas import region
from logt.server.service import Found, Service

PREFIX = "/api/v1"


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Here = Annotated[Service, Depends(service_of)]


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    about = {
        400: "The body cannot be read.",
        401: "The token is missing or wrong.",
        403: "Not allowed: read-only, or a page of another site.",
        404: "No such id.",
        409: "Not with this index, or another process is writing to it.",
        410: "The file of the picture is gone.",
        413: "The request is too large.",
        415: "Not a picture that can be read.",
        422: "A value that cannot be used; the message names it.",
        503: "Too many requests of this kind wait; try again.",
        504: "It took too long.",
    }
    return {status: {"model": schemas.Error, "description": about[status]} for status in (400, 401, *statuses)}


router = APIRouter(prefix=PREFIX)


class PlainJson(JSONResponse):
    """JSON in ASCII: ids may hold characters that UTF-8 does not have."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()


def _shown(found: Found) -> Response:
    """Results are ours and of their form; checking each of thousands again would cost more than the search."""
    rows = [[{"id": hit.id, "score": hit.score} for hit in hits] for hits in found.results]
    return PlainJson({"results": rows, "milliseconds": found.milliseconds})


@router.post("/search", response_model=schemas.Results, responses=_errors(413, 422, 503, 504), tags=["search"])
async def search_by_vector(asked: schemas.VectorSearch, here: Here) -> Any:
    """The nearest vectors of each row."""
    return _shown(await here.by_vectors(asked.vectors, asked.k, asked.effort))


@router.post(
    "/search/ids", response_model=schemas.Results, responses=_errors(404, 413, 422, 503, 504), tags=["search"]
)
async def search_by_id(asked: schemas.IdSearch, here: Here) -> Any:
    """The nearest vectors of vectors of the index, without themselves."""
    return _shown(await here.by_ids(asked.ids, asked.k, asked.effort))


@router.post(
    "/search/image", response_model=schemas.Results, responses=_errors(409, 413, 415, 422, 503, 504), tags=["search"]
)
async def search_by_image(
    here: Here,
    photo: Annotated[UploadFile, File(description="A picture; it is not kept.")],
    box: Annotated[str, Form(description="Region: left,top,right,bottom from 0 to 1; empty: all of it.")] = "",
    k: Annotated[int, Form(ge=1)] = 10,
) -> Any:
    """The pictures most similar to an uploaded one, or to a region of it."""
    return _shown(await here.by_photo(photo.file, region(box), k))


@router.post(
    "/search/region",
    response_model=schemas.Results,
    responses=_errors(404, 409, 410, 413, 415, 422, 503, 504),
    tags=["search"],
)
async def search_by_region(asked: schemas.RegionSearch, here: Here) -> Any:
    """The pictures most similar to a region of a picture of the index, without that picture."""
    return _shown(await here.by_region(asked.id, schemas.checked_box(asked.box), asked.k))


@router.get(
    "/picture",
    response_class=Response,
    responses={
        200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}, "description": "JPEG."},
        304: {"description": "As it was."},
        **_errors(404, 409, 410, 415, 422, 503, 504),
    },
    tags=["search"],
)
async def picture(
    request: Request,
    here: Here,
    id: Annotated[str, Query(max_length=4096, description="A picture of the index.")],
    size: Annotated[Literal["thumb", "large"], Query(description="480 or 2048 pixels on the longer side.")] = "thumb",
) -> Response:
    """A picture of the index, upright, as a JPEG without metadata."""
    version, image = await here.picture(id, size)
    headers = {"ETag": f'"{version}"', "Cache-Control": "private, max-age=60"}
    if f'"{version}"' in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(await image(), media_type="image/jpeg", headers=headers)


@router.post("/vectors", response_model=schemas.AddedIds, responses=_errors(403, 409, 413, 422, 503), tags=["change"])
async def add_vectors(asked: schemas.Added, here: Here) -> Any:
    """Add vectors; all or nothing, saved when this answers. Searches go on meanwhile."""
    ids = await here.add(asked.vectors, asked.ids, asked.replace)
    return {"ids": ids, "vectors": len(here.collection.index)}


@router.post(
    "/vectors/remove",
    response_model=schemas.RemovedCount,
    responses=_errors(403, 409, 413, 422, 503),
    tags=["change"],
)
async def remove_vectors(asked: schemas.Removed, here: Here) -> Any:
    """Remove vectors by id, or uploaded photos with their files; ids that are not there are passed over."""
    removed = await here.remove(asked.ids)
    return {"removed": removed, "vectors": len(here.collection.index)}


@router.post(
    "/pictures", response_model=schemas.AddedPicture, responses=_errors(403, 409, 413, 415, 503, 504), tags=["change"]
)
async def add_picture(
    here: Here, photo: Annotated[UploadFile, File(description="A picture; it is kept in the folder for uploads.")]
) -> Any:
    """Add a photo, if the service was started with --allow-upload; indexed when this answers."""
    id = await here.upload(photo.file)  # noqa: A001
    return {"id": id, "vectors": len(here.collection.index)}


@router.get("/info", response_model=schemas.Info, responses=_errors(), tags=["service"])
async def info(here: Here) -> Any:
    """What the index holds and costs, and the limits of this service."""
    index, settings = here.collection.index, here.settings
    return {
        "version": logt.__version__,
        "generation": index.generation,
        "vectors": len(index),
        "dim": index.dim,
        "metric": index.metric,
        "pictures": here.collection.pictures,
        "read_only": settings.read_only,
        "uploads": here.collection.uploads,
        "limits": asdict(settings.limits),
        "report": dict(here.collection.report()),
    }


@router.get("/health", response_model=schemas.Health, tags=["service"])
async def health(here: Here) -> Any:
    """Whether the service answers; it needs no token."""
    trouble = here.collection.trouble
    return {"status": "ok" if trouble is None else "stale", "trouble": trouble}


@router.get("/metrics", response_class=PlainTextResponse, responses=_errors(), tags=["service"])
async def metrics(here: Here) -> Response:
    """Return request counts, latencies and sizes in the Prometheus text format."""
    return Response(here.metrics.render(), headers={"Content-Type": CONTENT_TYPE})

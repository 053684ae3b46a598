"""The application: one service behind its gate, as the API and as the page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Scope

import logt
from logt.server import api
from logt.server import web as page
from logt.server.api import PlainJson
from logt.server.collection import BaseCollection
from logt.server.errors import LIBRARY_ERROR_TYPES, HTTPError, to_http_error
from logt.server.middleware import ServerMiddleware
from logt.server.service import Service
from logt.server.settings import Settings


def create(collection: BaseCollection, settings: Settings | None = None) -> ASGIApp:
    """The application over a collection, which it closes when it ends."""
    service = Service(collection, settings or Settings())

    @asynccontextmanager
    async def living(_: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(service.watch())
        yield
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        service.close()

    app = FastAPI(
        title="logt",
        version=logt.__version__,
        summary="Search in one index, by vector, by id and by image.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        default_response_class=PlainJson,
        lifespan=living,
    )
    app.state.service = service
    app.include_router(api.router)
    app.include_router(page.router)

    def explain(scope: Scope, error: HTTPError) -> Response:
        if scope["path"].startswith((api.PREFIX, "/openapi.json")):
            return PlainJson(error.body, error.status, error.headers)
        return page.explained(service, scope, error)

    async def refused(request: Request, error: Exception) -> Response:
        return explain(request.scope, _named(error))

    for kind in (HTTPError, RequestValidationError, HTTPException, *LIBRARY_ERROR_TYPES, Exception):
        app.add_exception_handler(kind, refused)
    return ServerMiddleware(app, service.settings, service.metrics, explain)


def _named(error: Exception) -> HTTPError:
    """Errors of the framework in the form of ours."""
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body") or "the body"
        return HTTPError(422, "invalid_input", f"{where}: {first['msg']}")
    if isinstance(error, HTTPException):
        codes = {400: "bad_request", 404: "not_found", 405: "method_not_allowed"}
        code = codes.get(error.status_code, "refused")
        return HTTPError(error.status_code, code, str(error.detail), error.headers)
    return to_http_error(error)

"""The ASGI application: the API and the web page of one service, inside the middleware."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Scope

import logt
from logt.server import api, photo_api, rendering, web
from logt.server.changes import ChangeRunningError
from logt.server.collection import BaseCollection
from logt.server.errors import LIBRARY_ERROR_TYPES, HTTPError, to_http_error
from logt.server.middleware import ServerMiddleware
from logt.server.photo_search import PhotoSearch
from logt.server.service import Service
from logt.server.settings import Settings


def create_app(collection: BaseCollection, settings: Settings | None = None) -> ASGIApp:
    """Return the application for a collection; it closes the collection on shutdown."""
    service = Service(collection, settings or Settings())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        refresher = asyncio.create_task(service.refresh_periodically())
        try:
            yield
        finally:
            refresher.cancel()
            await asyncio.gather(refresher, return_exceptions=True)
            service.close()

    app = FastAPI(
        title="logt",
        version=logt.__version__,
        summary="Search one index by vector, by id or by photo.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        default_response_class=api.ASCIIJSONResponse,
        lifespan=lifespan,
    )
    app.state.service = service
    app.state.searches = PhotoSearch(service)
    app.include_router(photo_api.router)
    app.include_router(web.router)

    def render_error(scope: Scope, error: HTTPError) -> Response:
        if scope["path"].startswith((api.PREFIX, "/openapi.json")):
            return api.ASCIIJSONResponse(error.body, error.status, error.headers)
        return rendering.render_error(service, error)

    async def handle_exception(request: Request, exception: Exception) -> Response:
        return render_error(request.scope, _convert_exception(exception))

    async def accept_change(request: Request, running: Exception) -> Response:
        assert isinstance(running, ChangeRunningError)
        return api.accepted(running)

    app.add_exception_handler(ChangeRunningError, accept_change)
    for exception_type in (HTTPError, RequestValidationError, HTTPException, *LIBRARY_ERROR_TYPES, Exception):
        app.add_exception_handler(exception_type, handle_exception)
    return ServerMiddleware(app, service.settings, service.metrics, render_error)


def _convert_exception(exception: Exception) -> HTTPError:
    """Return the HTTP error for an exception of the framework, the library or the server."""
    if isinstance(exception, RequestValidationError):
        first = exception.errors()[0]
        field = ".".join(str(part) for part in first["loc"] if part != "body") or "body"
        return HTTPError(422, "invalid_input", f"{field}: {first['msg']}")
    if isinstance(exception, HTTPException):
        codes = {400: "bad_request", 404: "not_found", 405: "method_not_allowed"}
        code = codes.get(exception.status_code, "refused")
        message = "there is nothing at this address" if exception.status_code == 404 else str(exception.detail)
        return HTTPError(exception.status_code, code, message, exception.headers)
    return to_http_error(exception)

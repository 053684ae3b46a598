"""The ASGI application: the API and the web page of one service, inside the middleware."""

import asyncio
import mimetypes
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

import logt
from logt.server import api, folder_api, overview_pages, rendering, web
from logt.server.access import trusted_networks
from logt.server.changes import ChangeRunningError
from logt.server.collection import BaseCollection
from logt.server.errors import LIBRARY_ERROR_TYPES, HTTPError, to_http_error, without_paths
from logt.server.middleware import ServerMiddleware
from logt.server.photo_search import PhotoSearch
from logt.server.service import Service
from logt.server.settings import Settings
from logt.server.watching import follow_folders


def create_app(collection: BaseCollection, settings: Settings | None = None) -> ASGIApp:
    """Return the application for a collection; it closes the collection on shutdown."""
    settings = settings or Settings()
    proxies = trusted_networks(settings.proxies)
    service = Service(collection, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(service.refresh_periodically())]
        if settings.watch:
            tasks.append(asyncio.create_task(follow_folders(service)))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
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
    app.state.service, app.state.searches = service, PhotoSearch(service)
    app.include_router(folder_api.router)  # the routes of all modules of the API
    app.include_router(web.router)
    app.include_router(overview_pages.router)
    mimetypes.add_type("text/javascript", ".js")  # some systems know another type, and browsers refuse it
    app.mount("/static", StaticFiles(directory=Path(__file__).parent / "static"))

    def render_error(scope: Scope, error: HTTPError) -> Response:
        error = without_paths(error, service.collection.private_paths)
        if scope["path"].startswith((api.PREFIX, "/openapi.json")):
            return api.ASCIIJSONResponse(error.body, error.status, error.headers)
        return rendering.render_error(service, error)

    async def handle_exception(request: Request, exception: Exception) -> Response:
        if isinstance(exception, ChangeRunningError):
            return api.change_response(service, exception.ticket, 202)
        return render_error(request.scope, _convert_exception(exception))

    handled = (HTTPError, ChangeRunningError, RequestValidationError, HTTPException, *LIBRARY_ERROR_TYPES, Exception)
    for exception_type in handled:
        app.add_exception_handler(exception_type, handle_exception)
    checked = ServerMiddleware(app, service.settings, service.metrics, render_error)
    return cast(ASGIApp, ProxyHeadersMiddleware(cast(Any, checked), proxies)) if proxies else checked


def _convert_exception(exception: Exception) -> HTTPError:
    """Return the HTTP error for an exception of the framework, the library or the server."""
    if isinstance(exception.__cause__, HTTPError):  # raised while the framework parsed the body
        return exception.__cause__
    if isinstance(exception, RequestValidationError):
        first = exception.errors()[0]
        field = ".".join(str(part) for part in first["loc"] if part != "body") or "body"
        return HTTPError(422, "invalid_input", f"{field}: {first['msg']}")
    if isinstance(exception, HTTPException):
        status = HTTPStatus(exception.status_code)
        message = "there is nothing at this address" if status == 404 else str(exception.detail)
        return HTTPError(status, status.name.lower(), message, exception.headers)
    return to_http_error(exception)

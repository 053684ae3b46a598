"""The web page, rendered on the server; the templates escape file names."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qs, urlencode

from fastapi import APIRouter, File, Form, Query, Request, UploadFile
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response
from starlette.types import Scope

from logt.server.access import LoginAttempts, login_response
from logt.server.api import PREFIX, ServiceDependency
from logt.server.api_reference import group_operations
from logt.server.errors import HTTPError, id_not_found, to_http_error
from logt.server.hits import Id
from logt.server.schemas import MAX_K, parse_region
from logt.server.service import Service, TimedHits

INITIAL_RESULTS, MORE_RESULTS, MAX_RESULTS = 24, 48, 480
"""Results at first, added by "Show more", and at most."""
SAMPLE_SIZE = 12
_FOLDER = Path(__file__).parent
_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_ERROR_HEADINGS = {
    "too_large": "File too large",
    "not_a_picture": "Not a readable image",
    "not_found": "Not found",
    "gone": "Photo file missing",
    "no_pictures": "This index has no photos",
    "busy": "The server is busy",
    "timeout": "Request timed out",
    "unauthorized": "Please sign in again",
    "too_many_attempts": "Too many wrong tokens",
    "internal": "Internal server error",
}

router = APIRouter(include_in_schema=False)
_templates = Environment(
    loader=FileSystemLoader(_FOLDER / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_static_files = {
    path.name: (path.read_bytes(), _MEDIA_TYPES[path.suffix])
    for path in sorted((_FOLDER / "static").iterdir())
    if path.suffix in _MEDIA_TYPES
}


def _build_url(path: str, **params: Any) -> str:
    """Return a URL of this server; parameters that are None are left out."""
    query = urlencode({name: value for name, value in params.items() if value is not None}, errors="surrogatepass")
    return f"{path}?{query}" if query else path


def _photo_url(id: Id, size: str = "thumb") -> str:
    return _build_url(f"{PREFIX}/picture", id=id, size=size)


def _search_url(id: Id, box: str | None = None, k: int | None = None) -> str:
    return _build_url("/", id=id, box=box, k=k)


def _file_name(id: Id) -> str:
    return str(id).rpartition("/")[2]


def _folder_name(id: Id) -> str:
    return str(id).rpartition("/")[0]


def _format_score(score: float, is_cosine: bool) -> str:
    """Return a score with three digits; a cosine is an estimate and can be slightly above 1."""
    return f"{min(score, 1.0) if is_cosine else score:.3f}"


_templates.globals.update(
    photo_url=_photo_url, search_url=_search_url, file_name=_file_name, folder_name=_folder_name
)


@router.get("/")
async def index_page(
    service: ServiceDependency,
    id: Annotated[str | None, Query(max_length=4096)] = None,
    box: str = "",
    k: Annotated[int, Query(ge=1, le=MAX_K)] = INITIAL_RESULTS,
    fragment: bool = False,
) -> Response:
    """Return the start page, or the results for a vector or photo in the index."""
    if id is None:
        return _render(service, "start.html", fragment, {"sample": service.collection.sample_ids(SAMPLE_SIZE)})
    try:
        query_id, region, k = _parse_id(service, id), parse_region(box), _limit_k(service, k)
        if region is None:
            timed = await service.search_ids([query_id], k, None)
        else:
            timed = await service.search_region(query_id, region, k)
    except Exception as error:
        return _render_error(service, error, fragment)
    query = {"id": query_id, "box": box, "name": str(query_id)}
    return _render_results(service, timed, k, fragment, query)


@router.post("/")
async def search_photo(
    service: ServiceDependency,
    photo: Annotated[UploadFile, File()],
    box: Annotated[str, Form()] = "",
    k: Annotated[int, Form(ge=1, le=MAX_K)] = INITIAL_RESULTS,
    fragment: bool = False,
) -> Response:
    """Return the results for an uploaded photo."""
    try:
        k = _limit_k(service, k)
        timed = await service.search_image(photo.file, parse_region(box), k)
    except Exception as error:
        return _render_error(service, error, fragment)
    query = {"id": None, "box": box, "name": photo.filename or "photo"}
    return _render_results(service, timed, k, fragment, query)


@router.get("/docs")
async def api_reference(request: Request, service: ServiceDependency) -> Response:
    """Return the API reference."""
    token = '-H "Authorization: Bearer $LOGT_TOKEN" ' if service.settings.token else ""
    command = f"curl {token}{str(request.base_url).rstrip('/')}"
    groups = group_operations(request.app.openapi(), command)
    return _render(service, "api_reference.html", False, {"groups": groups})


@router.post("/login")
async def login(
    request: Request, service: ServiceDependency, token: Annotated[str, Form(max_length=4096)] = ""
) -> Response:
    """Check the token and store it as a session cookie."""
    expected = service.settings.token
    attempts: LoginAttempts = request.scope["login_attempts"]
    if expected is None or not attempts.check(request.scope, token.strip(), expected):
        return _render_login(service, "Wrong token.")
    return login_response(request.scope, expected)


@router.get("/static/{name}")
async def static_file(name: str, request: Request) -> Response:
    """Return a static file. They are loaded at start-up, so a name never becomes a path."""
    if name not in _static_files:
        raise HTTPError(404, "not_found", "file not found")
    content, media_type = _static_files[name]
    headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()[:32]}"', "Cache-Control": "no-cache"}
    if headers["ETag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=media_type, headers=headers)


def render_error(service: Service, scope: Scope, error: HTTPError) -> Response:
    """Return the page for an error outside of the handlers above: the login form if the token is missing."""
    fragment = "fragment" in parse_qs(scope.get("query_string", b"").decode("latin-1"))
    if error.status == 401 and not fragment:
        return _render_login(service, "")
    return _render_error(service, error, fragment)


def _limit_k(service: Service, k: int) -> int:
    return min(k, MAX_RESULTS, service.settings.limits.k)


def _parse_id(service: Service, text: str) -> Id:
    """Return the id in the index that a string from a URL means: a string or an integer."""
    index = service.collection.index
    if text in index:
        return text
    if text.isascii() and text.isdecimal() and int(text) in index:
        return int(text)
    raise id_not_found(text)


def _render_results(service: Service, timed: TimedHits, k: int, fragment: bool, query: Mapping[str, Any]) -> Response:
    hits = timed.results[0]
    next_k = _limit_k(service, k + MORE_RESULTS)
    more = next_k if len(hits) == k < next_k else None
    return _render(
        service, "results.html", fragment, {**query, "hits": hits, "milliseconds": timed.milliseconds, "more": more}
    )


def _render_error(service: Service, exception: Exception, fragment: bool) -> Response:
    error = to_http_error(exception)
    values = {
        "heading": _ERROR_HEADINGS.get(error.code, "Request failed"),
        "message": error.message,
        "about_file": service.collection.has_photos and error.code in ("not_a_picture", "too_large"),
    }
    return _render(service, "error.html", fragment, values, error.status, error.headers)


def _render_login(service: Service, message: str) -> Response:
    return _render(service, "login.html", False, {"message": message}, 401, {"WWW-Authenticate": "Bearer"})


def _render(
    service: Service,
    template: str,
    fragment: bool,
    values: Mapping[str, Any],
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Render a template as a page, or only its main content for a request by script."""
    collection, token = service.collection, service.settings.token
    common = {
        "layout": "fragment.html" if fragment else "layout.html",
        "vectors": len(collection.index),
        "dim": collection.index.dim,
        "has_photos": collection.has_photos,
        "title": collection.title,
        "limits": service.settings.limits,
        "signed_in": template != "login.html",
        "needs_token": token is not None,
        "format_score": partial(_format_score, is_cosine=collection.index.metric == "cosine"),
    }
    page = _templates.get_template(template).render(common, **values)
    content = page.encode("utf-8", "replace")  # ids may contain lone surrogates
    return HTMLResponse(content, status, headers)

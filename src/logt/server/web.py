"""The page: rendered here, so that every name of a file is escaped in one place."""

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

from logt.server.access import login_response, tokens_equal
from logt.server.api import PREFIX, ServiceDependency
from logt.server.api_reference import group_operations
from logt.server.errors import HTTPError, id_not_found, to_http_error
from logt.server.hits import Hit, Id
from logt.server.schemas import parse_region
from logt.server.service import Service, TimedHits

HERE = Path(__file__).parent
FIRST, STEP, MOST = 24, 48, 480
"""Results shown at first, shown more at a time, and at most."""
SAMPLES = 12
_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HEADINGS = {
    "too_large": "That file is too large",
    "not_a_picture": "That file cannot be read as a picture",
    "not_found": "That is not in the index",
    "gone": "The file of that picture is gone",
    "no_pictures": "This index has no pictures",
    "busy": "Many photos are waiting",
    "timeout": "That took too long",
    "unauthorized": "Please sign in again",
    "internal": "Something went wrong",
}

router = APIRouter(include_in_schema=False)
_templates = Environment(
    loader=FileSystemLoader(HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_static = {
    path.name: (path.read_bytes(), _KINDS[path.suffix])
    for path in sorted((HERE / "static").iterdir())
    if path.suffix in _KINDS
}


def _address(path: str, **given: Any) -> str:
    """A link of ours; None is left out."""
    query = urlencode({name: value for name, value in given.items() if value is not None}, errors="surrogatepass")
    return f"{path}?{query}" if query else path


def _picture(id: Id, size: str = "thumb") -> str:
    return _address(f"{PREFIX}/picture", id=id, size=size)


def _search(id: Id, box: str | None = None, k: int | None = None) -> str:
    return _address("/", id=id, box=box, k=k)


def _name_of(id: Id) -> str:
    return str(id).rpartition("/")[2]


def _folder_of(id: Id) -> str:
    return str(id).rpartition("/")[0]


def _score(score: float, cosine: bool) -> str:
    """Scores are estimates: a cosine may come out a little above 1."""
    return f"{min(score, 1.0) if cosine else score:.3f}"


_templates.globals.update(picture=_picture, search=_search, name_of=_name_of, folder_of=_folder_of)


@router.get("/")
async def start(
    here: ServiceDependency,
    id: Annotated[str | None, Query(max_length=4096)] = None,
    box: str = "",
    k: Annotated[int, Query(ge=1)] = FIRST,
    part: bool = False,
) -> Response:
    """The page to start from, or the results for a vector of the index."""
    if id is None:
        return _page(here, "start.html", part, {"sample": here.collection.sample_ids(SAMPLES)})
    try:
        known = _known(here, id)
        area = parse_region(box)
        asked = _asked(here, k)
        if area is None:
            found = await here.search_ids([known], asked, None)
        else:
            found = await here.search_region(known, area, asked)
    except Exception as error:
        return _failed(here, error, part)
    return _answer(here, found, part, k=asked, id=known, box=box, name=str(known))


@router.post("/")
async def search_photo(
    here: ServiceDependency,
    photo: Annotated[UploadFile, File()],
    box: Annotated[str, Form()] = "",
    k: Annotated[int, Form(ge=1)] = FIRST,
    part: bool = False,
) -> Response:
    """The results for a photo that is sent along."""
    try:
        asked = _asked(here, k)
        found = await here.search_image(photo.file, parse_region(box), asked)
    except Exception as error:
        return _failed(here, error, part)
    return _answer(here, found, part, k=asked, id=None, box=box, name=photo.filename or "a photo")


@router.get("/docs")
async def reference(request: Request, here: ServiceDependency) -> Response:
    """The API for people, made from its OpenAPI description."""
    token = '-H "Authorization: Bearer $LOGT_TOKEN" ' if here.settings.token else ""
    start = f"curl {token}{str(request.base_url).rstrip('/')}"
    return _page(here, "api_reference.html", False, {"groups": group_operations(request.app.openapi(), start)})


@router.post("/login")
async def login(
    request: Request, here: ServiceDependency, token: Annotated[str, Form(max_length=4096)] = ""
) -> Response:
    """Keep the token as a cookie."""
    wanted = here.settings.token
    if wanted is None or not tokens_equal(token.strip(), wanted):
        return _login(here, "That is not the token.")
    return login_response(request.scope, wanted)


@router.get("/static/{name}")
async def static(name: str, request: Request) -> Response:
    """One of the few files that the page is made of; a name is looked up, never opened."""
    if name not in _static:
        raise HTTPError(404, "not_found", "there is no such file")
    content, kind = _static[name]
    headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()[:32]}"', "Cache-Control": "no-cache"}
    if headers["ETag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=kind, headers=headers)


def render_error(here: Service, scope: Scope, error: HTTPError) -> Response:
    """An error that stopped a request for the page before it came here."""
    part = "part" in parse_qs(scope.get("query_string", b"").decode("latin-1"))
    if error.status == 401 and not part:
        return _login(here, "")
    return _failed(here, error, part)


def _asked(here: Service, k: int) -> int:
    return min(k, MOST, here.settings.limits.k)


def _known(here: Service, text: str) -> Id:
    """An id as the index has it: the page knows only text."""
    index = here.collection.index
    if text in index:
        return text
    if text.isascii() and text.isdecimal() and int(text) in index:
        return int(text)
    raise id_not_found(text)


def _answer(here: Service, found: TimedHits, part: bool, *, k: int, id: Id | None, box: str, name: str) -> Response:
    hits: list[Hit] = found.results[0]
    more = min(k + STEP, MOST, here.settings.limits.k)
    given = {"hits": hits, "id": id, "box": box, "name": name, "milliseconds": found.milliseconds}
    return _page(here, "results.html", part, given | {"more": more if len(hits) == k < more else None})


def _failed(here: Service, error: Exception, part: bool) -> Response:
    told = to_http_error(error)
    heading = _HEADINGS.get(told.code, "That did not work")
    return _page(here, "error.html", part, {"heading": heading, "message": told.message}, told.status, told.headers)


def _login(here: Service, message: str) -> Response:
    return _page(here, "login.html", False, {"message": message}, 401, {"WWW-Authenticate": "Bearer"})


def _page(
    here: Service,
    template: str,
    part: bool,
    given: Mapping[str, Any],
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A whole page, or only what stands in its middle."""
    collection, token = here.collection, here.settings.token
    about = {
        "frame": "fragment.html" if part else "layout.html",
        "vectors": len(collection.index),
        "dim": collection.index.dim,
        "pictures": collection.has_photos,
        "title": collection.title,
        "limits": here.settings.limits,
        "inside": template != "login.html",
        "signed": token is not None,
        "shown": partial(_score, cosine=collection.index.metric == "cosine"),
    }
    return HTMLResponse(_templates.get_template(template).render(about, **given), status, headers)

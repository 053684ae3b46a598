"""The web page, rendered on the server; the templates escape file names."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Depends, File, Form, Query, Request, UploadFile
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from logt.descriptors.boxes import BoxError, has_fractions
from logt.descriptors.text import MAX_LENGTH
from logt.server.access import LoginAttempts, login_response
from logt.server.api import ServiceDependency
from logt.server.api_reference import group_operations
from logt.server.duplicate_finder import DuplicateFinder
from logt.server.errors import HTTPError, id_not_found
from logt.server.hits import Id
from logt.server.library import Order, PhotoFilter
from logt.server.page_search import PageQuery, PageSearch
from logt.server.photo_api import get_duplicates
from logt.server.photo_collection import PhotoCollection, Region
from logt.server.rendering import (
    Card,
    build_url,
    describe,
    find_divider,
    hit_cards,
    photo_cards,
    render,
    render_login,
)
from logt.server.rendering import render_error as render_error_page
from logt.server.schemas import MAX_K, parse_box_field
from logt.server.service import Service

INITIAL_RESULTS, MORE_RESULTS, MAX_RESULTS = 24, 48, 480
"""Results at first, added by "Show more", and at most."""
PAGE_SIZE = 120
"""Photos that are browsed in one response."""
SAMPLE_SIZE = 12
MAX_GROUPS = 500
"""Groups of near-duplicates on their page."""
_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

router = APIRouter(include_in_schema=False)
_static_files = {
    path.name: (path.read_bytes(), _MEDIA_TYPES[path.suffix])
    for path in sorted((Path(__file__).parent / "static").iterdir())
    if path.suffix in _MEDIA_TYPES
}


@dataclass
class PageParams:
    """The parameters of the URL of a page: what is searched with, what is searched in, and how it is shown."""

    id: Annotated[str | None, Query(max_length=4096)] = None
    photo: Annotated[str, Query(max_length=64)] = ""
    text: Annotated[str, Query(max_length=MAX_LENGTH)] = ""
    box: Annotated[str, Query(max_length=200)] = ""
    k: Annotated[int, Query(ge=1, le=MAX_K)] = INITIAL_RESULTS
    deep: bool = False
    name: Annotated[str, Query(max_length=1000)] = ""
    folder: Annotated[str, Query(max_length=4096)] = ""
    first: Annotated[str, Query(alias="from", max_length=10)] = ""
    last: Annotated[str, Query(alias="to", max_length=10)] = ""
    order: Annotated[Order, Query()] = "date"
    page: Annotated[int, Query(ge=0, le=2**31)] = 0
    fragment: bool = False

    @property
    def condition(self) -> PhotoFilter:
        return PhotoFilter(self.name, self.folder, self.first, self.last)

    @property
    def is_search(self) -> bool:
        return self.id is not None or bool(self.photo or self.text.strip())

    def url(self, path: str = "/", **changes: Any) -> str:
        """Return the URL of this page with other parameters; those with default values are left out."""
        values = {
            "id": self.id,
            "photo": self.photo,
            "text": self.text,
            "box": self.box,
            "k": None if self.k == INITIAL_RESULTS else self.k,
            "deep": self.deep,
            "name": self.name,
            "folder": self.folder,
            "from": self.first,
            "to": self.last,
            "order": None if self.order == "date" else self.order,
        }
        return build_url(path, **{**values, **changes})

    def search_url(self, **query: Any) -> str:
        """Return the URL of another search, with the filters of this page."""
        filters = {"name": self.name, "folder": self.folder, "from": self.first, "to": self.last}
        return build_url("/", **query, **filters)


Params = Annotated[PageParams, Depends()]


def get_page_search(request: Request) -> PageSearch:
    """Return the search of the page of the app."""
    page_search: PageSearch = request.app.state.page_search
    return page_search


SearchDependency = Annotated[PageSearch, Depends(get_page_search)]


@router.get("/")
async def index_page(service: ServiceDependency, searches: SearchDependency, params: Params) -> Response:
    """Return the photos of the index, or the results for a photo or vector."""
    try:
        if params.is_search:
            return await _results_page(service, searches, params)
        if isinstance(service.collection, PhotoCollection):
            return await _browse_page(service, service.collection, params)
        sample = service.collection.sample_ids(SAMPLE_SIZE)
        return render(service, "start.html", params.fragment, {"sample": sample, "params": params})
    except Exception as error:
        return render_error_page(service, error, params.fragment)


@router.get("/cards")
async def cards(service: ServiceDependency, params: Params) -> Response:
    """Return one page of the photos that are browsed, as a fragment."""
    library = service.photo_collection.library

    def select() -> list[Any]:
        selection = library.select(params.condition, params.order)
        return photo_cards(library, selection, params.page * PAGE_SIZE, PAGE_SIZE)

    return render(service, "cards.html", True, {"cards": await service.run_search(select), "params": params})


@router.post("/")
async def search_photo(
    service: ServiceDependency,
    searches: SearchDependency,
    params: Params,
    photo: Annotated[UploadFile, File()],
    fragment: Annotated[bool, Form()] = False,
) -> Response:
    """Keep an uploaded photo for a while, and redirect to its results among the photos that pass the filters."""
    try:
        key = await searches.store(photo.filename or "photo", photo.file)
    except Exception as error:
        return render_error_page(service, error, fragment)
    return RedirectResponse(params.search_url(photo=key, fragment=fragment), 303)


@router.get("/query/{key}")
async def query_photo(searches: SearchDependency, key: str) -> Response:
    """Return a photo that was searched with."""
    jpeg = searches.queries.get(key).jpeg
    return Response(jpeg, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=600"})


@router.get("/duplicates")
async def duplicates_page(
    service: ServiceDependency,
    finder: Annotated[DuplicateFinder, Depends(get_duplicates)],
    threshold: Annotated[float | None, Query(gt=0, le=1)] = None,
    fragment: bool = False,
) -> Response:
    """Return the near-duplicates, or how far the search for them is."""
    found = finder.find(threshold)
    library = service.photo_collection.library

    def render_groups() -> Response:
        groups = (found.groups or ())[:MAX_GROUPS]
        values = {
            "found": found,
            "groups": [[Card(name, describe(library, name)) for name in group.names] for group in groups],
            "hidden": max(0, len(found.groups or ()) - MAX_GROUPS),
        }
        return render(service, "duplicates.html", fragment, values)

    return await service.run_search(render_groups)  # there may be thousands of photos


@router.get("/docs")
async def api_reference(request: Request, service: ServiceDependency) -> Response:
    """Return the API reference."""
    token = '-H "Authorization: Bearer $LOGT_TOKEN" ' if service.settings.token else ""
    command = f"curl {token}{str(request.base_url).rstrip('/')}"
    groups = group_operations(request.app.openapi(), command)
    return render(service, "api_reference.html", False, {"groups": groups})


@router.post("/login")
async def login(
    request: Request, service: ServiceDependency, token: Annotated[str, Form(max_length=4096)] = ""
) -> Response:
    """Check the token and store it as a session cookie."""
    expected = service.settings.token
    attempts: LoginAttempts = request.scope["login_attempts"]
    if expected is None or not attempts.check(request.scope, token.strip(), expected):
        return render_login(service, "Wrong token.")
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
        return render_login(service, "")
    return render_error_page(service, error, fragment)


async def _browse_page(service: Service, collection: PhotoCollection, params: PageParams) -> Response:
    library = collection.library

    def select() -> dict[str, Any]:
        selection = library.select(params.condition, params.order)
        offset = params.page * PAGE_SIZE
        return {
            "cards": photo_cards(library, selection, offset, PAGE_SIZE),
            "total": len(selection),
            "groups": [[group.label, group.count] for group in selection.groups],
            "folders": library.folders,
            "next_page": params.page + 1 if offset + PAGE_SIZE < len(selection) else None,
            "page_size": PAGE_SIZE,
        }

    return render(service, "browse.html", params.fragment, {"params": params, **await service.run_search(select)})


async def _results_page(service: Service, searches: PageSearch, params: PageParams) -> Response:
    collection = service.collection
    is_photos = isinstance(collection, PhotoCollection)
    k = _limit_k(service, params.k)
    query = PageQuery(
        id=None if params.photo or params.text else await service.run_search(_parse_id, service, params.id or ""),
        key="" if params.text else params.photo,
        text=params.text.strip(),
        region=_parse_region(params.box),
        k=k,
        rerank="diffusion" if params.deep else None,
        condition=params.condition,
    )
    found = await searches.search(query)
    library = collection.library if isinstance(collection, PhotoCollection) else None
    next_k = _limit_k(service, k + MORE_RESULTS)
    values = {
        "params": params,
        "found": found,
        "cards": hit_cards(found, collection),
        "divider": find_divider(found.hits, found.limit),
        "more": next_k if len(found.hits) == k < next_k else None,
        "folders": library.folders if library is not None else [],
        "has_graph": is_photos and collection.has_graph,
    }
    return render(service, "results.html", params.fragment, values)


def _limit_k(service: Service, k: int) -> int:
    return min(k, MAX_RESULTS, service.settings.limits.k)


def _parse_region(text: str) -> Region | None:
    """Return the region in a URL; the page sends fractions, as it shows photos at other sizes."""
    region = parse_box_field(text)
    if region is not None and not has_fractions(region):
        raise BoxError(f"the box in a URL must be in fractions from 0 to 1, got {text!r}")
    return region


def _parse_id(service: Service, text: str) -> Id:
    """Return the id in the index that a string from a URL means: a string or an integer."""
    index = service.collection.index
    if text in index:
        return text
    if text.isascii() and text.isdecimal() and int(text) in index:
        return int(text)
    raise id_not_found(text)

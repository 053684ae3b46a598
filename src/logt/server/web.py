"""The web page, rendered on the server; the templates escape file names."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlsplit

from fastapi import APIRouter, Depends, File, Form, Query, Request, UploadFile
from pydantic import Field
from starlette.responses import RedirectResponse, Response

from logt.descriptors.boxes import Box, BoxError, has_fractions
from logt.descriptors.model_catalog import CATALOG
from logt.descriptors.text import MAX_LENGTH
from logt.server.access import LoginAttempts, login_response
from logt.server.api import ServiceDependency
from logt.server.collection import Id, SearchOptions
from logt.server.duplicate_groups import find_groups, tiers
from logt.server.folder_api import may_change
from logt.server.library import Library, Order
from logt.server.photo_api import FilterDependency, SearchesDependency
from logt.server.photo_collection import PhotoCollection
from logt.server.photo_search import Examples, PhotoQuery, PhotoResults, PhotoSearch
from logt.server.rendering import Card, build_url, describe, find_divider, hit_cards, render, render_login
from logt.server.schemas import MAX_K, parse_box_field
from logt.server.service import Service

INITIAL_RESULTS, MORE_RESULTS, MAX_RESULTS = 24, 48, 480
"""Results at first, added by "Show more", and at most."""
MAX_EXAMPLES = 50
"""Photos of one kind that a search may have besides the first."""
PAGE_SIZE = 120
"""Photos that are browsed in one response."""
MAX_GROUPS = 500
"""Groups of duplicates on their page."""
MAX_IN_GROUP = 100
"""Photos of one group on the page."""

router = APIRouter(include_in_schema=False)


@dataclass
class PageParams:
    """The parameters of the URL of a page: what is searched with, what is searched in, and how it is shown."""

    condition: FilterDependency
    id: Annotated[str | None, Query(max_length=4096)] = None
    photo: Annotated[str, Query(max_length=64)] = ""
    text: Annotated[str, Query(max_length=MAX_LENGTH)] = ""
    box: Annotated[str, Query(max_length=200)] = ""
    also: Annotated[list[Annotated[str, Field(max_length=4096)]] | None, Query(max_length=MAX_EXAMPLES)] = None
    unlike: Annotated[list[Annotated[str, Field(max_length=4096)]] | None, Query(max_length=MAX_EXAMPLES)] = None
    k: Annotated[int, Query(ge=1, le=MAX_K)] = INITIAL_RESULTS
    deep: bool = False
    order: Annotated[Order, Query()] = "date"
    page: Annotated[int, Query(ge=0, le=2**31)] = 0

    @property
    def is_search(self) -> bool:
        return self.id is not None or bool(self.photo or self.text.strip())

    @property
    def examples(self) -> Examples:
        like = [*([] if self.id is None else [self.id]), *(self.also or [])]
        region = None if self.id is None and not self.photo else _parse_region(self.box)
        return Examples(like, self.unlike or (), self.photo, text=self.text.strip(), box=region)

    @property
    def is_combined(self) -> bool:
        what = self.examples
        return len(what.like) + len(what.unlike) + bool(what.stored) + bool(what.text) > 1

    def url_with(self, kind: str, photo_id: str) -> str:
        """Return the URL of this search with one more example. kind: also or unlike."""
        changes: dict[str, Any] = {kind: [*(getattr(self, kind) or []), photo_id]}
        return self.url(k=None, box="", **changes)

    def url_without(self, kind: str, photo_id: str) -> str:
        changes: dict[str, Any] = {kind: [other for other in getattr(self, kind) if other != photo_id]}
        return self.url(k=None, **changes)

    @property
    def filters(self) -> dict[str, str]:
        given = self.condition
        values = {"name": given.name, "folder": given.folder, "from": given.first, "to": given.last}
        return {name: value for name, value in values.items() if value}

    def url(self, path: str = "/", **changes: Any) -> str:
        """Return the URL of this page with other parameters; those with default values are left out."""
        values = {
            "id": self.id,
            "photo": self.photo,
            "text": self.text,
            "box": self.box,
            "also": self.also,
            "unlike": self.unlike,
            "k": None if self.k == INITIAL_RESULTS else self.k,
            "deep": self.deep,
            **self.filters,
            "order": None if self.order == "date" else self.order,
        }
        return build_url(path, **{**values, **changes})

    def fields(self, *without: str) -> list[tuple[str, str]]:
        """Return the parameters of this page as hidden fields of a form, but those that the form itself has."""
        changes: dict[str, Any] = dict.fromkeys(("k", *without))
        return parse_qsl(urlsplit(self.url(**changes)).query, errors="surrogatepass")

    def search_url(self, **query: Any) -> str:
        """Return the URL of another search, with the filters of this page."""
        return build_url("/", **query, **self.filters)


Params = Annotated[PageParams, Depends()]


# Pages are rendered in threads: one with hundreds of photos takes tens of milliseconds, and would hold up the others.


@router.get("/")
async def index_page(
    request: Request, service: ServiceDependency, searches: SearchesDependency, params: Params
) -> Response:
    """Return the photos of the index, or the results for a photo or vector."""
    if params.is_search:
        return await _results_page(service, searches, params)
    return await service.search_pool.run(_start_page, service, params, may_change(request))


@router.get("/cards")
async def cards(service: ServiceDependency, params: Params) -> Response:
    """Return one page of the photos that are browsed, as a fragment."""
    collection = service.photo_collection
    return await service.search_pool.run(
        lambda: render(service, "cards.html", _select(collection.state.library, params))
    )


@router.post("/")
async def search_photo(
    searches: SearchesDependency, params: Params, photo: Annotated[UploadFile, File()]
) -> Response:
    """Keep an uploaded photo for a while, and redirect to its results among the photos that pass the filters."""
    key = await searches.store(photo.filename or "photo", photo.file)
    return RedirectResponse(params.search_url(photo=key), 303)


@router.get("/query/{key}")
async def query_photo(searches: SearchesDependency, key: str) -> Response:
    """Return a photo that was searched with."""
    jpeg = searches.find_stored(key).jpeg
    return Response(jpeg, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=600"})


@router.get("/duplicates")
async def duplicates_page(
    request: Request,
    service: ServiceDependency,
    threshold: Annotated[float | None, Query(gt=0, le=1)] = None,
) -> Response:
    """Return the duplicates in tiers, or how far the search for them is."""

    def render_groups() -> Response:
        collection = service.photo_collection
        work, library, near = (
            service.overview.graph.get(),
            collection.state.library,
            collection.photos.duplicate_score,
        )
        least = threshold or near
        found = [] if work.value is None else find_groups(work.value, collection, least)
        values = {
            "work": work,
            "threshold": least,
            "total": len(found),
            "groups": [
                (group, [Card(name, describe(library, name)) for name in group.names[:MAX_IN_GROUP]])
                for group in found[:MAX_GROUPS]
            ],
            "tiers": tiers(near),
            "near": near,
            "may_change": may_change(request),
        }
        return render(service, "duplicates.html", values)

    return await service.search_pool.run(render_groups)


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


def _select(library: Library, params: PageParams) -> dict[str, Any]:
    """Return the cards of a page of photos, and how many photos there are in all."""
    selection, offset = library.select(params.condition, params.order), params.page * PAGE_SIZE
    photos = library.page(selection, offset, PAGE_SIZE)
    return {
        "params": params,
        "cards": [Card(photo.name, describe(library, photo.name)) for photo in photos],
        "total": len(selection),
        "groups": [[group.label, group.count] for group in selection.groups],
        "next_page": params.page + 1 if offset + PAGE_SIZE < len(selection) else None,
    }


def _start_page(service: Service, params: PageParams, may_change: bool) -> Response:
    collection = service.collection
    if not isinstance(collection, PhotoCollection):
        return render(service, "start.html", {"sample": collection.sample_ids()})
    library = collection.state.library
    models = CATALOG.values() if may_change and all(map(find_spec, ("huggingface_hub", "tokenizers"))) else ()
    values = {**_select(library, params), "folders": library.folders, "page_size": PAGE_SIZE, "models": models}
    return render(service, "browse.html", values)


async def _results_page(service: Service, searches: PhotoSearch, params: PageParams) -> Response:
    query = PhotoQuery(
        _limit_k(service, params.k), "diffusion" if params.deep else None, params.condition, show_similarity=True
    )
    name, found = await _search(service, searches, params, query)
    return await service.search_pool.run(_render_results, service, params, name, found)


def _render_results(service: Service, params: PageParams, name: str, found: PhotoResults) -> Response:
    collection, k = service.collection, _limit_k(service, params.k)
    next_k = _limit_k(service, k + MORE_RESULTS)
    values = {
        "params": params,
        "name": name,
        "found": found,
        "cards": hit_cards(found, collection),
        "examples": True,
        "divider": find_divider(found.hits, found.limit),
        "more": next_k if len(found.hits) == k < next_k else None,
        "folders": collection.state.library.folders if isinstance(collection, PhotoCollection) else [],
    }
    return render(service, "results.html", values)


async def _search(
    service: Service, searches: PhotoSearch, params: PageParams, query: PhotoQuery
) -> tuple[str, PhotoResults]:
    """Return what was searched with, in words, and its results."""
    photo_id = params.id or ""
    if service.collection.has_photos or params.id is None:
        name = photo_id or (searches.find_stored(params.photo).name if params.photo else params.text.strip())
        return name, await searches.search(params.examples, query)
    vector_id = await service.search_pool.run(_parse_id, service, photo_id)
    (hits,), milliseconds = await service.search_ids([vector_id], query.k, SearchOptions(rerank=query.rerank))
    return photo_id, PhotoResults(hits, milliseconds)


def _limit_k(service: Service, k: int) -> int:
    return min(k, MAX_RESULTS, service.settings.limits.k)


def _parse_region(text: str) -> Box | None:
    """Return the region in a URL; the page sends fractions, as it shows photos at other sizes."""
    region = parse_box_field(text)
    if region is not None and not has_fractions(region):
        raise BoxError(f"the box in a URL must be in fractions from 0 to 1, got {text!r}")
    return region


def _parse_id(service: Service, text: str) -> Id:
    """Return the id in the index that a string from a URL means: a string or an integer."""
    index = service.collection.index
    if text.isascii() and text.isdecimal() and text not in index:
        return int(text)
    return text

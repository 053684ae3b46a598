"""Templates of the web page, and what they show of a photo and of a search."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from logt.descriptors.boxes import to_pixels
from logt.server.api import PREFIX
from logt.server.collection import BaseCollection, Hit, Id
from logt.server.errors import HTTPError
from logt.server.library import Library
from logt.server.photo_collection import PhotoCollection
from logt.server.photo_search import PhotoResults
from logt.server.service import Service

_FOLDER = Path(__file__).parent
_templates = Environment(
    loader=FileSystemLoader(_FOLDER / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


@dataclass(frozen=True)
class Card:
    """A photo or vector on the page; `about` has its date, pixels and bytes, `word` is what its score means.

    region: the viewBox of an SVG image over the photo, and x, y, width, height of the region that matched in it.
    """

    id: Id
    about: str = ""
    score: str = ""
    word: str = ""
    region: tuple[str, list[int]] | None = None


def build_url(path: str, **params: Any) -> str:
    """Return a URL of this server; parameters that are None or empty are left out."""
    given = {name: value for name, value in params.items() if value not in (None, "", False, [])}
    values = {name: 1 if value is True else value for name, value in given.items()}
    query = urlencode(values, doseq=True, errors="surrogatepass")
    return f"{path}?{query}" if query else path


def hit_cards(found: PhotoResults, collection: BaseCollection) -> list[Card]:
    """Return the cards of search results."""
    if not isinstance(collection, PhotoCollection):
        is_cosine = collection.index.metric == "cosine"
        return [Card(hit.id, score=_format_score(hit.score, is_cosine)) for hit in found.hits]
    library, same = collection.state.library, collection.photos.duplicate_score
    cards = []
    for hit in found.hits:
        word, about = _word(hit.score, found.limit, same), describe(library, str(hit.id))
        cards.append(Card(hit.id, about, _format_score(hit.score), word, _region(library, hit)))
    return cards


def _region(library: Library, hit: Hit) -> tuple[str, list[int]] | None:
    photo = library.find(str(hit.id))
    if hit.box is None or photo is None or not photo.width:
        return None
    left, top, right, bottom = to_pixels(hit.box, (photo.width, photo.height))
    return f"0 0 {photo.width} {photo.height}", [round(side) for side in (left, top, right - left, bottom - top)]


def describe(library: Library, name: str) -> str:
    """Return the date, pixels and size of a photo in words; empty if the library does not have it."""
    photo = library.find(name)
    if photo is None:
        return ""
    date = library.date(name)
    parts = [f"{date[:10]} {date[11:16]}"]
    if photo.width:
        parts.append(f"{photo.width} × {photo.height}")
    if photo.size:
        parts.append(f"{photo.size / 1e6:,.1f} MB" if photo.size >= 1e5 else f"{photo.size / 1e3:,.0f} kB")
    return " · ".join(parts)


def find_divider(hits: list[Hit], limit: float | None) -> int | None:
    """Return how many hits are above the limit; None if all are, or if there is no limit."""
    above = sum(limit is None or hit.score >= limit for hit in hits)
    return above if above < len(hits) else None


def render(
    service: Service,
    template: str,
    values: Mapping[str, Any],
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Render a template."""
    collection, settings = service.collection, service.settings
    common = {
        "vectors": len(collection.index),
        "dim": collection.index.dim,
        "has_photos": collection.has_photos,
        "has_text": collection.has_text,
        "has_graph": lambda: collection.has_graph,
        "allows_uploads": collection.allows_uploads and not settings.read_only,
        "shows_news": collection.has_photos and not settings.read_only and not settings.watch,
        "originals": settings.originals,
        "title": collection.title,
        "limits": settings.limits,
        "signed_in": template != "login.html",
    }
    page = _templates.get_template(template).render(common, **values)
    content = page.encode("utf-8", "replace")  # ids may contain lone surrogates
    return HTMLResponse(content, status, headers)


def render_error(service: Service, error: HTTPError) -> Response:
    """Render the page for an error: the login form if the token is missing."""
    if error.status == 401:
        return render_login(service, "")
    values = {
        "heading": error.code.replace("_", " ").capitalize(),
        "message": error.message,
        "about_file": service.collection.has_photos and error.code in ("not_a_photo", "too_large"),
    }
    return render(service, "error.html", values, error.status, error.headers)


def render_login(service: Service, message: str) -> Response:
    """Render the login form, with a message if the last try failed."""
    return render(service, "login.html", {"message": message}, 401, {"WWW-Authenticate": "Bearer"})


def _format_score(score: float, is_cosine: bool = True) -> str:
    """Return a score as text; a cosine is an estimate, and can be slightly above 1."""
    return f"{min(score, 1.0) if is_cosine else score:.3f}"


def _word(score: float, limit: float | None, same: float) -> str:
    """Return what a score means; empty if the scores of unrelated photos are not known."""
    if limit is None:
        return ""
    if score < limit:
        return "probably unrelated"
    return "nearly the same" if score >= same else "similar"


def _photo_url(id: Id, size: str = "thumb") -> str:
    return build_url(f"{PREFIX}/photo", id=id, size=size)


def _format_ms(milliseconds: float) -> str:
    return f"{milliseconds:,.0f} ms" if milliseconds >= 10 else f"{milliseconds:.1f} ms"


_templates.globals.update(
    photo_url=_photo_url,
    search_url=lambda photo_id: build_url("/", id=str(photo_id)),
    file_name=lambda photo_id: str(photo_id).rpartition("/")[2],
    folder_name=lambda photo_id: str(photo_id).rpartition("/")[0],
    format_ms=_format_ms,
    to_json=lambda value: json.dumps(value, ensure_ascii=True),
    scripts=sorted(path.name for path in (_FOLDER / "static").glob("*.js")),  # loaded before the previews
)

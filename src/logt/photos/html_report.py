"""HTML report of searches: (query, results) -> one self-contained HTML page with embedded images."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

_SIDE = 320  # longer side of an embedded image, in pixels

_STYLE = """
:root { color-scheme: light dark; --background: #fafaf8; --text: #1c1c1a; --muted: #6b6b66; --card: #fff;
  --border: #e2e2dc; --accent: #2463b5; }
@media (prefers-color-scheme: dark) { :root { --background: #161614; --text: #ecece6; --muted: #9a9a92;
  --card: #20201d; --border: #35352f; --accent: #7fb0f0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 84rem; background: var(--background);
  color: var(--text); font: 16px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
p { margin: 0 0 1.5rem; color: var(--muted); }
section { display: grid; grid-template-columns: minmax(10rem, 15rem) 1fr; gap: 1.25rem; padding: 1.25rem 0;
  border-top: 1px solid var(--border); }
@media (max-width: 40rem) { section { grid-template-columns: 1fr; } section > figure { max-width: 15rem; } }
.results { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: .9rem;
  align-content: start; }
figure { margin: 0; background: var(--card); border: 1px solid var(--border); border-radius: .5rem;
  overflow: hidden; }
section > figure { border-color: var(--accent); align-self: start; }
img { display: block; width: 100%; aspect-ratio: 4 / 3; object-fit: cover; background: var(--border); }
section > figure img { aspect-ratio: auto; object-fit: contain; }
figcaption { padding: .45rem .6rem; font-size: .8rem; overflow-wrap: anywhere; }
figcaption b { color: var(--accent); font-variant-numeric: tabular-nums; margin-right: .4rem; }
"""


@dataclass(frozen=True)
class ReportPhoto:
    """A photo in a report: a query if it has no score, else a result.

    `image` is None if the file cannot be read, or if the query is a text.
    """

    name: str
    image: Image | None
    score: float | None = None


def render_report(title: str, note: str, searches: Sequence[tuple[ReportPhoto, Sequence[ReportPhoto]]]) -> str:
    """Return the HTML page: for each search, the query and its results next to it."""
    sections = "".join(
        f'<section>{_figure(query)}<div class="results">{"".join(map(_figure, results))}</div></section>'
        for query, results in searches
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">"
        f"<title>{_escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body><h1>{_escape(title)}</h1><p>{_escape(note)}</p>{sections}</body></html>\n"
    )


def _figure(photo: ReportPhoto) -> str:
    name = _escape(photo.name)
    missing = "" if photo.score is None else '<img alt="cannot be read">'
    image = f'<img alt="{name}" src="{_data_url(photo.image)}">' if photo.image else missing
    label = "query" if photo.score is None else f"{photo.score:.3f}"
    return f"<figure>{image}<figcaption><b>{label}</b>{name}</figcaption></figure>"


def _data_url(image: Image) -> str:
    thumbnail = image.copy()
    thumbnail.thumbnail((_SIDE, _SIDE))
    stream = BytesIO()
    thumbnail.save(stream, "JPEG", quality=82)
    return f"data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode()}"


def _escape(text: str) -> str:
    """Escape text for HTML, attributes included; characters that UTF-8 cannot encode are replaced."""
    return escape(text.encode("utf-8", "replace").decode(), quote=True)

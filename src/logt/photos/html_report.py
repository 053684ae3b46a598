"""HTML report of a search: the query and its results -> one self-contained HTML page with embedded images."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

_SIDE = 320  # longer side of an embedded image, in pixels

_STYLE = """
:root { color-scheme: light dark; }
body { margin: 0 auto; padding: 2rem 1.25rem; max-width: 84rem; font: 16px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; }
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)); gap: 1rem; align-items: start; }
figure { margin: 0; border: 1px solid #8888; border-radius: .5rem; overflow: hidden; }
figure:first-child { border: 2px solid #4a87d8; }
img { display: block; width: 100%; }
figcaption { padding: .45rem .6rem; font-size: .8rem; overflow-wrap: anywhere; }
figcaption b { margin-right: .4rem; }
"""


def render_report(
    query: str, image: Image | None, note: str, results: Sequence[tuple[str, float, Image | None]]
) -> str:
    """Return the HTML page.

    query, image: the name of the photo and the photo, or the text and None.
    results: name, score and photo; None if its file cannot be read.
    """
    title = f"Photos similar to {escape(query)}"
    figures = [
        _figure("query", query, image),
        *(_figure(f"{score:.3f}", name, photo) for name, score, photo in results),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">"
        f"<title>{title}</title><style>{_STYLE}</style></head>"
        f"<body><h1>{title}</h1><p>{escape(note)}</p><main>{''.join(figures)}</main></body></html>\n"
    )


def _figure(label: str, name: str, image: Image | None) -> str:
    shown = "" if image is None else f'<img alt="{escape(name)}" src="{_data_url(image)}">'
    return f"<figure>{shown}<figcaption><b>{label}</b>{escape(name)}</figcaption></figure>"


def _data_url(image: Image) -> str:
    thumbnail = image.copy()
    thumbnail.thumbnail((_SIDE, _SIDE))
    stream = BytesIO()
    thumbnail.save(stream, "JPEG", quality=82)
    return f"data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode()}"

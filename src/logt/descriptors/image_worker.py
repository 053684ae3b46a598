"""What the processes that decode images do; see `image_decoder`.

A decoder with a fault, or an image that needs too much memory, ends the process and no other.
"""

from __future__ import annotations

import json
from io import BytesIO
from typing import TYPE_CHECKING, Any

from logt.descriptors.image_io import ImageError, TooManyPixelsError, image_format, pillow, read_details, read_image

if TYPE_CHECKING:
    from PIL.Image import Image

_JPEG = {"quality": 85, "optimize": True, "progressive": True}


def answer(head: bytes, content: bytes) -> tuple[bytes, bytes]:
    """Return the reply to a request, both as JSON and bytes. content: of the image, if the request has no path."""
    reply, data = _answer(json.loads(head), content)
    return json.dumps(reply).encode(), data


def _answer(request: dict[str, Any], content: bytes) -> tuple[dict[str, Any], bytes]:
    source = request.pop("path", content)
    action = request.pop("action")
    try:
        if action == "details":
            return {"details": read_details(source)}, b""
        image = read_image(source, **request)
        if action == "jpeg":
            return {}, _encode_jpeg(image, 2 * request["side"])
        file_format = image_format(source) if isinstance(source, bytes) else ""
        return {"size": image.size, "format": file_format, "details": read_details(source)}, image.tobytes()
    except ImageError as error:
        return {"error": error.reason, "large": isinstance(error.__cause__, TooManyPixelsError)}, b""
    except MemoryError:
        return {"error": "not enough memory to decode it", "large": False}, b""


def _encode_jpeg(image: Image, side: int) -> bytes:
    """Return an image of at most `side` pixels as JPEG, without metadata."""
    image.thumbnail((side, side), pillow().Resampling.LANCZOS)
    image.info.clear()
    out = BytesIO()
    image.save(out, "JPEG", **_JPEG)
    return out.getvalue()

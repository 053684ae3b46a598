"""Image files -> decoded images, by processes that have a limit of memory and of time.

A decoder with a fault, or an image that needs too much memory, ends its process and no other.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from logt._internal.subprocess_worker import FOREVER, Child, ChildError, ChildPool, ChildTimeoutError
from logt.descriptors.image_io import (
    MAX_BYTES,
    MAX_PIXELS,
    ImageDetails,
    ImageError,
    TooManyPixelsError,
    image_format,
    pillow,
    read_camera,
    read_details,
    read_image,
)

if TYPE_CHECKING:
    from PIL.Image import Image

_EXTENSIONS = {"jpeg": "jpg", "mpo": "jpg", "heif": "heic", "jpeg2000": "jp2"}
_OTHER_BYTES = 256 << 20
LARGE_PIXELS = 1 << 25
"""Images of more pixels than this are decoded one at a time, by default, to bound memory."""


@dataclass(frozen=True)
class DecodeLimits:
    """Limits of one image. A process may use three times the decoded bytes.

    pixels, decoded_bytes: larger images are refused. seconds: the time for an image. niceness: of the processes.
    large_pixels: images of more pixels than this, those of slow formats of more than `slow_pixels`, and those that
    take more than `small_seconds`, are decoded one at a time. Pixels count as in `read_image`.
    """

    pixels: int = MAX_PIXELS
    decoded_bytes: int = MAX_BYTES
    seconds: float = 300.0
    niceness: int = 0
    large_pixels: int = LARGE_PIXELS
    slow_pixels: int = LARGE_PIXELS
    small_seconds: float = FOREVER


class DecodedImage(NamedTuple):
    """An image, the file extension of its format ("" if it was read from a file), and the details in its header."""

    image: Image
    extension: str
    details: ImageDetails


class ImageDecoder:
    """Processes that decode images, started when they are needed and stopped when idle; threads may share them.

    limits: of each image.
    processes: images that are decoded at the same time, and beside them one large image, in a process of its own.
    idle_seconds: processes that were idle for so long are stopped.
    """

    def __init__(self, limits: DecodeLimits, processes: int, idle_seconds: float = 30.0):
        self._limits = limits
        self._children = ChildPool(self._start, processes, idle_seconds)
        self._large_child = ChildPool(self._start, 1, idle_seconds)
        self._accepts: tuple[str, ...] = ("small", "large")

    @property
    def small(self) -> ImageDecoder:
        """The same processes, for images that are neither large nor slow: others raise LargeImageError."""
        return self._only("small")

    @property
    def large(self) -> ImageDecoder:
        """The process for large and slow images."""
        return self._only("large")

    def decode(self, source: Path | bytes, side: int) -> DecodedImage:
        """Return an image for use at `side` pixels."""
        reply, data = self._send_limited(source, action="decode", side=side)
        image: Image = pillow().frombytes("RGB", tuple(reply["size"]), data)
        name = str(reply["format"]).lower()
        return DecodedImage(image, _EXTENSIONS.get(name, name), ImageDetails(*reply["details"]))

    def read_details(self, source: Path | bytes) -> ImageDetails:
        """Return the size of an image and when it was taken, from the header of its file."""
        return ImageDetails(*self._send(self._children, source, action="details")[0]["details"])

    def read_camera(self, path: Path) -> dict[str, str]:
        """Return the camera, the lens and the exposure of a photo in words."""
        return dict(self._send(self._children, path, action="camera", max_pixels=0)[0]["camera"])

    def render_jpeg(self, source: Path | bytes, side: int) -> bytes:
        """Return an image as a JPEG of at most `side` pixels, upright and without metadata."""
        return self._send_limited(source, action="jpeg", side=side // 2)[1]

    def close(self) -> None:
        """Stop the processes; the images that they work on are not decoded."""
        self._children.close()
        self._large_child.close()

    def _only(self, size: str) -> ImageDecoder:
        decoder = copy.copy(self)
        decoder._accepts = (size,)
        return decoder

    def _start(self) -> Child:
        """Return a process that is ready, so that its start is no part of the time for an image."""
        child = Child(
            "logt.descriptors.image_decoder:answer",
            memory=3 * self._limits.decoded_bytes + _OTHER_BYTES,
            niceness=self._limits.niceness,
            environment={"OPENBLAS_NUM_THREADS": "1"},
            quiet=True,
        )
        child.ask(json.dumps({"action": "start"}).encode(), seconds=self._limits.seconds)
        return child

    def _send_limited(self, source: Path | bytes, **request: Any) -> tuple[dict[str, Any], bytes]:
        """Send a request with the limits. A large or slow image is refused at first, and then decoded alone."""
        limits, request["max_bytes"] = self._limits, self._limits.decoded_bytes
        if "small" in self._accepts:
            try:
                small = {"max_pixels": limits.large_pixels, "max_slow_pixels": limits.slow_pixels}
                most = {name: min(limits.pixels, pixels) for name, pixels in small.items()}
                return self._send(self._children, source, limits.small_seconds, **request, **most)
            except LargeImageError:
                if "large" not in self._accepts:
                    raise
        return self._send(self._large_child, source, **request, max_pixels=limits.pixels)

    def _send(
        self, children: ChildPool, source: Path | bytes, seconds: float = FOREVER, **request: Any
    ) -> tuple[dict[str, Any], bytes]:
        """Send a request; raise LargeImageError if it takes more than `seconds`, and that is not the limit."""
        content = source if isinstance(source, bytes) else b""
        if not isinstance(source, bytes):
            request["path"] = str(source)
        try:
            head, data = children.ask(json.dumps(request).encode(), content, min(seconds, self._limits.seconds))
        except ChildError as error:
            is_slow = isinstance(error, ChildTimeoutError) and seconds < self._limits.seconds
            kind = LargeImageError if is_slow else ImageError
            raise kind("the image", "decoding it takes too much memory or time") from None
        reply = json.loads(head)
        if "error" in reply:
            is_large = reply["large"] and children is self._children
            raise (LargeImageError if is_large else ImageError)("the image", reply["error"])
        return reply, data


class LargeImageError(ImageError):
    """An image is large or takes long, but is within the limits as far as is known."""


# ------------------------------------------------------------------------------------------------- in the child


def answer(head: bytes, content: bytes) -> tuple[bytes, bytes]:
    """Return the reply to a request, both as JSON and bytes. content: of the image, if the request has no path."""
    try:
        reply, data = _answer(content, **json.loads(head))
    except ImageError as error:
        reply, data = {"error": error.reason, "large": isinstance(error.__cause__, TooManyPixelsError)}, b""
    except MemoryError:
        reply, data = {"error": "not enough memory to decode it", "large": False}, b""
    return json.dumps(reply).encode(), data


def _answer(content: bytes, action: str, path: str = "", **options: int) -> tuple[dict[str, Any], bytes]:
    source = path or content
    if action == "start":
        pillow().init()
        return {}, b""
    if action == "details":
        return {"details": read_details(source)}, b""
    if action == "camera":
        return {"camera": read_camera(source)}, b""
    image = read_image(source, **options)
    if action == "decode":
        file_format = "" if path else image_format(content)
        return {"size": image.size, "format": file_format, "details": read_details(source)}, image.tobytes()
    side, out = 2 * options["side"], BytesIO()
    image.thumbnail((side, side), pillow().Resampling.LANCZOS)
    image.info.clear()  # no metadata
    image.save(out, "JPEG", quality=85, optimize=True, progressive=True)
    return {}, out.getvalue()

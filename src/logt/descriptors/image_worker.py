"""The process that decodes images: `python -m logt.descriptors.image_worker BYTES NICENESS`.

It reads requests from its standard input and writes replies to its standard output: one line of JSON each, and then
bytes. A decoder with a fault, or an image that needs too much memory, ends this process and no other.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING, Any, BinaryIO

from logt.descriptors.image_io import ImageError, TooManyPixelsError, image_format, pillow, read_details, read_image

if TYPE_CHECKING:
    from PIL.Image import Image

_JPEG = {"quality": 85, "optimize": True, "progressive": True}


def main() -> None:
    """Answer requests until the standard input is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C stops the parent process, which closes the standard input
    with suppress(OSError, AttributeError):
        os.nice(int(sys.argv[2]))
    _limit_memory(int(sys.argv[1]))
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no reply
    while line := requests.readline():
        reply, data = _answer(json.loads(line), requests)
        replies.write(json.dumps({**reply, "bytes": len(data)}).encode() + b"\n" + data)
        replies.flush()


def _answer(request: dict[str, Any], content: BinaryIO) -> tuple[dict[str, Any], bytes]:
    size = request.pop("bytes")
    source = request.pop("path") if size is None else content.read(size)
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


def _limit_memory(more: int) -> None:
    """Allow so many bytes more than the process has now, where the system can limit them."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + more, used + more))


if __name__ == "__main__":
    main()

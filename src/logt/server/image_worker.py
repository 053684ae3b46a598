"""The process that decodes images for the server: `python -m logt.server.image_worker BYTES`.

It reads requests from its standard input and writes replies to its standard output: one line of JSON each, and then
bytes. A decoder with a fault, or an image that needs too much memory, ends this process and not the server.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from typing import Any, BinaryIO

from logt.descriptors.image_io import ImageError, image_format, read_image


def main() -> None:
    """Answer requests until the standard input is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C stops the server, which closes the standard input
    with suppress(OSError, AttributeError):
        os.nice(5)  # searches come first
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
    try:
        image = read_image(source, **request)
        file_format = image_format(source) if isinstance(source, bytes) else ""
        return {"size": image.size, "format": file_format}, image.tobytes()
    except ImageError as error:
        return {"error": error.reason}, b""
    except MemoryError:
        return {"error": "not enough memory to decode it"}, b""


def _limit_memory(more: int) -> None:
    """Allow so many bytes more than the process has now, where the system can limit them."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + more, used + more))


if __name__ == "__main__":
    main()

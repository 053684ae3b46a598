"""Images from clients -> decoded images, by processes that have a limit of memory and of time."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from logt.server.errors import HTTPError
from logt.server.settings import Limits

if TYPE_CHECKING:
    from PIL.Image import Image

_EXTENSIONS = {"jpeg": "jpg", "mpo": "jpg", "heif": "heic", "jpeg2000": "jp2"}
_OTHER_BYTES = 256 << 20


class ImageDecoder:
    """A few processes that decode images, started when they are needed; threads may share it.

    limits: of pixels, decoded bytes and time. A process may use three times the decoded bytes.
    processes: images that are decoded at the same time.
    """

    def __init__(self, limits: Limits, processes: int):
        self._limits = limits
        self._idle: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        for _ in range(processes):
            self._idle.put(None)
        self._processes = processes

    def decode(self, content: bytes, side: int) -> tuple[Image, str]:
        """Return an image from a client, for use at `side` pixels, and the file extension of its format."""
        return self._send(content, {"side": side, "max_pixels": self._limits.pixels})

    def decode_file(self, path: Path, side: int) -> Image:
        """Return a photo of the index, for use at `side` pixels."""
        return self._send(None, {"side": side, "path": str(path)})[0]

    def close(self) -> None:
        """Stop the processes, when they have finished the images that they work on."""
        for _ in range(self._processes):
            worker = self._idle.get()
            if worker is not None:
                worker.close()

    def _send(self, content: bytes | None, request: dict[str, Any]) -> tuple[Image, str]:
        from logt.descriptors.image_io import pillow

        worker = self._idle.get()
        try:
            worker = worker or _Worker(3 * self._limits.decoded_bytes + _OTHER_BYTES)
            request["max_bytes"] = self._limits.decoded_bytes
            reply, data = worker.ask(request, content, self._limits.seconds)
        except _WorkerEndedError:
            worker = None
            message = "decoding it takes too much memory or time"
            raise HTTPError(415, "not_a_picture", message) from None
        finally:
            self._idle.put(worker)
        if "error" in reply:
            raise HTTPError(415, "not_a_picture", reply["error"])
        image: Image = pillow().frombytes("RGB", tuple(reply["size"]), data)
        name = str(reply["format"]).lower()
        return image, _EXTENSIONS.get(name, name)


class _WorkerEndedError(Exception):
    """The process has ended: it was killed, or the decoder of a format has a fault."""


class _Worker:
    """One process that decodes images."""

    def __init__(self, memory: int):
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "logt.server.image_worker", str(memory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._replies = self._process.stdin, self._process.stdout

    def ask(self, request: dict[str, Any], content: bytes | None, seconds: float) -> tuple[dict[str, Any], bytes]:
        """Return the reply to a request and its bytes; end the process if that takes too long."""
        timer = threading.Timer(seconds, self._process.kill)
        timer.start()
        try:
            size = None if content is None else len(content)
            self._requests.write(json.dumps({**request, "bytes": size}).encode() + b"\n" + (content or b""))
            self._requests.flush()
            reply = json.loads(_read_line(self._replies))
            data = self._replies.read(reply["bytes"])
            if len(data) < reply["bytes"]:
                raise EOFError
        except (OSError, EOFError, ValueError):
            self.close()
            raise _WorkerEndedError from None
        finally:
            timer.cancel()
        return reply, data

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def _read_line(stream: IO[bytes]) -> bytes:
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return line

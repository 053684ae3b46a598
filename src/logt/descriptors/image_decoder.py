"""Image files -> decoded images, by processes that have a limit of memory and of time."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from logt.descriptors.image_io import LARGE_PIXELS, MAX_BYTES, MAX_PIXELS, ImageDetails, ImageError, pillow

if TYPE_CHECKING:
    from PIL.Image import Image

_EXTENSIONS = {"jpeg": "jpg", "mpo": "jpg", "heif": "heic", "jpeg2000": "jp2"}
_OTHER_BYTES = 256 << 20
_TOO_MUCH = "decoding it takes too much memory or time"


@dataclass(frozen=True)
class DecodeLimits:
    """Limits of one image. A process may use three times the decoded bytes.

    pixels, decoded_bytes: larger images are refused. seconds: the time for an image. niceness: of the processes.
    """

    pixels: int = MAX_PIXELS
    decoded_bytes: int = MAX_BYTES
    seconds: float = 300.0
    niceness: int = 0


class ImageDecoder:
    """Processes that decode images, started when they are needed and stopped when idle; threads may share them.

    limits: of each image.
    processes: images that are decoded at the same time. Very large ones are decoded one at a time.
    idle_seconds: processes that were idle for so long are stopped.
    """

    def __init__(self, limits: DecodeLimits, processes: int, idle_seconds: float = 30.0):
        self._limits, self._processes, self._idle_seconds = limits, processes, idle_seconds
        self._idle: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        for _ in range(processes):
            self._idle.put(None)
        self._large = threading.Lock()
        self._last_used = 0.0
        self._reaper: threading.Timer | None = None

    def decode(self, content: bytes, side: int) -> tuple[Image, str]:
        """Return an image for use at `side` pixels, and the file extension of its format."""
        image, reply = self._decode({"side": side}, content)
        name = str(reply["format"]).lower()
        return image, _EXTENSIONS.get(name, name)

    def decode_file(self, path: Path, side: int) -> tuple[Image, ImageDetails]:
        """Return an image file for use at `side` pixels, and its details."""
        image, reply = self._decode({"side": side, "path": str(path)})
        return image, ImageDetails(*reply["details"])

    def read_details(self, source: Path | bytes) -> ImageDetails:
        """Return the size of an image and when it was taken, from the header of its file."""
        request, content = ({}, source) if isinstance(source, bytes) else ({"path": str(source)}, None)
        return ImageDetails(*self._send({"action": "details", **request}, content)[0]["details"])

    def render_jpeg(self, source: Path | bytes, side: int) -> bytes:
        """Return an image as a JPEG of at most `side` pixels, upright and without metadata."""
        request = {"action": "jpeg", "side": side // 2}
        if isinstance(source, bytes):
            return self._send_limited(request, source)[1]
        return self._send_limited({**request, "path": str(source)}, None)[1]

    def close(self) -> None:
        """Stop the processes, when they have finished the images that they work on."""
        for worker in [self._idle.get() for _ in range(self._processes)]:
            if worker is not None:
                worker.close()
            self._idle.put(None)

    def _decode(self, request: dict[str, Any], content: bytes | None = None) -> tuple[Image, dict[str, Any]]:
        reply, data = self._send_limited({"action": "decode", **request}, content)
        image: Image = pillow().frombytes("RGB", tuple(reply["size"]), data)
        return image, reply

    def _send_limited(self, request: dict[str, Any], content: bytes | None) -> tuple[dict[str, Any], bytes]:
        """Send a request with the limits. A large image is refused at first, and then decoded alone."""
        limits = self._limits
        request = {**request, "max_bytes": limits.decoded_bytes}
        try:
            return self._send({**request, "max_pixels": min(limits.pixels, LARGE_PIXELS)}, content)
        except _LargeImageError as error:
            if limits.pixels <= LARGE_PIXELS:
                raise ImageError("the image", error.reason) from None
        with self._large:
            return self._send({**request, "max_pixels": limits.pixels}, content)

    def _send(self, request: dict[str, Any], content: bytes | None) -> tuple[dict[str, Any], bytes]:
        worker = self._idle.get()
        try:
            worker = worker or _Worker(3 * self._limits.decoded_bytes + _OTHER_BYTES, self._limits.niceness)
            reply, data = worker.ask(request, content, self._limits.seconds)
        except _WorkerEndedError:
            worker = None
            raise ImageError("the image", _TOO_MUCH) from None
        except BaseException:  # an interrupt: the reply would be taken for that of the next request
            if worker is not None:
                worker.close()
            worker = None
            raise
        finally:
            self._idle.put(worker)
            self._start_reaper(time.monotonic())
        if "error" in reply:
            raise (_LargeImageError if reply["large"] else ImageError)("the image", reply["error"])
        return reply, data

    def _start_reaper(self, last_used: float) -> None:
        self._last_used = last_used
        if self._reaper is None:
            self._reaper = threading.Timer(self._idle_seconds, self._stop_idle)
            self._reaper.daemon = True
            self._reaper.start()

    def _stop_idle(self) -> None:
        """Stop the processes that have no work, unless there was work lately: then look again later."""
        self._reaper = None
        if time.monotonic() - self._last_used < self._idle_seconds:
            self._start_reaper(self._last_used)
            return
        idle = []
        with suppress(queue.Empty):
            while True:
                idle.append(self._idle.get_nowait())
        for worker in idle:
            if worker is not None:
                worker.close()
            self._idle.put(None)


class _LargeImageError(ImageError):
    """An image has more pixels than the request allows."""


class _WorkerEndedError(Exception):
    """The process has ended: it was killed, or the decoder of a format has a fault."""


class _Worker:
    """One process that decodes images."""

    def __init__(self, memory: int, niceness: int):
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "logt.descriptors.image_worker", str(memory), str(niceness)],
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

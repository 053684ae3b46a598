"""Decoding of the photos that are indexed, in processes that all runs of this process share."""

from __future__ import annotations

import atexit
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from logt.descriptors.image_decoder import DecodeLimits, ImageDecoder
from logt.descriptors.image_io import ImageDetails

if TYPE_CHECKING:
    from PIL.Image import Image

_MAX_PROCESSES = 256  # they are started as threads ask for them


def read_photo(path: Path, side: int) -> tuple[Image, ImageDetails]:
    """Return a photo for use at `side` pixels, and the details in its header."""
    return _decoder().decode_file(path, side)


@cache
def _decoder() -> ImageDecoder:
    decoder = ImageDecoder(DecodeLimits(), _MAX_PROCESSES)
    atexit.register(decoder.close)
    return decoder


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_decoder.cache_clear)  # the processes belong to the parent

"""Extraction: a file -> the descriptor of a photo and the details in its header, or the reason why there are none."""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from logt._internal.types import Floats
from logt.descriptors import Box, ImageError, Model
from logt.descriptors.boxes import region_side
from logt.descriptors.image_decoder import DecodeLimits, ImageDecoder
from logt.descriptors.image_io import ImageDetails
from logt.errors import InvalidInputError
from logt.photos.manifest import PhotoManifest
from logt.photos.regions import WHOLE

if TYPE_CHECKING:
    from PIL.Image import Image

Extracted = tuple[Floats, ImageDetails]
"""The raw descriptor of a photo, and the details in its header."""

_MAX_PROCESSES = 256  # that decode photos; they are started as threads ask for them


class ExtractElsewhere(Protocol):
    """Computes the descriptors of photos in other processes.

    block_size: photos that are given to it together.
    """

    block_size: int

    def __call__(self, manifest: PhotoManifest, index_path: Path, paths: Sequence[Path]) -> Sequence[Extracted | str]:
        """Return what `extract_photo` returns for each path."""


@cache
def _decoder() -> ImageDecoder:
    """Return the processes that decode photos, for all runs of this process."""
    decoder = ImageDecoder(DecodeLimits(), _MAX_PROCESSES)
    atexit.register(decoder.close)
    return decoder


os.register_at_fork(after_in_child=_decoder.cache_clear)  # the processes belong to the parent


def read_photo(path: Path, side: int) -> tuple[Image, ImageDetails]:
    """Return a photo for use at `side` pixels, and the details in its header."""
    image, _, details = _decoder().decode(path, side)
    return image, details


def extract_photo(path: Path, model: Model, boxes: Sequence[Box] = WHOLE) -> Extracted | str:
    """Return the raw descriptor of a photo and its details, or the reason why there are none.

    boxes: regions of the photo, as fractions; their descriptors follow each other.
    """
    try:
        image, details = read_photo(path, max(region_side(model.side, box) for box in boxes))
        return np.concatenate([model(image, box) for box in boxes]), details
    except ImageError as error:
        return error.reason
    except InvalidInputError as error:
        return str(error)

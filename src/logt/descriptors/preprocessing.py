"""Preprocessing: a region of an image, at a scale -> the input array of a network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from logt._internal.types import Floats
from logt._internal.validation import check_choice, check_float, check_fraction, check_int
from logt.descriptors.boxes import Box
from logt.descriptors.image_io import pillow
from logt.errors import InvalidInputError

if TYPE_CHECKING:
    from PIL.Image import Image

FITS = ("stretch", "crop")
"""How a region is fitted to a fixed size: all of it, with another aspect ratio, or its center."""

RESAMPLES = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""Filters of Pillow, by their numbers in preprocessor_config.json."""

_MIN_SIDE = 32  # pixels: networks return empty feature maps for smaller inputs
_MAX_SIZE = 1 << 14  # pixels; a larger input would exhaust the memory


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes the input of a network: resized, then (rgb / 255 - mean) / std.

    layout: "NCHW" or "NHWC", the order of the axes.
    mean, std: three numbers each, for red, green and blue.
    side: the longer side in pixels at scale 1.
    multiple: both sides are rounded to a multiple of this.
    size: (height, width) of a network that accepts one size only; side and multiple are then not used.
    fit: "stretch" resizes all of the image to `size`, "crop" the largest center with the same aspect ratio.
    zoom: the fraction of that center that is kept, for "crop".
    resample: the filter, such as "bicubic" or "bilinear".
    """

    layout: str = "NCHW"
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    side: int = 1024
    multiple: int = 1
    size: tuple[int, int] | None = None
    fit: str = "stretch"
    zoom: float = 1.0
    resample: str = "bicubic"

    def __post_init__(self) -> None:
        check_choice("layout", self.layout, ("NCHW", "NHWC"))
        check_choice("fit", self.fit, FITS)
        check_choice("resample", self.resample, RESAMPLES)
        for name in ("mean", "std"):
            values = getattr(self, name)
            if not isinstance(values, Sequence) or len(values) != 3:
                raise InvalidInputError(f"{name} must be three numbers, for red, green and blue, got {values!r}")
            object.__setattr__(self, name, tuple(check_float(name, value) for value in values))
        if min(self.std) <= 0:
            raise InvalidInputError(f"std must be above 0, got {self.std}")
        for name in ("side", "multiple"):
            object.__setattr__(self, name, _check_length(name, getattr(self, name)))
        object.__setattr__(self, "zoom", check_fraction("zoom", self.zoom))
        if self.size is not None:
            object.__setattr__(self, "size", _check_size(self.size))

    def __call__(self, image: Image, box: Box, scale: float) -> Floats:
        """Return the region of the image in the box, in pixels, as a batch of one."""
        height, width = self._input_size(box, scale)
        resample = getattr(pillow().Resampling, self.resample.upper())
        resized = image.resize((width, height), resample, box=self._fitted(box), reducing_gap=2.0)
        rgb: Floats = np.asarray(resized, np.float32)
        mean, std = (np.array(values, np.float32) for values in (self.mean, self.std))
        x: Floats = (rgb / np.float32(255) - mean) / std
        return np.ascontiguousarray(x.transpose(2, 0, 1) if self.layout == "NCHW" else x)[None]

    def _input_size(self, box: Box, scale: float) -> tuple[int, int]:
        """Return (height, width) of the input for a region of this shape."""
        if self.size is not None:
            return self.size
        width, height = box[2] - box[0], box[3] - box[1]
        factor = self.side * scale / max(width, height)
        return self._round(height * factor), self._round(width * factor)

    def _fitted(self, box: Box) -> Box:
        """Return the part of a region that the network sees."""
        if self.size is None or self.fit == "stretch":
            return box
        width, height = box[2] - box[0], box[3] - box[1]
        factor = min(width / self.size[1], height / self.size[0]) * self.zoom
        x, y = (width - self.size[1] * factor) / 2, (height - self.size[0] * factor) / 2
        return box[0] + max(0.0, x), box[1] + max(0.0, y), box[2] - max(0.0, x), box[3] - max(0.0, y)

    def _round(self, length: float) -> int:
        return math.ceil(max(_MIN_SIDE, length) / self.multiple - 0.5) * self.multiple


def _check_size(size: object) -> tuple[int, int]:
    values = [size, size] if isinstance(size, int) else size
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) != 2:
        raise InvalidInputError(f"size must be height and width, got {size!r}")
    height, width = (_check_length("size", value) for value in values)
    return height, width


def _check_length(name: str, value: object) -> int:
    length = check_int(name, value)
    if length > _MAX_SIZE:
        raise InvalidInputError(f"{name} must be at most {_MAX_SIZE:,} pixels, got {length}")
    return length

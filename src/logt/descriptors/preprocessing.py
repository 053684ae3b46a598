"""Preprocessing: a region of an image, at a scale -> the input array of a network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from logt._types import Floats
from logt._validation import check_choice, check_float, check_int
from logt.descriptors.image_io import pillow
from logt.errors import InvalidInputError

if TYPE_CHECKING:
    from PIL.Image import Image

Box = tuple[float, float, float, float]
"""Left, top, right, bottom, in pixels of the upright image."""

_MIN_SIDE = 32  # pixels: networks return empty feature maps for smaller inputs


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes the input of a network: resized, then (rgb / 255 - mean) / std.

    layout: "NCHW" or "NHWC", the order of the axes.
    mean, std: three numbers each, for red, green and blue.
    side: the longer side in pixels at scale 1.
    multiple: both sides are rounded to a multiple of this.
    size: (height, width) of a network that accepts one size only; side and multiple are then not used.
    """

    layout: str = "NCHW"
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    side: int = 1024
    multiple: int = 1
    size: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        check_choice("layout", self.layout, ("NCHW", "NHWC"))
        for name in ("mean", "std"):
            values = getattr(self, name)
            if not isinstance(values, Sequence) or len(values) != 3:
                raise InvalidInputError(f"{name} must be three numbers, for red, green and blue, got {values!r}")
            object.__setattr__(self, name, tuple(check_float(name, value) for value in values))
        if min(self.std) <= 0:
            raise InvalidInputError(f"std must be above 0, got {self.std}")
        for name in ("side", "multiple"):
            object.__setattr__(self, name, check_int(name, getattr(self, name)))

    def __call__(self, image: Image, box: Box, scale: float) -> Floats:
        """Return the region of the image in the box as a batch of one."""
        height, width = self._input_size(box, scale)
        resized = image.resize((width, height), pillow().Resampling.BICUBIC, box=box, reducing_gap=2.0)
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

    def _round(self, length: float) -> int:
        return math.ceil(max(_MIN_SIDE, length) / self.multiple - 0.5) * self.multiple

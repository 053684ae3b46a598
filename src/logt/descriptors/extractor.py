"""Descriptor extraction: an image -> one vector of norm 1, from a network that runs at several scales."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from logt._internal.types import Floats
from logt._internal.validation import check_float
from logt.descriptors.boxes import Box, to_pixels
from logt.descriptors.model import Model
from logt.descriptors.pooling import combine_scales, gem
from logt.errors import InvalidInputError

if TYPE_CHECKING:
    from PIL.Image import Image

SCALES = (1.0, 1 / math.sqrt(2), 0.5)
"""The three scales of the paper."""


@dataclass(frozen=True)
class DescriptorExtractor:
    """Computes the descriptor of an image.

    model: the network. scales: of the images it processes, by default those of the model, or (1, 1/√2, 1/2).
    p: the exponent of the generalized mean (GeM) pooling of feature maps.
    """

    model: Model
    scales: Sequence[float] = ()
    p: float = 3.0

    def __post_init__(self) -> None:
        wanted = self.scales or self.model.output.scales or SCALES
        fixed_size = self.model.preprocessing.size
        scales = (1.0,) if fixed_size else tuple(check_float("scale", scale) for scale in wanted)
        if not all(0 < scale <= 8 for scale in scales):
            raise InvalidInputError(f"scales must be above 0 and at most 8, got {self.scales!r}")
        object.__setattr__(self, "scales", scales)
        if not 0 < check_float("p", self.p) < math.inf:
            raise InvalidInputError(f"p must be above 0 and finite, got {self.p!r}")

    @property
    def side(self) -> int:
        """The longer side, in pixels, of the network's largest input."""
        preprocessing = self.model.preprocessing
        longest = max(preprocessing.size or (math.ceil(preprocessing.side * max(self.scales)),))
        return 2 * longest if preprocessing.fit == "crop" else longest

    def __call__(self, image: Image, box: Box | None = None) -> Floats:
        """Return the descriptor, not whitened, of an RGB image or of its region in a box."""
        region = to_pixels((0, 0, 1, 1) if box is None else box, image.size)
        outputs = [self.model(image, region, scale) for scale in self.scales]
        descriptor = combine_scales([gem(out, self.p) if out.ndim == 3 else out for out in outputs])
        if not np.isfinite(descriptor).all() or not descriptor.any():
            raise InvalidInputError(f"the model {self.model.name} returns zeros, NaN or infinity for this image")
        return descriptor

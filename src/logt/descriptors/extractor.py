"""Describing, picture -> one vector of length 1: the network at several scales, pooled, combined."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from logt._types import Floats
from logt._validation import check_float
from logt.descriptors.model import Box, Model
from logt.descriptors.pooling import combined, gem
from logt.errors import InvalidInputError

if TYPE_CHECKING:
    from PIL.Image import Image

SCALES = (1.0, 1 / math.sqrt(2), 0.5)
"""Three, as in the paper."""


@dataclass(frozen=True)
class Describer:
    """A model, the scales it looks at, and the power of the generalised mean."""

    model: Model
    scales: Sequence[float] = SCALES
    p: float = 3.0

    def __post_init__(self) -> None:
        scales = (1.0,) if self.model.prepare.size else tuple(check_float("scale", scale) for scale in self.scales)
        if not scales or not all(0 < scale <= 8 for scale in scales):
            raise InvalidInputError(f"scales must be above 0 and at most 8, got {self.scales!r}")
        object.__setattr__(self, "scales", scales)
        if not 0 < check_float("p", self.p) < math.inf:
            raise InvalidInputError(f"p must be above 0 and finite, got {self.p!r}")

    @property
    def side(self) -> int:
        """The longer side, in pixels, of the largest form of a picture that is looked at."""
        return max(self.model.prepare.size or (math.ceil(self.model.prepare.side * max(self.scales)),))

    def __call__(self, image: Image, box: Box | None = None) -> Floats:
        """The descriptor of a picture, or of the part of it in a box; not yet whitened."""
        whole = (0.0, 0.0, float(image.width), float(image.height))
        part = whole if box is None else checked_box(box, whole)
        outputs = [self.model(image, part, scale) for scale in self.scales]
        described = combined([gem(out, self.p) if out.ndim == 3 else out for out in outputs])
        if not np.isfinite(described).all() or not described.any():
            raise InvalidInputError(f"the model {self.model.name} gives no usable descriptor of this picture")
        return described


def checked_box(box: Box, whole: Box) -> Box:
    """The part of a box that lies in the picture."""
    try:
        left, top, right, bottom = (check_float("a side of the box", value) for value in box)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"a box is left, top, right, bottom in pixels, got {box!r}") from error
    inside = (max(left, whole[0]), max(top, whole[1]), min(right, whole[2]), min(bottom, whole[3]))
    if inside[2] - inside[0] < 1 or inside[3] - inside[1] < 1:
        raise InvalidInputError(
            f"the box {box} holds less than a pixel of the picture, which is {whole[2]:.0f} x {whole[3]:.0f}"
        )
    return inside

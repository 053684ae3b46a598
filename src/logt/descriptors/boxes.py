"""Boxes: the four numbers that a user gives for a region of an image -> that region in pixels."""

import math
from typing import Any

from logt._internal.validation import check_float
from logt.errors import InvalidInputError

Box = tuple[float, float, float, float]
"""Left, top, right, bottom of a region of the upright image.

Four numbers from 0 to 1 are fractions of its width and height. Other numbers are pixels, whole and inside the image.
"""

_RULE = (
    "a box is left,top,right,bottom, with left < right and top < bottom, as fractions from 0 to 1 or in whole pixels"
)
_MIN_FRACTION = 1e-6  # less than a pixel of any image


class BoxError(InvalidInputError):
    """A box that is not a region of an image."""


def parse_box(text: str) -> Box:
    """Return the box in a string such as "0.1,0.2,0.5,0.9"."""
    try:
        return check_box([float(part) for part in text.split(",")])
    except ValueError:
        raise BoxError(f"{_RULE}; got {text!r}") from None


def check_box(box: Any) -> Box:
    """Return the box as four floats; raise if it is a region of no image."""
    try:
        left, top, right, bottom = (check_float("a side of the box", value) for value in box)
    except (TypeError, ValueError):
        raise BoxError(f"{_RULE}; got {box!r}") from None
    checked = left, top, right, bottom
    units_fit = has_fractions(checked) or all(value.is_integer() for value in checked)
    if not (0 <= left < right and 0 <= top < bottom and units_fit):
        raise BoxError(f"{_RULE}; got {box!r}")
    if min(right - left, bottom - top) < _MIN_FRACTION:
        raise BoxError(f"a box must be at least {_MIN_FRACTION:g} of the image wide and high; got {box!r}")
    return checked


def has_fractions(box: Box) -> bool:
    """Return whether a box that was checked is in fractions, not in pixels."""
    return max(box) <= 1


def to_fractions(box: Box, size: tuple[int, int]) -> Box:
    """Return a box in pixels as fractions; raise if it goes beyond the image. size: of the image."""
    (width, height), (left, top, right, bottom) = size, to_pixels(box, size)
    return left / width, top / height, right / width, bottom / height


def region_side(side: int, box: Box | None) -> int:
    """Return the longer side of an image, in pixels, whose region in a box has `side` of them.

    box: as fractions; None for the whole image.
    """
    return side if box is None else math.ceil(side / max(box[2] - box[0], box[3] - box[1]))


def to_pixels(box: Any, size: tuple[int, int]) -> Box:
    """Return the box in pixels, at least one wide and high; raise if it goes beyond the image. size: of the image."""
    left, top, right, bottom = checked = check_box(box)
    width, height = size
    if has_fractions(checked):
        x, y = min(left * width, width - 1.0), min(top * height, height - 1.0)
        return x, y, max(x + 1, right * width), max(y + 1, bottom * height)
    if right > width or bottom > height:
        raise BoxError(f"the box {box} goes beyond the image, which has {width} x {height} pixels")
    return checked

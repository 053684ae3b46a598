"""Reading, a file -> a picture: RGB, upright, on white. Anything else ends in a PictureError."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from io import BytesIO
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from logt.errors import InvalidInputError, MissingExtraError

if TYPE_CHECKING:
    from PIL.Image import Image, Transpose

MAX_PIXELS = 1 << 28
"""Pixels that are decoded at most: 16,384 x 16,384, a gigabyte with four channels."""

LARGE = 1 << 25
"""Pictures of more pixels than this are decoded one at a time, however many threads read."""

# Not EPS and the like, which start other programs, nor what holds no photos.
_FORMATS = (
    *("AVIF", "BMP", "DIB", "GIF", "HEIF", "ICO", "JPEG", "JPEG2000", "MPO"),
    *("PCX", "PNG", "PPM", "PSD", "QOI", "TGA", "TIFF", "WEBP"),
)
_ORIENTATION = 0x0112
_opening = threading.Lock()
_decoding_large = threading.Lock()


class PictureError(InvalidInputError):
    """A file that is no readable picture; `reason` says why, without its name."""

    def __init__(self, name: str, reason: str):
        super().__init__(f"{name}: {reason}")
        self.reason = reason


def read_picture(
    source: str | Path | BinaryIO | bytes, *, side: int | None = None, max_pixels: int = MAX_PIXELS
) -> Image:
    """The picture as RGB, turned as its EXIF data say, on white where it is transparent; of an animation the first.

    With `side`, a larger picture may come back reduced, to no less than twice `side` on its longer side; JPEG files
    are then decoded at that size. Pictures that would decode to more than `max_pixels` are refused.
    """
    module = pillow()
    name = str(source) if isinstance(source, str | Path) else "the picture"
    try:
        with _stream(source) as stream, _header(stream) as image:
            width, height = image.size
            factor = 1 if side is None else max(1, max(width, height) // (2 * side))
            if factor > 1:
                image.draft(None, (ceil(width / factor), ceil(height / factor)))
            decoded = width * height if "progressive" in image.info else image.width * image.height
            if decoded > max_pixels:
                raise ValueError(f"{width} x {height} pixels; at most {max_pixels:,} are decoded")
            with _decoding_large if decoded > LARGE else nullcontext():
                return _plain(image, max(1, factor * image.width // width))
    except MemoryError as error:
        raise PictureError(name, "too large for the memory at hand") from error
    except module.UnidentifiedImageError as error:
        raise PictureError(name, "not a picture, or of a kind that is not read") from error
    except Exception as error:  # a broken file can raise anything in the decoder of its format
        reason = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
        raise PictureError(name, reason) from error


@cache
def pillow() -> Any:
    """Pillow, with the reader of HEIC if that is installed."""
    try:
        import PIL.Image
    except ImportError as error:
        raise MissingExtraError("pictures need Pillow: pip install 'logt-search[images]'") from error
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        pass
    else:
        register_heif_opener()
    return PIL.Image


@contextmanager
def _stream(source: str | Path | BinaryIO | bytes) -> Iterator[BinaryIO]:
    if isinstance(source, bytes):
        yield BytesIO(source)
    elif isinstance(source, str | Path):
        if not Path(source).is_file():
            raise ValueError("there is no such file" if not Path(source).exists() else "not a file")
        with open(source, "rb") as stream:
            yield stream
    else:
        yield source


def _header(stream: BinaryIO) -> Image:
    """The picture, not yet decoded. Pillow's own limit of pixels is the same for all and set aside meanwhile."""
    module = pillow()
    module.init()
    known = [kind for kind in _FORMATS if kind in module.OPEN]
    with _opening:
        limit, module.MAX_IMAGE_PIXELS = module.MAX_IMAGE_PIXELS, None
        try:
            image: Image = module.open(stream, formats=known)
        finally:
            module.MAX_IMAGE_PIXELS = limit
    return image


def _plain(image: Image, factor: int) -> Image:
    image.load()
    turn = _turn(image)
    if image.mode.startswith(("I", "F")):
        image = _grey(image)
    elif "transparency" in image.info or image.mode in ("P", "PA"):
        image = image.convert("RGBA")
    elif image.mode == "1":
        image = image.convert("L")
    if factor > 1:
        image = image.reduce(factor)
    if image.mode in ("RGBA", "LA", "RGBa", "La"):
        white = pillow().new("RGB", image.size, "white")
        white.paste(image.convert("RGB"), mask=image.convert("RGBA").getchannel("A"))
        image = white
    image = image.convert("RGB")
    return image if turn is None else image.transpose(turn)


def _turn(image: Image) -> Transpose | None:
    """What makes the picture upright; EXIF data that cannot be read turn nothing."""
    turns = pillow().Transpose
    try:
        orientation = int(image.getexif().get(_ORIENTATION, 1))
    except Exception:
        return None
    upright: Transpose | None = {
        2: turns.FLIP_LEFT_RIGHT,
        3: turns.ROTATE_180,
        4: turns.FLIP_TOP_BOTTOM,
        5: turns.TRANSPOSE,
        6: turns.ROTATE_270,
        7: turns.TRANSVERSE,
        8: turns.ROTATE_90,
    }.get(orientation)
    return upright


def _grey(image: Image) -> Image:
    """Grey of more than 8 bits: by its type if that says the range, else stretched over the values it has."""
    values = np.nan_to_num(np.asarray(image, np.float32), posinf=0, neginf=0)
    low, high = float(values.min()), float(values.max())
    if image.mode.startswith("I") and low >= 0 and high <= 65535:
        low, high = 0, 65535 if image.mode != "I" or high > 255 else 255
    elif low >= 0 and high <= 1:
        low, high = 0, 1
    scaled = (values - low) * (255 / max(high - low, 1e-30))
    return pillow().fromarray(scaled.astype(np.uint8))  # type: ignore[no-any-return]

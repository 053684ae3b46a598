"""Image files: decode a file to an upright RGB image on white, or raise ImageError."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cache
from io import BytesIO
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from logt._internal.extras import install_hint, needs_extra
from logt._internal.types import Floats
from logt.errors import InvalidInputError

if TYPE_CHECKING:
    from PIL.Image import Image

AnyImage: TypeAlias = "Image | NDArray[np.uint8] | str | Path | bytes | BinaryIO"
"""An image: of PIL, an array (height, width, 3), or the path, the bytes or an open file of one."""

MAX_PIXELS = 1 << 28
"""Images of more pixels are refused: 16,384 x 16,384 pixels take a gigabyte with four channels."""

NOT_AN_IMAGE = "not an image, or an unsupported format"
"""The reason of the error for a file whose content is of no known format."""

MAX_BYTES = 1 << 30
"""Images that take more bytes than this when they are decoded are refused."""

# EPS and similar formats start other programs; the others that are left out hold no photos.
_FORMATS = (
    *("AVIF", "BMP", "DIB", "GIF", "HEIF", "ICO", "JPEG", "JPEG2000", "MPO"),
    *("PCX", "PNG", "PPM", "PSD", "QOI", "TGA", "TIFF", "WEBP"),
)
# 16 million pixels take less than a second. Others may take many: JPEG2000 4 s, and some decoders are in Python.
_FAST_FORMATS = ("GIF", "HEIF", "JPEG", "MPO", "PNG", "TIFF")
# What makes an image upright, by the orientation in its EXIF data, from 2 on.
_TRANSPOSES = (
    *("FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE"),
    *("ROTATE_270", "TRANSVERSE", "ROTATE_90"),
)
_ORIENTATION, _CHANGED, _TAKEN, _DIGITIZED, _EXIF_IFD = 0x0112, 0x0132, 0x9003, 0x9004, 0x8769
_HEIC_STARTS = tuple(b"ftyp" + brand for brand in (b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1"))
_USUAL_SCANS = 16  # of a progressive JPEG file, at most; encoders write about 10
_SCANNED_BYTES = 1 << 27  # of a JPEG file, in which scans are counted
_MARKER = re.compile(rb"\xff([\xc0-\xcf\xd9-\xfe])")  # those that a length follows, and the end of the image
_START_OF_SCAN, _END_OF_IMAGE = b"\xda", b"\xd9"
_STRIP_PIXELS = 1 << 20  # pixels that are converted together; the rest of the image stays as it was decoded
_open_lock = threading.Lock()


class ImageError(InvalidInputError):
    """A file that cannot be read as an image; `reason` is the message without the file name."""

    def __init__(self, name: str, reason: str):
        super().__init__(f"{name}: {reason}")
        self.reason = reason


class TooManyPixelsError(ValueError):
    """An image has more pixels than the limit."""


class ImageDetails(NamedTuple):
    """Facts from the header of an image.

    width, height: pixels of the upright image. taken: the local time of the photo, as YYYY-MM-DDTHH:MM:SS, or "".
    """

    width: int
    height: int
    taken: str


def read_image(
    source: str | Path | BinaryIO | bytes,
    *,
    side: int | None = None,
    max_pixels: int = MAX_PIXELS,
    max_bytes: int = MAX_BYTES,
    max_slow_pixels: int = MAX_PIXELS,
) -> Image:
    """Read an image as RGB, rotated as its EXIF data state, on white where it is transparent.

    Of an animation, the first frame is read.

    source: a path, an open file, or the bytes of a file.
    side: allow a smaller result: the longer side of a larger image may be reduced to no less than 2 * side
    pixels, which makes JPEG files faster to decode.
    max_pixels: refuse images that would decode to more pixels than this. The pixels of a JPEG file with many scans
    count once for each 16 of them: decoding takes time for each scan, even if it is empty.
    max_bytes: refuse images that would decode to more bytes than this: pixels times 1 (gray, palette), 2 (gray with
    16 bits) or 4 bytes (all others).
    max_slow_pixels: as max_pixels, of formats that take long to decode.

    Raises ImageError if the file is missing, damaged, too large, or not an image.
    """
    with _raising_image_errors(source), _open_source(source) as stream, _open_image(stream) as image:
        scans = count_scans(stream) if image.format in ("JPEG", "MPO") else 1
        if image.format not in _FAST_FORMATS:
            max_pixels = min(max_pixels, max_slow_pixels)
        return _decode(image, side, max_pixels, max_bytes, scans)


def count_scans(stream: BinaryIO) -> int:
    """Return the number of scans of a JPEG file, without those of previews in its header or behind its end.

    A decoder goes through all pixels for each, even if it has no data.
    """
    before = stream.tell()
    stream.seek(0)
    content = stream.read(_SCANNED_BYTES)
    stream.seek(before)
    scans = position = 0
    while (marker := _MARKER.search(content, position)) and marker[1] != _END_OF_IMAGE:
        scans += marker[1] == _START_OF_SCAN
        length = int.from_bytes(content[marker.end() : marker.end() + 2])
        position = marker.end() + max(2, length)
    return scans


def as_rgb(image: AnyImage, side: int | None = None) -> Image:
    """Return what a user passes as an image, in RGB; files are read as by `read_image` with `side`."""
    module = pillow()
    if isinstance(image, str | Path | bytes) or hasattr(image, "read"):
        return read_image(cast(BinaryIO, image), side=side)
    if isinstance(image, np.ndarray):
        if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or not image.size:
            raise InvalidInputError(
                f"an array of an image must be uint8 of shape (height, width, 3), got {image.dtype} of {image.shape}"
            )
        image = cast("Image", module.fromarray(np.ascontiguousarray(image)))
    if not isinstance(image, module.Image):
        raise InvalidInputError(
            "an image must be a PIL image, a uint8 array (height, width, 3), or the path, the bytes or an open file "
            f"of one, got {type(image).__name__}"
        )
    opened = cast("Image", image)
    return opened if opened.mode == "RGB" else opened.convert("RGB")


def read_details(source: str | Path | BinaryIO | bytes) -> ImageDetails:
    """Return the size of an image and when it was taken, from its header.

    source: a path, an open file, or the bytes of a file.

    Raises ImageError if the file is missing, damaged, or not an image.
    """
    with _raising_image_errors(source), _open_source(source) as stream, _open_image(stream) as image:
        (width, height), behind = image.size, image.format == "PNG" and "exif" not in image.info
        exif = {} if behind else _read_exif(image)  # behind the pixels, which are not read
        if exif.get(_ORIENTATION, 1) in (5, 6, 7, 8):
            width, height = height, width
        return ImageDetails(width, height, _time_taken(exif))


def read_camera(source: str | Path | BinaryIO | bytes) -> dict[str, str]:
    """Return the camera, the lens and the exposure of a photo in words, as far as its EXIF data state them.

    Raises ImageError as `read_details` does.
    """
    with _raising_image_errors(source), _open_source(source) as stream, _open_image(stream) as image:
        exif, found = _read_exif(image), {}
    for name, (tag, describe) in _CAMERA.items():
        with suppress(Exception):  # a value of a damaged file can be anything
            if tag in exif and (text := describe(exif[tag]).strip(" \0")):
                found[name] = text[:100]
    return found


def _exposure(seconds: Any) -> str:
    return f"{float(seconds):g} s" if seconds >= 0.4 else f"1/{1 / float(seconds):.0f} s"


_CAMERA: dict[str, tuple[int, Callable[[Any], str]]] = {
    "Camera": (0x0110, str),
    "Lens": (0xA434, str),
    "Exposure": (0x829A, _exposure),
    "Aperture": (0x829D, lambda value: f"f/{float(value):g}"),
    "ISO": (0x8827, lambda value: f"{int(value)}"),
    "Focal length": (0x920A, lambda value: f"{float(value):g} mm"),
}


@contextmanager
def _raising_image_errors(source: object) -> Iterator[None]:
    """Raise every error, of a file or of its decoder, as an ImageError."""
    module = pillow()
    name = str(source) if isinstance(source, str | Path) else "the image"
    try:
        yield
    except MemoryError as error:
        raise ImageError(name, "not enough memory to decode it") from error
    except module.UnidentifiedImageError as error:
        raise ImageError(name, NOT_AN_IMAGE) from error
    except Exception as error:  # a damaged file can raise anything in the decoder of its format
        reason = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
        raise ImageError(name, reason) from error


def image_format(content: bytes) -> str:
    """Return the format of an image file, such as "JPEG", by its header."""
    with _open_image(BytesIO(content)) as image:
        return str(image.format)


@cache
def pillow() -> Any:
    """Return the module PIL.Image, with support for HEIC files if pillow-heif is installed."""
    with needs_extra("images", "reading images needs Pillow"):
        import PIL.Image
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        pass
    else:
        register_heif_opener()
    return PIL.Image


@contextmanager
def _open_source(source: str | Path | BinaryIO | bytes) -> Iterator[BinaryIO]:
    if isinstance(source, bytes):
        yield BytesIO(source)
    elif isinstance(source, str | Path):
        if not Path(source).is_file():
            raise ValueError("not a file" if Path(source).exists() else "file not found")
        with open(source, "rb") as stream:
            yield stream
    else:
        yield source


def _open_image(stream: BinaryIO) -> Image:
    """Read the header of an image; Pillow's own pixel limit, which is process-wide, is disabled meanwhile."""
    module = pillow()
    module.init()
    formats = [name for name in _FORMATS if name in module.OPEN]
    with _open_lock:
        limit, module.MAX_IMAGE_PIXELS = module.MAX_IMAGE_PIXELS, None
        try:
            image: Image = module.open(stream, formats=formats)
        except module.UnidentifiedImageError:
            stream.seek(0)
            if "HEIF" not in formats and stream.read(12)[4:] in _HEIC_STARTS:
                raise ValueError(f"a HEIC file: it needs pillow-heif: {install_hint('images')}") from None
            raise
        finally:
            module.MAX_IMAGE_PIXELS = limit
    return image


def _decode(image: Image, side: int | None, max_pixels: int, max_bytes: int, scans: int = 1) -> Image:
    width, height = image.size
    factor = 1 if side is None else max(1, max(width, height) // (2 * side))
    if factor > 1:
        image.draft(None, (ceil(width / factor), ceil(height / factor)))  # JPEG files decode at a smaller size
    # A JPEG file with several scans decodes all its coefficients, whatever the size requested.
    is_whole = scans > 1 or "progressive" in image.info
    pixels = width * height if is_whole else image.width * image.height
    if pixels * max(1, ceil(scans / _USUAL_SCANS)) > max_pixels:
        many = f" in {scans:,} scans" if scans > _USUAL_SCANS else ""
        raise TooManyPixelsError(f"the image has {width} x {height} pixels{many}; the limit is {max_pixels:,}")
    decoded = pixels * _bytes_per_pixel(image.mode)
    if decoded > max_bytes:
        raise ValueError(f"the image takes {decoded:,} bytes when it is decoded; the limit is {max_bytes:,}")
    return _to_upright_rgb(image, max(1, factor * image.width // width))


def _bytes_per_pixel(mode: str) -> int:
    if mode.startswith("I;16"):
        return 2
    return 1 if mode in ("1", "L", "P") else 4


def _to_upright_rgb(image: Image, factor: int) -> Image:
    """Convert any color mode to RGB on white, reduced by an integer factor, and rotate it as EXIF states.

    Strips are converted one by one: a conversion of the whole image can take several times its memory.
    """
    image.load()
    orientation = _read_exif(image).get(_ORIENTATION, 1)
    gray_range = _gray_range(image) if image.mode.startswith(("I", "F")) else None
    if image.mode == "RGB" and "transparency" not in image.info:
        rgb = image.reduce(factor) if factor > 1 else image
    else:
        rgb = pillow().new("RGB", (ceil(image.width / factor), ceil(image.height / factor)), "white")
        for top, strip in _strips(image, factor):
            rgb.paste(_strip_to_rgb(strip, factor, gray_range), (0, top // factor))
    if orientation not in range(2, 9):
        return rgb
    return rgb.transpose(pillow().Transpose[_TRANSPOSES[int(orientation) - 2]])


def _strips(image: Image, factor: int) -> Iterator[tuple[int, Image]]:
    """Yield (first row, strip) of horizontal strips whose height is a multiple of the factor."""
    rows = max(1, _STRIP_PIXELS // (image.width * factor)) * factor
    for top in range(0, image.height, rows):
        yield top, image.crop((0, top, image.width, min(top + rows, image.height)))


def _strip_to_rgb(image: Image, factor: int, gray_range: tuple[float, float] | None) -> Image:
    if gray_range is not None:
        image = _to_8_bit_gray(image, *gray_range)
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
    return image.convert("RGB")


def _read_exif(image: Image) -> dict[int, Any]:
    """Return the EXIF data; empty if they are damaged."""
    try:
        exif = image.getexif()
        return {**exif.get_ifd(_EXIF_IFD), **exif}
    except Exception:
        return {}


def _time_taken(exif: dict[int, Any]) -> str:
    for tag in (_TAKEN, _DIGITIZED, _CHANGED):
        with suppress(ValueError):
            return datetime.strptime(str(exif.get(tag))[:19], "%Y:%m:%d %H:%M:%S").isoformat()
    return ""


def _gray_values(image: Image) -> Floats:
    return np.nan_to_num(np.asarray(image, np.float32), posinf=0, neginf=0)


def _gray_range(image: Image) -> tuple[float, float]:
    """Return the gray values that become 0 and 255: the range of their type or else their own range."""
    ranges = [(values.min(), values.max()) for values in (_gray_values(strip) for _, strip in _strips(image, 1))]
    low, high = (float(pick(limits)) for pick, limits in zip((min, max), zip(*ranges, strict=True), strict=True))
    if image.mode.startswith("I") and low >= 0 and high <= 65535:
        return 0, 65535 if image.mode != "I" or high > 255 else 255
    return (0, 1) if low >= 0 and high <= 1 else (low, high)


def _to_8_bit_gray(image: Image, low: float, high: float) -> Image:
    scaled = (_gray_values(image) - low) * (255 / max(high - low, 1e-30))
    return pillow().fromarray(scaled.astype(np.uint8))  # type: ignore[no-any-return]

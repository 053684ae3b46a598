"""Image files of all formats and modes become upright RGB images, in little memory, or are refused."""

import io
import struct
import tracemalloc
import zlib

import numpy as np
import pytest

from logt.descriptors import ImageError, image_io, read_image

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("onnxruntime")
from PIL import ImageOps  # noqa: E402
from synthetic_photos import jpeg_of_scans  # noqa: E402
from test_descriptors import pixels  # noqa: E402


def encode(image, kind, **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def difference(a, b):
    assert a.size == b.size
    return np.abs(np.asarray(a, float) - np.asarray(b.convert("RGB"), float)).max()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_rotated_upright(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encode(pixels(), "PNG", exif=exif)
    assert difference(read_image(data), ImageOps.exif_transpose(Image.open(io.BytesIO(data)))) == 0
    assert read_image(data).size == ((40, 30) if orientation < 5 else (30, 40))


def test_damaged_exif_data_are_ignored():
    data = encode(pixels(), "JPEG", exif=b"Exif\x00\x00" + b"\xff" * 40)
    assert read_image(data).size == (40, 30)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "RGB", "L"])
def test_transparent_pixels_become_white(mode):
    options = {} if mode in ("RGBA", "LA") else {"transparency": (0, 0, 0) if mode == "RGB" else 0}
    read = read_image(encode(Image.new(mode, (20, 10)), "PNG", **options))
    assert read.mode == "RGB"
    assert np.asarray(read).min() == 255
    half = read_image(encode(Image.new("RGBA", (4, 4), (0, 0, 0, 128)), "PNG"))
    assert abs(int(np.asarray(half)[0, 0, 0]) - 127) <= 1


@pytest.mark.parametrize(
    ("mode", "kind", "value", "expected"),
    [
        ("L", "PNG", 100, 100),
        ("1", "PNG", 1, 255),
        ("CMYK", "JPEG", (0, 0, 0, 55), 200),
        ("CMYK", "TIFF", (0, 0, 0, 55), 200),
        ("I;16", "PNG", 257 * 100, 100),
        ("I;16", "TIFF", 257 * 100, 100),
        ("I", "TIFF", 257 * 100, 100),
        ("F", "TIFF", 0.5, 127),
        ("YCbCr", "JPEG", (100, 128, 128), 100),
    ],
)
def test_every_color_mode_becomes_rgb(mode, kind, value, expected):
    read = read_image(encode(Image.new(mode, (16, 16), value), kind))
    assert read.mode == "RGB"
    assert np.abs(np.asarray(read, int) - expected).max() <= 3


@pytest.mark.parametrize("kind", ["AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "TIFF", "WEBP"])
def test_formats(kind):
    image = pixels()
    assert difference(read_image(encode(image, kind)), image) <= (
        20 if kind in ("AVIF", "GIF", "JPEG", "WEBP") else 0
    )


def test_heic_with_pillow_heif():
    heif = pytest.importorskip("pillow_heif")
    heif.register_heif_opener()
    assert difference(read_image(encode(pixels(64, 48), "HEIF", quality=95)), pixels(64, 48)) <= 20


def test_formats_that_start_other_programs_are_refused():
    with pytest.raises(ImageError, match="not an image"):
        read_image(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")


def test_an_image_of_too_many_pixels_is_refused_before_it_is_decoded():
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"\0" * 1_000_000)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    limit = Image.MAX_IMAGE_PIXELS
    with pytest.raises(ImageError, match="20000 x 20000 pixels; the limit is 268,435,456"):
        read_image(bomb, side=100)
    assert limit == Image.MAX_IMAGE_PIXELS
    small = encode(Image.new("RGB", (100, 100)), "PNG")
    assert read_image(small, max_bytes=40_000).size == (100, 100)
    with pytest.raises(ImageError, match="40,000 bytes"):
        read_image(small, max_bytes=39_999)


def test_the_pixels_of_a_jpeg_file_count_once_for_each_16_scans():
    many = jpeg_of_scans(640, 480, 150)  # and 10 as usual
    assert read_image(many, max_pixels=640 * 480 * 10).size == (640, 480)
    with pytest.raises(ImageError, match="640 x 480 pixels in 160 scans; the limit is 3,071,999"):
        read_image(many, max_pixels=640 * 480 * 10 - 1)


def test_scans_of_previews_and_behind_the_end_do_not_count():
    plain = encode(pixels(), "JPEG")
    assert image_io.count_scans(io.BytesIO(plain)) == 1
    assert (
        image_io.count_scans(io.BytesIO(encode(pixels(), "JPEG", exif=b"Exif\0\0" + plain) + b"\xff\xda" * 1000)) == 1
    )
    assert image_io.count_scans(io.BytesIO(encode(pixels(), "JPEG", progressive=True))) == 10
    assert (
        image_io.count_scans(io.BytesIO(plain[:-2] + b"\xff\x02\xff\xff" + b"\xff\xda\0\2" * 100)) == 101
    )  # nothing hides


def test_a_large_image_is_reduced_only_on_request():
    data = encode(pixels(1600, 1200), "PNG")
    for side, size in ((None, (1600, 1200)), (200, (400, 300)), (800, (1600, 1200))):
        assert read_image(data, side=side).size == size
    data = encode(Image.new("L", (12_000, 10_000), 80), "JPEG")
    read = read_image(data, side=400, max_pixels=4_000_000)
    assert 800 <= max(read.size) <= 2400
    assert abs(read.width / read.height - 1.2) < 0.01
    with pytest.raises(ImageError, match="the limit is 4,000,000"):
        read_image(data, max_pixels=4_000_000)
    with pytest.raises(ImageError, match="the limit is"):  # all its coefficients are decoded, whatever the size
        read_image(encode(Image.new("L", (3000, 2000)), "JPEG", progressive=True), side=100, max_pixels=4_000_000)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I", "I;16", "F"])
@pytest.mark.parametrize("side", [None, 20])
def test_strips_give_the_image_that_the_whole_gives(mode, side, monkeypatch):
    values = np.random.default_rng(0).integers(0, 256, (130, 170, 4), np.uint8)
    if mode == "I;16":
        image = Image.fromarray(values[:, :, 0].astype(np.uint16) * 257)
    elif mode == "LA":
        image = Image.fromarray(values[:, :, :2])
    else:
        image = Image.fromarray(values).convert("RGB" if mode == "CMYK" else "RGBA").convert(mode)
    whole = image_io._decode(image.copy(), side, 1 << 20, 1 << 20)
    monkeypatch.setattr(image_io, "_STRIP_PIXELS", 1000)
    strips = image_io._decode(image.copy(), side, 1 << 20, 1 << 20)
    assert np.array_equal(np.asarray(whole), np.asarray(strips))


def test_a_gray_image_of_16_bits_is_converted_in_little_memory():
    image = Image.fromarray(np.full((3000, 3000), 1000, np.uint16))
    tracemalloc.start()
    try:
        image_io._decode(image, 100, 1 << 30, 1 << 30)
        assert tracemalloc.get_traced_memory()[1] < 60 << 20
    finally:
        tracemalloc.stop()


def test_a_heic_file_without_its_decoder_names_the_extra(tmp_path, monkeypatch):
    pillow_heif = pytest.importorskip("pillow_heif")
    pillow_heif.from_pillow(Image.new("RGB", (64, 48), "red")).save(tmp_path / "photo.heic")
    assert read_image(tmp_path / "photo.heic").size == (64, 48)
    monkeypatch.delitem(image_io.pillow().OPEN, "HEIF")
    with pytest.raises(ImageError, match=r"a HEIC file: it needs pillow-heif: pip install 'logt-search\[images\]'"):
        read_image(tmp_path / "photo.heic")

"""Decoding of images by the processes of the server: limits of memory and time, and faults."""

import os
import signal
import sys
import threading
from contextlib import closing
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from server_testing import wait_until
from synthetic_photos import draw_scene, encode_jpeg

from logt.descriptors import ImageError
from logt.descriptors.image_decoder import DecodeLimits, ImageDecoder, LargeImageError

PHOTO = encode_jpeg(draw_scene(0))


@pytest.fixture(scope="module")
def decoder():
    """A decoder with one process, which all tests share that do not stop it."""
    with closing(ImageDecoder(DecodeLimits(), 1)) as decoder:
        yield decoder


@pytest.fixture
def new_decoder():
    """A decoder whose process has not started yet."""
    decoder = ImageDecoder(DecodeLimits(), 1)
    yield decoder
    decoder.close()


def encode(image, name="PNG"):
    out = BytesIO()
    image.save(out, name, compress_level=1)
    return out.getvalue()


def only_child(decoder):
    (child,) = decoder._children.children
    return child


def test_an_image_is_decoded_as_in_this_process(decoder, tmp_path):
    image, extension, details = decoder.decode(PHOTO, 1000)
    assert (extension, details.width) == ("jpg", image.width)
    assert image.tobytes() == Image.open(BytesIO(PHOTO)).convert("RGB").tobytes()
    (tmp_path / "a.png").write_bytes(encode(draw_scene(1)))
    image, _, details = decoder.decode(tmp_path / "a.png", 1000)
    assert image.size == details[:2] == draw_scene(1).size
    for content in (b"", b"text", PHOTO[:500]):
        with pytest.raises(ImageError):
            decoder.decode(content, 100)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("mode", ["I;16", "RGBA", "P"])
def test_an_image_takes_little_more_than_its_decoded_bytes(new_decoder, mode):
    def peak():
        status = Path(f"/proc/{only_child(new_decoder).pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) << 10

    new_decoder.decode(encode(Image.new(mode, (10, 10))), 100)
    before = peak()
    image = new_decoder.decode(encode(Image.new(mode, (4000, 4000))), 100).image
    assert max(image.size) >= 200
    assert peak() - before < 4000 * 4000 * 4 + (80 << 20)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit the memory of a process")
def test_an_image_that_needs_too_much_memory_is_refused_and_the_next_is_decoded(new_decoder, monkeypatch):
    monkeypatch.setattr("logt.descriptors.image_decoder._OTHER_BYTES", 0)
    new_decoder._limits = DecodeLimits(decoded_bytes=40 << 20)
    for content in [encode(Image.new("RGB", (3000, 3000)))] * 2:
        new_decoder.decode(content, 10)  # 36 MB: allowed
    new_decoder._limits = DecodeLimits()  # the limit of the process stays
    with pytest.raises(ImageError, match="memory"):
        new_decoder.decode(encode(Image.new("RGB", (5500, 5500))), 10_000)
    assert new_decoder.decode(PHOTO, 100)[0].size


@pytest.mark.parametrize("fault", ["killed", "hangs"])
def test_a_decoder_that_ends_or_hangs_is_replaced(decoder, fault):
    decoder.decode(PHOTO, 100)
    child = only_child(decoder)
    os.kill(child.pid, signal.SIGSTOP)
    if fault == "killed":
        threading.Timer(0.2, os.kill, (child.pid, signal.SIGKILL)).start()
    else:
        decoder._limits = DecodeLimits(seconds=0.3)
    with pytest.raises(ImageError, match="memory or time"):
        decoder.decode(PHOTO, 100)
    assert not child.alive
    decoder._limits = DecodeLimits()
    assert decoder.decode(PHOTO, 100)[1] == "jpg"


def test_processes_are_ended_when_idle_and_when_the_decoder_is_closed():
    decoder = ImageDecoder(DecodeLimits(), 1, idle_seconds=0.1)
    decoder.decode(PHOTO, 100)
    first = only_child(decoder)
    wait_until(lambda: not first.alive)
    decoder._children._idle_seconds = 30
    assert decoder.decode(PHOTO, 100)[1] == "jpg"
    second = only_child(decoder)
    assert second.alive
    decoder.close()
    assert not second.alive


def test_an_interrupt_does_not_mix_up_replies(decoder, monkeypatch):
    decoder.decode(PHOTO, 100)

    def interrupt(stream):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("logt._internal.subprocess_worker._read", interrupt)
        with pytest.raises(KeyboardInterrupt):
            decoder.decode(PHOTO, 100)
    other = encode(draw_scene(2, size=(50, 40)))
    assert decoder.decode(other, 100)[0].size == (50, 40)


def test_large_images_are_decoded_one_at_a_time():
    with closing(ImageDecoder(DecodeLimits(pixels=100_000, large_pixels=1000), 1)) as decoder:
        assert decoder._large_child._slots.acquire(timeout=1)
        assert decoder.decode(encode(Image.new("L", (20, 20))), 100)[0].size == (20, 20)  # small: no need to wait
        decoded = []
        thread = threading.Thread(target=lambda: decoded.append(decoder.decode(PHOTO, 1000)))
        thread.start()
        thread.join(0.5)
        assert not decoded
        decoder._large_child._slots.release()
        thread.join()
        assert decoded[0][0].size == (240, 180)
        with pytest.raises(ImageError, match="100,000"):
            decoder.decode(encode(Image.new("L", (400, 400))), 100)


@pytest.mark.parametrize("name", ["AVIF", "BMP", "JPEG", "JPEG2000", "PNG", "PPM", "QOI", "WEBP"])
def test_images_of_slow_formats_are_large_from_fewer_pixels_on(decoder, monkeypatch, name):
    if name not in Image.SAVE:
        pytest.skip(f"this Pillow writes no {name}")
    monkeypatch.setattr(decoder, "_limits", DecodeLimits(slow_pixels=600))
    image, larger = (encode(draw_scene(0, size=(30, height)), name) for height in (20, 21))
    assert decoder.small.decode(image, 100).image.size == (30, 20)
    if name not in ("JPEG", "PNG"):
        with pytest.raises(LargeImageError, match="the limit is 600"):
            decoder.small.decode(larger, 100)
    assert decoder.decode(larger, 100).image.size == (30, 21)


def test_an_image_that_takes_long_is_decoded_again_where_large_ones_are():
    with closing(ImageDecoder(DecodeLimits(), 1)) as decoder:
        decoder.decode(PHOTO, 100)
        decoder._limits = DecodeLimits(small_seconds=0.3)
        os.kill(only_child(decoder).pid, signal.SIGSTOP)
        with pytest.raises(LargeImageError, match="time"):
            decoder.small.decode(PHOTO, 100)
        assert not decoder._children.children
        decoder._children._idle.append(stopped := decoder._start())
        os.kill(stopped.pid, signal.SIGSTOP)
        assert decoder.decode(PHOTO, 1000).image.size == (240, 180)
        assert not stopped.alive
        assert len(decoder._large_child.children) == 1


def test_the_size_and_the_time_are_read_from_the_header(decoder, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate
    exif.get_ifd(0x8769)[0x9003] = "2021:07:30 18:05:09"
    draw_scene(0).save(tmp_path / "a.jpg", exif=exif)
    draw_scene(0).save(tmp_path / "b.png", exif=exif)
    exif.get_ifd(0x8769)[0x9003] = "0000:00:00 00:00:00"
    draw_scene(0).save(tmp_path / "c.jpg", exif=exif)
    assert decoder.read_details(tmp_path / "a.jpg") == (180, 240, "2021-07-30T18:05:09")
    assert decoder.read_details(tmp_path / "b.png") == (180, 240, "2021-07-30T18:05:09")
    assert decoder.read_details(tmp_path / "c.jpg") == (180, 240, "")


def test_what_a_worker_sees_is_not_what_is_in_the_current_folder(new_decoder, tmp_path, monkeypatch):
    (tmp_path / "logt.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    assert np.asarray(new_decoder.decode(PHOTO, 100)[0]).any()

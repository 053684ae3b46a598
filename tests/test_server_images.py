"""Decoding of images by the processes of the server: limits of memory and time, and faults."""

from __future__ import annotations

import os
import signal
import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from server_testing import API, error_message, open_client
from synthetic_photos import SyntheticPhotos, draw_scene, encode_jpeg, write_photos

from logt.server.errors import HTTPError
from logt.server.image_decoder import ImageDecoder
from logt.server.photo_collection import PhotoCollection
from logt.server.settings import Limits

PHOTO = encode_jpeg(draw_scene(0))


@pytest.fixture
def decoder():
    decoder = ImageDecoder(Limits(), 1)
    yield decoder
    decoder.close()


def encode(image, name="PNG"):
    out = BytesIO()
    image.save(out, name, compress_level=1)
    return out.getvalue()


def current_worker(decoder):
    worker = decoder._idle.get()
    decoder._idle.put(worker)
    return worker


def test_an_image_is_decoded_as_in_this_process(decoder, tmp_path):
    image, extension = decoder.decode(PHOTO, 1000)
    assert extension == "jpg"
    assert image.tobytes() == Image.open(BytesIO(PHOTO)).convert("RGB").tobytes()
    (tmp_path / "a.png").write_bytes(encode(draw_scene(1)))
    assert decoder.decode_file(tmp_path / "a.png", 1000).size == draw_scene(1).size
    for content in (b"", b"text", PHOTO[:500]):
        with pytest.raises(HTTPError):
            decoder.decode(content, 100)


def test_decoded_bytes_are_limited_by_mode_and_not_only_by_pixels(tmp_path):
    write_photos(tmp_path / "photos", tmp_path / "index", 2, 1)
    photos = PhotoCollection(SyntheticPhotos(tmp_path / "photos", tmp_path / "index"))
    with open_client(photos, limits=Limits(decoded_bytes=200 * 200)) as client:

        def search(mode, side):
            return client.post(f"{API}/search/image", files={"photo": encode(Image.new(mode, (side, side)))})

        assert search("L", 200).status_code == 200
        for mode, side in (("L", 201), ("I;16", 150), ("RGB", 101), ("RGBA", 101)):
            assert "40,000" in error_message(search(mode, side), 415, "not_a_picture")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("mode", ["I;16", "RGBA", "P"])
def test_an_image_takes_little_more_than_its_decoded_bytes(decoder, mode):
    def peak():
        status = Path(f"/proc/{current_worker(decoder)._process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) << 10

    decoder.decode(encode(Image.new(mode, (10, 10))), 100)
    before = peak()
    image, _ = decoder.decode(encode(Image.new(mode, (4000, 4000))), 100)
    assert max(image.size) >= 200
    assert peak() - before < 4000 * 4000 * 4 + (80 << 20)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit the memory of a process")
def test_an_image_that_needs_too_much_memory_is_refused_and_the_next_is_decoded(monkeypatch):
    monkeypatch.setattr("logt.server.image_decoder._OTHER_BYTES", 0)
    decoder = ImageDecoder(Limits(decoded_bytes=40 << 20), 1)
    try:
        for content in [encode(Image.new("RGB", (3000, 3000)))] * 2:
            decoder.decode(content, 10)  # 36 MB: allowed
        monkeypatch.setattr(decoder, "_limits", Limits())  # the limit of the process stays
        with pytest.raises(HTTPError, match="memory"):
            decoder.decode(encode(Image.new("RGB", (9000, 9000))), 10_000)
        assert decoder.decode(PHOTO, 100)[0].size
    finally:
        decoder.close()


@pytest.mark.parametrize("fault", ["killed", "stopped"])
def test_a_decoder_that_ends_or_hangs_is_replaced(fault):
    decoder = ImageDecoder(Limits(seconds=20.0), 1)
    try:
        decoder.decode(PHOTO, 100)
        process = current_worker(decoder)._process
        os.kill(process.pid, signal.SIGKILL if fault == "killed" else signal.SIGSTOP)
        decoder._limits = Limits(seconds=0.3)
        with pytest.raises(HTTPError, match="memory or time"):
            decoder.decode(PHOTO, 100)
        assert process.poll() is not None
        decoder._limits = Limits(seconds=20.0)
        assert decoder.decode(PHOTO, 100)[1] == "jpg"
    finally:
        decoder.close()


def test_closing_stops_the_processes(decoder):
    decoder.decode(PHOTO, 100)
    process = current_worker(decoder)._process
    decoder.close()
    assert process.poll() is not None
    decoder._idle.put(None)


def test_what_a_worker_sees_is_not_what_is_in_the_current_folder(decoder, tmp_path, monkeypatch):
    (tmp_path / "logt.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    assert np.asarray(decoder.decode(PHOTO, 100)[0]).any()

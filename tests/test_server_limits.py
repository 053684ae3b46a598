"""Limits of the server and invalid requests: sizes, values, images, time, load."""

import json
import re
import struct
import threading
import tracemalloc
import zlib
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO

import pytest
from PIL import Image
from server_testing import API, error_message, open_album, open_client, wait_until
from synthetic_photos import SyntheticPhotos, draw_scene, encode_jpeg, jpeg_of_scans

from logt.descriptors import image_io
from logt.descriptors.image_decoder import ImageDecoder
from logt.server import api, web
from logt.server.api import parse_json
from logt.server.collection import BaseCollection, VectorCollection
from logt.server.errors import HTTPError
from logt.server.photo_collection import PhotoCollection
from logt.server.schemas import AddRequest
from logt.server.settings import Limits

PHOTO = encode_jpeg(draw_scene(0))


def test_large_bodies_are_refused_with_and_without_content_length(photo_album):
    def chunks():
        for _ in range(60):
            yield b"x" * 1000

    large = {"photo": b"x" * 60_000}
    with open_client(open_album(photo_album), limits=Limits(body_bytes=50_000)) as client:
        assert "50,000 bytes" in error_message(client.post(f"{API}/search/photo", files=large), 413, "too_large")
        for path, content_type in (("photo", "multipart/form-data; boundary=b"), ("", "application/json")):
            headers = {"Content-Type": content_type}
            response = client.post(f"{API}/search/{path}".rstrip("/"), content=chunks(), headers=headers)
            error_message(response, 413, "too_large")
        page = client.post("/", files=large)
        assert page.status_code == 413
        assert "Too large" in page.text
        assert client.post(f"{API}/search/photo", files={"photo": PHOTO}).status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/search", {"vectors": [[0.0] * 108], "k": 1001}, "1,000"),
        ("/search", {"vectors": [[0.0] * 108] * 257, "k": 1}, "256"),
        ("/search/ids", {"ids": ["a"] * 257}, "256"),
        ("/vectors", {"vectors": [[0.5]] * 10_001}, "10,000"),
        ("/vectors/remove", {"ids": ["a"] * 10_001}, "10,000"),
        ("/search", {"vectors": [[0.5] * 107]}, "107"),
        ("/search", {"vectors": [["x"] * 108]}, "vectors.0.0"),
        ("/search", {"vectors": [[1.0] * 108, [1.0]]}, "vectors"),
        ("/search", {"vectors": [[0.0] * 108]}, "0"),
        ("/search", {"vectors": []}, "vectors"),
        ("/search", {"vectors": [[1.0] * 108], "k": 0}, "k"),
        ("/search", {"vectors": [[1.0] * 108], "effort": 2}, "effort"),
        ("/search", {"vectors": [[1.0] * 108], "wrong": 2}, "wrong"),
        ("/search/ids", {"ids": [True]}, "ids"),
        ("/search/region", {"id": "scene 00/photo 0.jpg", "box": [0, 0, 0, 1]}, "left < right"),
        ("/search/region", {"id": "scene 00/photo 0.jpg", "box": [0, 0, 1, 5e-324]}, "at least 1e-06"),
        ("/search/region", {"id": "scene 00/photo 0.jpg", "box": [0, 0, 241, 180]}, "which has 240 x 180 pixels"),
    ],
)
def test_invalid_values_are_named(photo_client, path, body, expected):
    response = photo_client.post(API + path, json=body)
    error = response.json()["error"]
    assert (response.status_code, error["code"] in ("invalid_input", "bad_box")) == (422, True)
    assert expected in error["message"]


def test_invalid_json_is_refused(photo_client):
    for body in (b"", b"{", b"[1]", b"null", b'{"vectors": [[NaN]]}', b"\xff\xfe", b"[" * 100_000):
        response = photo_client.post(f"{API}/search", content=body, headers={"Content-Type": "application/json"})
        assert error_message(response, 422, "invalid_input")


def decompression_bomb(side):
    """Return a PNG of less than a kilobyte that claims side x side pixels."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 99)) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"text",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        PHOTO[:500],
        decompression_bomb(100_000),
        b"GIF89a",
        b"BM" + b"\xff" * 60,
    ],
    ids=["empty", "text", "svg", "truncated", "bomb", "gif", "bmp"],
)
def test_unreadable_images_are_refused(photo_client, content):
    files = {"photo": ("a.jpg", content)}
    message = error_message(photo_client.post(f"{API}/search/photo", files=files), 415, "not_a_photo")
    assert "object at" not in message
    page = photo_client.post("/", files=files)
    assert page.status_code == 415
    assert "Not a photo" in page.text
    assert page.text.count("Supported: ") == 1
    names = {"JPEG2000": "JPEG 2000", "HEIF": "HEIC", "WEBP": "WebP", "DIB": "BMP"}
    assert all(re.search(rf"\b{names.get(name, name)}\b", page.text) for name in image_io._FORMATS)


def test_pixels_and_decoded_bytes_are_limited(photo_album):
    with open_client(open_album(photo_album), limits=Limits(pixels=45_000, decoded_bytes=200 * 200)) as client:

        def search(mode, side):
            out = BytesIO()
            Image.new(mode, (side, side)).save(out, "PNG")
            return client.post(f"{API}/search/photo", files={"photo": out.getvalue()})

        assert search("L", 200).status_code == 200
        for mode, side, limit in (("1", 220, "45,000"), ("L", 201, "40,000"), ("RGB", 101, "40,000")):
            assert limit in error_message(search(mode, side), 415, "not_a_photo")


@pytest.fixture
def unblock(monkeypatch):
    """An event that searches by photo wait for."""
    event, descriptor = threading.Event(), SyntheticPhotos.descriptor

    def wait_and_describe(*arguments):
        event.wait(30)
        return descriptor(*arguments)

    monkeypatch.setattr(SyntheticPhotos, "descriptor", wait_and_describe)
    return event


def test_a_slow_request_times_out_and_others_are_served(photo_album, unblock):
    with open_client(open_album(photo_album), limits=Limits(seconds=0.3)) as client:
        error_message(client.post(f"{API}/search/photo", files={"photo": PHOTO}), 504, "timeout")
        assert client.post(f"{API}/search/ids", json={"ids": [photo_album[2][0]]}).status_code == 200
        unblock.set()


def test_requests_beyond_the_queue_are_refused(photo_album, unblock):
    with (
        open_client(open_album(photo_album), workers=1, limits=Limits(waiting=1)) as client,
        ThreadPoolExecutor(4) as pool,
    ):
        requests = [pool.submit(client.post, f"{API}/search/photo", files={"photo": PHOTO}) for _ in range(4)]
        wait_until(lambda: sum(request.done() for request in requests) == 2)
        unblock.set()
        responses = [request.result() for request in requests]
    assert sorted(response.status_code for response in responses) == [200, 200, 503, 503]
    assert all(response.headers["Retry-After"] for response in responses if response.status_code == 503)


@pytest.fixture
def held_bombs(monkeypatch):
    """An event that images of more than 1000 pixels wait for when they are decoded."""
    event, send = threading.Event(), ImageDecoder._send

    def wait_and_send(*arguments, **request):
        if request.get("max_pixels", 0) > 1000:
            event.wait(30)
        return send(*arguments, **request)

    monkeypatch.setattr(ImageDecoder, "_send", wait_and_send)
    monkeypatch.setattr("logt.server.service._LARGE_PIXELS", 1000)
    monkeypatch.setattr("logt.server.service._SLOW_PIXELS", 500, raising=False)
    monkeypatch.setattr("logt.descriptors.image_decoder.LARGE_PIXELS", 1000)
    yield event
    event.set()


JPEG_2000 = BytesIO()
draw_scene(1, size=(30, 20)).save(JPEG_2000, "JPEG2000")
BOMBS = {
    "pixels": encode_jpeg(draw_scene(1)),
    "scans": jpeg_of_scans(30, 20, 100),
    "slow format": JPEG_2000.getvalue(),
}
SMALL_PHOTO = encode_jpeg(draw_scene(0, size=(30, 20)))


@pytest.mark.parametrize(
    ("path", "many"),
    [("/", "pixels"), *((f"{API}/search/photo", many) for many in BOMBS)],
)
def test_pictures_that_may_take_long_to_decode_do_not_hold_up_others(photo_album, held_bombs, path, many):
    """They wait for one process of their own; if too many wait, the next is refused."""
    with (
        open_client(open_album(photo_album), workers=2, limits=Limits(seconds=10)) as client,
        ThreadPoolExecutor(20) as pool,
    ):

        def send(content):
            return client.post(path, files={"photo": content})

        bombs = [pool.submit(send, BOMBS[many]) for _ in range(15)]
        wait_until(lambda: client.app_service.image_pool.pending >= 9)
        assert send(SMALL_PHOTO).status_code == 200
        assert not any(bomb.done() and bomb.result().status_code == 200 for bomb in bombs)
        held_bombs.set()
        statuses = {bomb.result().status_code for bomb in bombs}
    assert statuses == {200, 503}


def test_a_progressive_jpeg_of_so_many_scans_that_it_takes_seconds_is_refused(photo_client):
    bomb = jpeg_of_scans(4090, 4090, 1400)
    assert len(bomb) < 100_000
    message = error_message(photo_client.post(f"{API}/search/photo", files={"photo": bomb}), 415, "not_a_photo")
    assert message.endswith("4090 x 4090 pixels in 1,410 scans; the limit is 100,000,000")
    assert photo_client.post(f"{API}/search/photo", files={"photo": PHOTO}).status_code == 200


MEGABYTE = 1 << 20
HOSTILE_BODIES = {
    "empty rows": b'{"vectors":[' + b"[]," * (10 * MEGABYTE // 3) + b"[]]}",
    "rows of one": b'{"vectors":[' + b"[0]," * (10 * MEGABYTE // 4) + b"[0]]}",
    "one long row": b'{"vectors":[[' + b"0," * (5 * MEGABYTE) + b"0]]}",
    "bad ids": b'{"ids":[' + b"-1," * (MEGABYTE // 3) + b"-1]}",
    "empty ids": b'{"ids":[' + b'"",' * (10 * MEGABYTE // 3) + b'""]}',
    "bad rows": b'{"vectors":[' + b'["x"],' * 200 + b'["x"]]}',
    "unknown fields": b'{"a":0' + b',"b":{}' * MEGABYTE + b"}",
    "deep": b'{"vectors":' + b"[" * MEGABYTE,
    "escaped quotes": b'{"ids":["' + (b"x" * 300 + b'\\"') * 70_000,
    "backslashes": b'{"ids":["' + b"\\\\" * MEGABYTE + b'\\"',
}


@pytest.mark.parametrize("name", HOSTILE_BODIES)
def test_a_hostile_body_costs_little_memory_and_is_refused(photo_client, name):
    for path in ("/search", "/search/ids", "/vectors", "/vectors/remove"):
        tracemalloc.start()
        try:
            headers = {"Content-Type": "application/json"}
            response = photo_client.post(API + path, content=HOSTILE_BODIES[name], headers=headers)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert len(error_message(response, 422, "invalid_input")) < 300
        assert peak < 80 * MEGABYTE


@pytest.mark.parametrize("rows", [1, 3, 256])
def test_a_body_within_the_limits_is_never_refused_for_its_size(rows):
    ids = ['[,{"\\' * 10] * rows
    body = {"vectors": [[0.5] * 108] * rows, "ids": ids, "replace": True}
    assert parse_json(AddRequest, json.dumps(body, indent=1).encode(), rows, 108).ids == ids
    with pytest.raises(HTTPError, match="too many values"):
        parse_json(AddRequest, json.dumps({"vectors": [[0.5] * 108] * (2 * rows + 1)}).encode(), rows, 108)


def test_results_are_limited(photo_album):
    body = {"ids": ["scene 00/photo 0.jpg"] * 4}
    with open_client(open_album(photo_album), limits=Limits(hits=20, response_bytes=1000)) as client:
        for k, message in (
            (6, "queries times k must be at most 20, got 24"),
            (5, "exceeds the limit of 1,000 bytes"),
        ):
            response = client.post(f"{API}/search/ids", json={**body, "k": k})
            assert message in error_message(response, 422, "invalid_input")
        assert len(client.post(f"{API}/search/ids", json={**body, "k": 4}).content) < 1100


@pytest.fixture
def threads(monkeypatch):
    """The names of the threads that parse, render, or look at all photos."""
    names = []

    def record(function):
        def recorded(*arguments):
            names.append(threading.current_thread().name)
            return function(*arguments)

        return recorded

    for module, name in ((api, "parse_json"), (api, "render_hits"), (api, "_to_json"), (web, "render")):
        monkeypatch.setattr(module, name, record(getattr(module, name)))
    for kind, name in ((PhotoCollection, "state"), (PhotoCollection, "has_graph"), (PhotoCollection, "indexing")):
        monkeypatch.setattr(kind, name, property(record(getattr(kind, name).fget)))
    for kind, name in ((BaseCollection, "report"), (SyntheticPhotos, "photo_path"), (BaseCollection, "sample_ids")):
        monkeypatch.setattr(kind, name, record(getattr(kind, name)))
    return names


PHOTO_ID = "scene%2000/photo%200.jpg"
PAGES = (
    *("/", f"/?id={PHOTO_ID}", f"/?id={PHOTO_ID}&box=0,0,0.5,0.5", "/cards?page=0", "/duplicates"),
    *(f"{API}/photos", f"{API}/duplicates", f"{API}/photo?id={PHOTO_ID}", f"{API}/metrics"),
)


@pytest.mark.parametrize("path", PAGES)
def test_pages_and_results_are_computed_outside_of_the_event_loop(photo_client, threads, path):
    assert photo_client.get(path).status_code == 200
    assert threads
    assert all(name.startswith("logt-") for name in threads)


def test_bodies_and_files_are_read_outside_of_the_event_loop(photo_client, threads):
    names = ["scene 00/photo 0.jpg"]
    assert photo_client.post(f"{API}/search/ids", json={"ids": names}).status_code == 200
    assert photo_client.post(f"{API}/photos/zip", data={"ids": json.dumps(names)}).status_code == 200
    assert len(threads) >= 3
    assert all(name.startswith("logt-") for name in threads)


def test_the_start_page_of_vectors_is_rendered_outside_of_the_event_loop(photo_album, threads):
    with open_client(VectorCollection(photo_album[1])) as client:
        assert client.get("/").status_code == 200
    assert threads
    assert all(name.startswith("logt-") for name in threads)

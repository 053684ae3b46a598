"""Limits of the server and invalid requests: sizes, values, images, time, load."""

from __future__ import annotations

import json
import re
import struct
import threading
import tracemalloc
import zlib

import pytest
from server_testing import API, error_message, open_client, result_ids
from synthetic_photos import SyntheticPhotos, draw_scene, encode_jpeg, write_photos

from logt.descriptors import image_io
from logt.server import api, web
from logt.server.errors import HTTPError
from logt.server.photo_collection import PhotoCollection
from logt.server.request_body import _count_values, parse_json
from logt.server.schemas import AddRequest, VectorSearchRequest
from logt.server.settings import Limits

PHOTO = encode_jpeg(draw_scene(0))


@pytest.fixture(scope="module")
def album(tmp_path_factory):
    """(folder, index, ids)."""
    root = tmp_path_factory.mktemp("limits")
    return root / "photos", root / "index", write_photos(root / "photos", root / "index", 6, 1)


def open_album(album):
    return PhotoCollection(SyntheticPhotos(*album[:2]))


@pytest.fixture
def client(album):
    with open_client(open_album(album)) as client:
        yield client


def test_large_bodies_are_refused_with_and_without_content_length(album):
    def chunks():
        for _ in range(60):
            yield b"x" * 1000

    large = {"photo": b"x" * 60_000}
    with open_client(open_album(album), limits=Limits(body_bytes=50_000)) as client:
        assert "50,000" in error_message(client.post(f"{API}/search/image", files=large), 413, "too_large")
        for path, content_type in (("image", "multipart/form-data; boundary=b"), ("", "application/json")):
            headers = {"Content-Type": content_type}
            response = client.post(f"{API}/search/{path}".rstrip("/"), content=chunks(), headers=headers)
            error_message(response, 413, "too_large")
        page = client.post("/", files=large)
        assert page.status_code == 413
        assert "too large" in page.text
        assert client.post(f"{API}/search/image", files={"photo": PHOTO}).status_code == 200


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
        ("/search/region", {"id": "scene 00/photo 0.jpg", "box": [0, 0, 1e-310, 1e-310]}, "at least 1e-06"),
        ("/search/region", {"id": "scene 00/photo 0.jpg", "box": [0, 0, 1, 5e-324]}, "at least 1e-06"),
    ],
)
def test_invalid_values_are_named(client, path, body, expected):
    response = client.post(API + path, json=body)
    error = response.json()["error"]
    assert (response.status_code, error["code"] in ("invalid_input", "bad_box")) == (422, True)
    assert expected in error["message"]


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"null", b'{"vectors": [[NaN]]}', b"\xff\xfe", b"[" * 100_000])
def test_invalid_json_is_refused(client, body):
    response = client.post(f"{API}/search", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code in (400, 422)
    assert response.json()["error"]["message"]


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
def test_unreadable_images_are_refused(client, content):
    files = {"photo": ("a.jpg", content)}
    message = error_message(client.post(f"{API}/search/image", files=files), 415, "not_a_picture")
    assert "object at" not in message
    page = client.post("/", files=files, params={"fragment": 1})
    assert page.status_code == 415
    assert "Not a readable image" in page.text


def test_the_error_page_names_all_formats(client):
    page = client.post("/", files={"photo": b"text"}).text
    assert page.count("Supported: ") == 1
    names = {"JPEG2000": "JPEG 2000", "HEIF": "HEIC", "WEBP": "WebP", "DIB": "BMP"}
    assert all(re.search(rf"\b{names.get(name, name)}\b", page) for name in image_io._FORMATS)


def test_images_with_too_many_pixels_are_refused(album):
    with open_client(open_album(album), limits=Limits(pixels=10_000)) as client:
        response = client.post(f"{API}/search/image", files={"photo": PHOTO})
        error_message(response, 415, "not_a_picture")
        small = encode_jpeg(draw_scene(0, size=(50, 50)))
        assert client.post(f"{API}/search/image", files={"photo": small}).status_code == 200


class BlockedPhotos(SyntheticPhotos):
    """Photos whose search waits until `unblock` is set."""

    def __init__(self, folder, index):
        super().__init__(folder, index)
        self.unblock = threading.Event()

    def search(self, image, k, box=None, *, rerank=None):
        self.unblock.wait(30)
        return super().search(image, k, box, rerank=rerank)


def test_a_slow_request_times_out_and_others_are_served(album):
    photos = BlockedPhotos(*album[:2])
    with open_client(PhotoCollection(photos), limits=Limits(seconds=0.3)) as client:
        error_message(client.post(f"{API}/search/image", files={"photo": PHOTO}), 504, "timeout")
        assert client.post(f"{API}/search/ids", json={"ids": [album[2][0]]}).status_code == 200
        photos.unblock.set()


def test_requests_beyond_the_queue_are_refused(album):
    photos = BlockedPhotos(*album[:2])
    responses = []
    with open_client(PhotoCollection(photos), workers=1, limits=Limits(waiting=1, seconds=20)) as client:

        def search():
            responses.append(client.post(f"{API}/search/image", files={"photo": PHOTO}))

        threads = [threading.Thread(target=search) for _ in range(4)]
        for thread in threads:
            thread.start()
        while len(responses) < 2:
            threads[0].join(0.01)
        photos.unblock.set()
        for thread in threads:
            thread.join()
    assert sorted(response.status_code for response in responses) == [200, 200, 503, 503]
    assert all(response.headers["Retry-After"] for response in responses if response.status_code == 503)


def test_a_damaged_photo_does_not_stop_the_server(tmp_path):
    ids = write_photos(tmp_path / "photos", tmp_path / "index", 2, 2)
    (tmp_path / "photos" / ids[0]).write_bytes(b"not an image any more")
    with open_client(PhotoCollection(SyntheticPhotos(tmp_path / "photos", tmp_path / "index"))) as client:
        assert client.get(f"{API}/picture", params={"id": ids[0]}).status_code in (415, 422)
        assert client.get("/", params={"id": ids[0]}).status_code == 200


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
@pytest.mark.parametrize("path", ["/search", "/search/ids", "/vectors", "/vectors/remove"])
def test_a_hostile_body_costs_little_memory_and_is_refused(client, name, path):
    headers = {"Content-Type": "application/json"}
    tracemalloc.start()
    try:
        response = client.post(API + path, content=HOSTILE_BODIES[name], headers=headers)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    message = error_message(response, 422, "invalid_input")
    assert len(message) < 300
    assert peak < 80 * MEGABYTE


@pytest.mark.parametrize("rows", [1, 3, 256])
def test_a_body_within_the_limits_is_never_refused_for_its_size(rows):
    ids = ['[,{"\\' * 10] * rows
    body = {"vectors": [[0.5] * 108] * rows, "ids": ids, "replace": True}
    text = json.dumps(body).encode()
    if text.count(b'"') <= 8 * rows + 64:
        assert parse_json(AddRequest, text, rows, 108).ids == ids
    plain = json.dumps(body | {"ids": ["[,{\\"] * rows}, indent=1).encode()
    assert len(parse_json(AddRequest, plain, rows, 108).vectors) == rows
    with pytest.raises(HTTPError, match="too many values"):
        parse_json(AddRequest, json.dumps({"vectors": [[0.5] * 108] * (2 * rows + 1)}).encode(), rows, 108)


@pytest.mark.parametrize(
    "text", ['"a,[{"', '"\\\\",1', '"\\\\\\",[",1', '{"a":"\\\\","b":[1,2]}', "[" * 9, '"', '"' + "\\" * 500]
)
def test_values_are_counted_outside_of_strings(text):
    bare = re.sub(r'"(?:[^"\\]|\\.)*("|$)', "", text)
    assert _count_values(text.encode()) == 1 + sum(bare.count(mark) for mark in ",[{")


def test_bodies_are_parsed_outside_of_the_event_loop(client, monkeypatch):
    threads = []
    monkeypatch.setattr(
        VectorSearchRequest, "model_validate_json", lambda _: threads.append(threading.current_thread().name)
    )
    client.post(f"{API}/search", json={"vectors": [[0.5] * 108]})
    assert threads[0].startswith("logt-parse")


@pytest.fixture
def threads_of(monkeypatch):
    """threads_of(module, "function") -> a list, to which each call adds the name of its thread."""

    def record(module, name):
        original, threads = getattr(module, name), []

        def recorded(*arguments):
            threads.append(threading.current_thread().name)
            return original(*arguments)

        monkeypatch.setattr(module, name, recorded)
        return threads

    return record


def test_results_are_limited_and_written_outside_of_the_event_loop(album, threads_of):
    threads = threads_of(api, "render_hits")
    body = {"ids": ["scene 00/photo 0.jpg"] * 4, "k": 5}
    with open_client(open_album(album), limits=Limits(hits=19)) as client:
        message = error_message(client.post(f"{API}/search/ids", json=body), 422, "invalid_input")
        assert message == "queries times k must be at most 19, got 20"
        assert not threads
    with open_client(open_album(album), limits=Limits(hits=20, response_bytes=1000)) as client:
        message = error_message(client.post(f"{API}/search/ids", json=body), 422, "invalid_input")
        assert message == "the response exceeds the limit of 1,000 bytes; ask for fewer queries, or a smaller k"
        response = client.post(f"{API}/search/ids", json={**body, "k": 4})
        assert len(response.content) < 1100
        assert len(result_ids(response)) == 4
        assert response.headers["content-type"] == "application/json"
        assert all(name.startswith("logt-parse") for name in threads)


def test_near_duplicates_are_rendered_outside_of_the_event_loop(client, threads_of):
    threads = threads_of(web, "render")
    assert client.get("/duplicates").status_code == 200
    assert len(threads) == 1
    assert threads[0].startswith("logt-search")

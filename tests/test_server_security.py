"""What a stranger, a page of another site or a crafted file can do to the service: nothing but be refused."""

from __future__ import annotations

import re
import struct
import threading
import zlib
from html.parser import HTMLParser

import pytest
from synthetic_photos import MadePhotos, make_photos, scene
from test_server import API, fault, ids_of, jpeg, serving

import logt
from logt.server.middleware import SECURITY_HEADERS
from logt.server.photo_collection import PhotoCollection
from logt.server.settings import Limits

TOKEN = "a token of some length"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
ODD = [
    "<img src=x onerror=alert(1)>.jpg",
    "\"' onload='alert(1)",
    "{{7*7}}.jpg",
    "a&b;#?%2e%2e.jpg",
    "ü \u202e.jpg",
    "..jpg",
]


@pytest.fixture(scope="module")
def album(tmp_path_factory):
    root = tmp_path_factory.mktemp("odd")
    ids = make_photos(root / "photos", root / "index", len(ODD), 1, "{number}")
    with logt.open(root / "index", "a") as index:
        index.upsert(index.reconstruct(ids), [*ids])
        for old, new in zip(ids, ODD, strict=True):
            (root / "photos" / old).rename(root / "photos" / new)
            index.add(index.reconstruct([old]), ids=[new])
        index.remove(ids)
        index.save()
    (root / "secret.jpg").write_bytes(jpeg(scene(0)))
    return root


def collection(root):
    return PhotoCollection(MadePhotos(root / "photos", root / "index"))


@pytest.fixture
def client(album):
    with serving(collection(album)) as client:
        yield client


@pytest.fixture
def locked(album):
    with serving(collection(album), token=TOKEN) as client:
        yield client


def handlers(page):
    """The attributes of a page that a browser would run."""
    found = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag, attributes):
            found.extend(name for name, _ in attributes if name.startswith("on") or name == "style")

    Parser().feed(page)
    return found


def test_names_of_files_are_text_in_every_page(client):
    for page in (client.get("/"), client.get("/", params={"id": ODD[0]}), client.get("/", params={"id": ODD[1]})):
        assert page.status_code == 200
        assert "<img src=x" not in page.text
        assert "&lt;img src=x onerror=alert(1)&gt;.jpg" in page.text
        assert "{{7*7}}.jpg" in page.text
        assert not handlers(page.text)
    for number, odd in enumerate(ODD):
        assert client.get(f"{API}/picture", params={"id": odd}).status_code == 200
        assert ids_of(client.post(f"{API}/search/ids", json={"ids": [odd], "k": 1}))[0] != [odd], number


def test_what_a_caller_sends_is_text_in_the_answer(client):
    bad = "<script>alert(1)</script>"
    for answer in (
        client.get("/", params={"id": bad}),
        client.get("/", params={"id": ODD[0], "box": bad}),
        client.post("/", files={"photo": (bad, b"no picture")}),
        client.post("/", files={"photo": (bad + ".jpg", jpeg(scene(0)))}),
        client.get(f"/{bad}"),
    ):
        assert "<script>alert" not in answer.text
    assert client.get(f"/{bad}").status_code == 404


def test_the_page_has_no_script_or_style_of_its_own_and_loads_nothing_from_elsewhere(client):
    for path in ("/", f"/?id={ODD[3][:0]}", "/docs", "/?part=1"):
        page = client.get(path).text
        assert not re.search(r"<script(?![^>]*\ssrc=\"/static/)", page)
        assert " style=" not in page
        assert "<style" not in page
        assert not re.search(r"(src|href|action)=\"(?!/|#)", page)


@pytest.mark.parametrize(
    "id",
    ["../secret.jpg", "..%2fsecret.jpg", "/etc/passwd", "photos/../../secret.jpg", "", "\0", "a\0.jpg", "x" * 4096],
)
def test_only_pictures_of_the_index_are_served(client, id):
    fault(client.get(f"{API}/picture", params={"id": id}), 404, "not_found")
    fault(client.post(f"{API}/search/region", json={"id": id, "box": [0, 0, 1, 1]}), 404, "not_found")


@pytest.mark.parametrize(
    "path", ["/static/../page.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static/page.html"]
)
def test_only_the_files_of_the_page_are_static(client, path):
    assert client.get(path).status_code == 404


def test_every_answer_has_the_headers_of_safety(client, locked):
    for answer in (
        client.get("/"),
        client.get("/static/app.js"),
        client.get(f"{API}/health"),
        client.get(f"{API}/picture", params={"id": ODD[0]}),
        client.get("/none"),
        client.post(f"{API}/search", json={}),
        client.get("/", headers={"Host": "evil.example"}),
        locked.get("/"),
    ):
        for name, value in SECURITY_HEADERS.items():
            assert answer.headers[name] == value
        assert "unsafe-inline" not in answer.headers["Content-Security-Policy"]
        assert "server" not in answer.headers


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::1", "a b"]
)
def test_a_host_of_another_name_is_refused(client, host):
    fault(client.get(f"{API}/health", headers={"Host": host}), 421, "unknown_host")


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8000", "127.0.0.1:9", "[::1]:8000", "192.168.1.7", "LOCALHOST"]
)
def test_addresses_and_localhost_are_known_hosts(client, host):
    assert client.get(f"{API}/health", headers={"Host": host}).status_code == 200


def test_further_hosts_can_be_allowed(album):
    with serving(collection(album), hosts=("Photos.home",)) as client:
        assert client.get(f"{API}/health", headers={"Host": "photos.home:8000"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_pages_of_other_sites_cannot_post(client, headers):
    for path in ("/search", "/search/image", "/vectors", "/vectors/remove"):
        fault(client.post(API + path, headers=headers), 403, "cross_origin")
    assert client.post("/", files={"photo": jpeg(scene(0))}, headers=headers).status_code == 403
    own = {"Origin": "http://127.0.0.1:8000"}
    assert client.post("/", files={"photo": jpeg(scene(0))}, headers=own).status_code == 200


def test_a_form_cannot_pass_as_json(client):
    body = b'{"ids": ["a"]}'
    answer = client.post(f"{API}/vectors/remove", content=body, headers={"Content-Type": "text/plain"})
    fault(answer, 422, "invalid_input")


def test_without_the_token_nothing_is_told(locked):
    for path in (f"{API}/info", f"{API}/metrics", "/openapi.json", f"{API}/picture?id={ODD[5]}", f"{API}/none"):
        fault(locked.get(path), 401, "unauthorized")
        fault(locked.get(path, headers={"Authorization": "Bearer wrong"}), 401, "unauthorized")
        fault(locked.get(path, headers={"Authorization": "Bearer ü".encode("latin-1")}), 401, "unauthorized")
        fault(locked.get(path, headers={"Cookie": "logt_8000=wrong; a=b;;="}), 401, "unauthorized")
    for path in ("/", "/docs", "/?token=wrong", f"/?id={ODD[5]}"):
        page = locked.get(path)
        assert page.status_code == 401
        assert "asks for its token" in page.text
        assert ODD[5] not in page.text
        assert TOKEN not in page.text
    assert locked.get(f"{API}/info", headers=BEARER).status_code == 200
    assert locked.get(f"{API}/health").status_code == 200


@pytest.mark.parametrize("way", ["form", "address"])
def test_the_token_opens_the_page_and_is_kept_as_a_cookie(locked, way):
    if way == "form":
        assert "not the token" in locked.post("/login", data={"token": "wrong"}).text
        answer = locked.post("/login", data={"token": TOKEN}, follow_redirects=False)
    else:
        answer = locked.get("/", params={"token": TOKEN}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    kept = answer.headers["set-cookie"].lower()
    assert "httponly" in kept
    assert "samesite=strict" in kept
    assert TOKEN not in kept
    assert locked.get("/").status_code == 200
    assert locked.get(f"{API}/info").status_code == 200


def test_read_only_refuses_changes(album):
    with serving(collection(album), read_only=True) as client:
        fault(client.post(f"{API}/vectors", json={"vectors": [[1.0] * 108]}), 403, "read_only")
        fault(client.post(f"{API}/vectors/remove", json={"ids": [ODD[0]]}), 403, "read_only")


def test_bodies_above_the_limit_are_refused_announced_or_not(album):
    with serving(collection(album), limits=Limits(body_bytes=50_000)) as client:
        assert "50,000" in fault(client.post(f"{API}/search/image", files={"photo": b"x" * 60_000}), 413, "too_large")

        def pieces():
            for _ in range(60):
                yield b"x" * 1000

        for path in ("/search/image", "/search"):
            kind = "multipart/form-data; boundary=b" if "image" in path else "application/json"
            fault(client.post(API + path, content=pieces(), headers={"Content-Type": kind}), 413, "too_large")
        page = client.post("/", files={"photo": b"x" * 60_000})
        assert page.status_code == 413
        assert "too large" in page.text
        assert client.post(f"{API}/search/image", files={"photo": jpeg(scene(0))}).status_code == 200


@pytest.mark.parametrize(
    ("path", "asked", "names"),
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
        ("/search/region", {"id": ODD[0], "box": [0, 0, 0, 1]}, "left < right"),
    ],
)
def test_values_that_cannot_be_used_are_named(client, path, asked, names):
    answer = client.post(API + path, json=asked)
    told = answer.json()["error"]
    assert (answer.status_code, told["code"] in ("invalid_input", "bad_box")) == (422, True)
    assert names in told["message"]


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"null", b'{"vectors": [[NaN]]}', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_is_refused(client, body):
    answer = client.post(f"{API}/search", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.json()["error"]["message"]


def bomb(side):
    """A PNG of a few kilobytes that claims side x side pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 99)) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"text",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        jpeg(scene(0))[:500],
        bomb(100_000),
        b"GIF89a",
        b"BM" + b"\xff" * 60,
    ],
    ids=["empty", "text", "svg", "cut", "bomb", "gif", "bmp"],
)
def test_what_is_no_picture_is_refused(client, content):
    message = fault(client.post(f"{API}/search/image", files={"photo": ("a.jpg", content)}), 415, "not_a_picture")
    assert "object at" not in message
    page = client.post("/", files={"photo": ("a.jpg", content)}, params={"part": 1})
    assert page.status_code == 415
    assert "cannot be read" in page.text


def test_pictures_of_too_many_pixels_are_refused(album):
    with serving(collection(album), limits=Limits(pixels=10_000)) as client:
        fault(client.post(f"{API}/search/image", files={"photo": jpeg(scene(0))}), 415, "not_a_picture")
        small = jpeg(scene(0, size=(50, 50)))
        assert client.post(f"{API}/search/image", files={"photo": small}).status_code == 200


class Slow(MadePhotos):
    """Photos that are described when told."""

    def __init__(self, *where):
        super().__init__(*where)
        self.go = threading.Event()

    def search(self, image, k, box=None):
        self.go.wait(30)
        return super().search(image, k, box)


def test_what_takes_too_long_is_given_up_and_others_are_served(album):
    slow = Slow(album / "photos", album / "index")
    with serving(PhotoCollection(slow), limits=Limits(seconds=0.3)) as client:
        fault(client.post(f"{API}/search/image", files={"photo": jpeg(scene(0))}), 504, "timeout")
        assert client.post(f"{API}/search/ids", json={"ids": [ODD[0]]}).status_code == 200
        slow.go.set()


def test_too_many_photos_at_once_are_turned_away(album):
    slow = Slow(album / "photos", album / "index")
    answers = []
    with serving(PhotoCollection(slow), workers=1, limits=Limits(waiting=1, seconds=20)) as client:

        def ask():
            answers.append(client.post(f"{API}/search/image", files={"photo": jpeg(scene(0))}))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        while len(answers) < 2:
            threads[0].join(0.01)
        slow.go.set()
        for thread in threads:
            thread.join()
    assert sorted(answer.status_code for answer in answers) == [200, 200, 503, 503]
    assert all(answer.headers["Retry-After"] for answer in answers if answer.status_code == 503)


def test_an_error_that_nobody_foresaw_tells_nothing(client, monkeypatch, caplog):
    def broken(*_, **__):
        raise ZeroDivisionError("a secret of the inside")

    monkeypatch.setattr("logt.index.Index.search", broken)
    told = fault(client.post(f"{API}/search/ids", json={"ids": [ODD[0]]}), 500, "internal")
    assert "secret" not in told
    page = client.get("/", params={"id": ODD[0]})
    assert page.status_code == 500
    assert "secret" not in page.text
    assert "a secret of the inside" in caplog.text


def test_the_service_answers_after_a_gone_file(tmp_path):
    make_photos(tmp_path / "photos", tmp_path / "index", 2, 2)
    (tmp_path / "photos" / "scene 00" / "photo 0.jpg").write_bytes(b"no picture any more")
    with serving(collection(tmp_path)) as client:
        assert client.get(f"{API}/picture", params={"id": "scene 00/photo 0.jpg"}).status_code in (415, 422)
        assert client.get("/", params={"id": "scene 00/photo 0.jpg"}).status_code == 200

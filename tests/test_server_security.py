"""Security of the server: escaping, file access, headers, hosts, origins, the token."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from server_testing import API, TOKEN, error_message, open_client, result_ids
from synthetic_photos import SyntheticPhotos, draw_scene, encode_jpeg, write_photos

import logt
from logt.server.access import LoginAttempts
from logt.server.collection import VectorCollection
from logt.server.middleware import SECURITY_HEADERS
from logt.server.photo_collection import PhotoCollection

JSON = {"Content-Type": "application/json"}
BEARER = {"Authorization": f"Bearer {TOKEN}"}
ODD_NAMES = [
    "<img src=x onerror=alert(1)>.jpg",
    "\"' onload='alert(1)",
    "{{7*7}}.jpg",
    "a&b;#?%2e%2e.jpg",
    "ü \u202e.jpg",
    "..jpg",
]
PHOTO = encode_jpeg(draw_scene(0))


@pytest.fixture(scope="module")
def album(tmp_path_factory):
    """A folder of photos with odd file names, and a photo outside of it."""
    root = tmp_path_factory.mktemp("odd")
    ids = write_photos(root / "photos", root / "index", len(ODD_NAMES), 1, "{number}")
    with logt.open(root / "index", "a") as index:
        index.upsert(index.reconstruct(ids), [*ids])
        for old, new in zip(ids, ODD_NAMES, strict=True):
            (root / "photos" / old).rename(root / "photos" / new)
            index.add(index.reconstruct([old]), ids=[new])
        index.remove(ids)
        index.save()
    (root / "secret.jpg").write_bytes(PHOTO)
    return root


def open_album(root):
    return PhotoCollection(SyntheticPhotos(root / "photos", root / "index"))


@pytest.fixture
def client(album):
    with open_client(open_album(album)) as client:
        yield client


@pytest.fixture
def token_client(album):
    """A client, without the token, of a server that requires one."""
    with open_client(open_album(album), token=TOKEN) as client:
        yield client


def inline_handlers(page):
    """The event handlers and inline styles of a page."""
    found = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag, attributes):
            found.extend(name for name, _ in attributes if name.startswith("on") or name == "style")

    Parser().feed(page)
    return found


def test_names_of_files_are_text_in_every_page(client):
    for params in ({}, {"id": ODD_NAMES[0]}, {"id": ODD_NAMES[1]}):
        page = client.get("/", params=params)
        assert page.status_code == 200
        assert "<img src=x" not in page.text
        assert "&lt;img src=x onerror=alert(1)&gt;.jpg" in page.text
        assert "{{7*7}}.jpg" in page.text
        assert not inline_handlers(page.text)
    for name in ODD_NAMES:
        assert client.get(f"{API}/picture", params={"id": name}).status_code == 200
        assert result_ids(client.post(f"{API}/search/ids", json={"ids": [name], "k": 1}))[0] != [name]


def test_input_is_escaped_in_responses(client):
    script = "<script>alert(1)</script>"
    for response in (
        client.get("/", params={"id": script}),
        client.get("/", params={"id": ODD_NAMES[0], "box": script}),
        client.post("/", files={"photo": (script, b"not an image")}),
        client.post("/", files={"photo": (script + ".jpg", PHOTO)}),
        client.get(f"/{script}"),
    ):
        assert "<script>alert" not in response.text
    assert client.get(f"/{script}").status_code == 404


def test_pages_have_no_inline_script_or_style_and_load_nothing_from_other_sites(client):
    for path in ("/", "/?id=", "/docs", "/?fragment=1"):
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
    error_message(client.get(f"{API}/picture", params={"id": id}), 404, "not_found")
    error_message(client.post(f"{API}/search/region", json={"id": id, "box": [0, 0, 1, 1]}), 404, "not_found")


@pytest.mark.parametrize(
    "path", ["/static/../web.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static/start.html"]
)
def test_only_static_files_are_served_as_static(client, path):
    assert client.get(path).status_code == 404


def test_every_response_has_the_security_headers(client, token_client):
    for response in (
        client.get("/"),
        client.get("/static/app.js"),
        client.get(f"{API}/health"),
        client.get(f"{API}/picture", params={"id": ODD_NAMES[0]}),
        client.get("/none"),
        client.post(f"{API}/search", json={}),
        client.get("/", headers={"Host": "evil.example"}),
        token_client.get("/"),
    ):
        for name, value in SECURITY_HEADERS.items():
            assert response.headers[name] == value
        assert "unsafe-inline" not in response.headers["Content-Security-Policy"]
        assert "server" not in response.headers


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::1", "a b"]
)
def test_an_unknown_host_is_refused(client, host):
    error_message(client.get(f"{API}/health", headers={"Host": host}), 421, "unknown_host")


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8000", "127.0.0.1:9", "[::1]:8000", "192.168.1.7", "LOCALHOST"]
)
def test_ip_addresses_and_localhost_are_accepted_hosts(client, host):
    assert client.get(f"{API}/health", headers={"Host": host}).status_code == 200


def test_other_hosts_can_be_allowed(album):
    with open_client(open_album(album), hosts=("Photos.home",)) as client:
        assert client.get(f"{API}/health", headers={"Host": "photos.home:8000"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": "http://[::1"},
        {"Origin": "http://127.0.0.1:port\u00ff".encode("latin-1")},
        {"Origin": ""},
        {"Origin": "http://127.0.0.1:9999"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_cross_origin_posts_are_refused(client, headers):
    for path in ("/search", "/search/image", "/vectors", "/vectors/remove"):
        error_message(client.post(API + path, headers=headers), 403, "cross_origin")
    assert client.post("/", files={"photo": PHOTO}, headers=headers).status_code == 403
    same_origin = {"Origin": "http://127.0.0.1:8000"}
    assert client.post("/", files={"photo": PHOTO}, headers=same_origin).status_code == 200


def test_json_needs_its_content_type(client):
    """An HTML form of another site can send text/plain, but not application/json."""
    headers = {"Content-Type": "text/plain"}
    response = client.post(f"{API}/vectors/remove", content=b'{"ids": ["a"]}', headers=headers)
    error_message(response, 422, "invalid_input")


@pytest.mark.parametrize("charset", ["punycode", '"punycode"', "IDNA", "utf-7", "unicode_escape", "none", ""])
def test_a_form_in_an_unusual_charset_is_refused_before_it_is_decoded(token_client, charset):
    """The codec punycode takes seconds for half a megabyte."""
    token = b"x" * 500_000 + b"-" + b"a" * 60_000
    body = b'--b\r\nContent-Disposition: form-data; name="token"\r\n\r\n' + token + b"\r\n--b--\r\n"
    headers = {"Content-Type": f"multipart/form-data; charset={charset}; boundary=b"}
    assert token_client.post("/login", content=body, headers=headers).status_code == 415
    message = error_message(
        token_client.post(f"{API}/pictures", headers={**BEARER, **headers}), 415, "unknown_charset"
    )
    assert "must be utf-8" in message


@pytest.mark.parametrize("charset", ["utf-8", "UTF8", "us-ascii", "ISO-8859-1", '"latin-1"'])
def test_usual_charsets_of_forms_are_accepted(token_client, charset):
    for kind, body in (
        (
            "multipart/form-data; boundary=b",
            f'--b\r\nContent-Disposition: form-data; name="token"\r\n\r\n{TOKEN}\r\n--b--\r\n',
        ),
        ("application/x-www-form-urlencoded", f"token={TOKEN}"),
    ):
        headers = {"Content-Type": f"{kind}; charset={charset}"}
        response = token_client.post("/login", content=body, headers=headers, follow_redirects=False)
        assert response.status_code == 303


def test_without_the_token_nothing_is_revealed(token_client):
    for path in (f"{API}/info", f"{API}/metrics", "/openapi.json", f"{API}/picture?id={ODD_NAMES[5]}", f"{API}/none"):
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "Bearer ü".encode("latin-1")},
            {"Cookie": "logt_8000=wrong; a=b;;="},
        ):
            error_message(token_client.get(path, headers=headers), 401, "unauthorized")
    for path in ("/", "/docs", "/?token=wrong", f"/?id={ODD_NAMES[5]}"):
        page = token_client.get(path)
        assert page.status_code == 401
        assert 'action="/login"' in page.text
        assert ODD_NAMES[5] not in page.text
        assert TOKEN not in page.text
    assert token_client.get(f"{API}/info", headers=BEARER).status_code == 200
    assert token_client.get(f"{API}/health").status_code == 200


@pytest.mark.parametrize("method", ["form", "url"])
def test_the_token_is_stored_as_a_session_cookie(token_client, method):
    if method == "form":
        assert "Wrong token" in token_client.post("/login", data={"token": "wrong"}).text
        response = token_client.post("/login", data={"token": TOKEN}, follow_redirects=False)
    else:
        response = token_client.get("/", params={"token": TOKEN}, follow_redirects=False)
    assert (response.status_code, response.headers["location"]) == (303, "/")
    cookie = response.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN not in cookie
    assert token_client.get("/").status_code == 200
    assert token_client.get(f"{API}/info").status_code == 200


def test_read_only_refuses_changes(album):
    with open_client(open_album(album), read_only=True) as client:
        error_message(client.post(f"{API}/vectors", json={"vectors": [[1.0] * 108]}), 403, "read_only")
        error_message(client.post(f"{API}/vectors/remove", json={"ids": [ODD_NAMES[0]]}), 403, "read_only")


def test_an_unexpected_error_reveals_no_details(client, monkeypatch, caplog):
    def raise_unexpected(*_, **__):
        raise ZeroDivisionError("a secret detail")

    monkeypatch.setattr("logt.index.Index.search", raise_unexpected)
    message = error_message(client.post(f"{API}/search/ids", json={"ids": [ODD_NAMES[0]]}), 500, "internal")
    assert "secret" not in message
    page = client.get("/", params={"id": ODD_NAMES[0]})
    assert page.status_code == 500
    assert "secret" not in page.text
    assert "a secret detail" in caplog.text


def test_tokens_are_not_checked_after_too_many_wrong_ones(album, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("logt.server.access.time.monotonic", lambda: now[0])

    def attempts(client):
        yield client.get(f"{API}/info", headers={"Authorization": "Bearer wrong"})
        yield client.post("/login", data={"token": "wrong"})
        yield client.get("/", params={"token": "wrong"})

    with open_client(open_album(album), token=TOKEN) as client:
        for _ in range(100):  # requests without a token, or with an old cookie, are no attempts
            assert client.get(f"{API}/info", headers={"Cookie": "logt_8000=old"}).status_code == 401
        statuses = [response.status_code for _ in range(10) for response in attempts(client)]
        assert statuses == [401] * 20 + [429] * 10
        message = error_message(client.get(f"{API}/info", headers=BEARER), 429, "too_many_attempts")
        assert "60 s" in message
        assert client.get(f"{API}/info", headers=BEARER).headers["Retry-After"] == "60"
        assert "Too many wrong tokens" in client.post("/login", data={"token": TOKEN}).text
        assert client.get(f"{API}/health").status_code == 200
        now[0] += 61
        assert client.get(f"{API}/info", headers=BEARER).status_code == 200


def test_a_session_goes_on_when_another_user_of_the_address_guesses_tokens(album):
    with open_client(open_album(album), token=TOKEN) as client:
        client.post("/login", data={"token": TOKEN})
        for _ in range(30):
            client.post("/login", data={"token": "wrong"})
        assert client.get("/").status_code == 200


def test_attempts_of_a_bounded_number_of_addresses_are_counted(monkeypatch):
    monkeypatch.setattr("logt.server.access.MAX_ADDRESSES", 3)
    attempts = LoginAttempts()
    for number in range(10):
        assert not attempts.check({"client": (f"10.0.0.{number}", 1)}, "wrong", TOKEN)
    assert list(attempts._failures) == ["10.0.0.7", "10.0.0.8", "10.0.0.9"]


def test_ids_with_surrogates_are_shown(tmp_path, vectors):
    index = logt.Index(8)
    index.add(vectors(3, 8), ids=["a", "b\ud800", "\udcff"])
    index.save(tmp_path / "i")
    with open_client(VectorCollection(tmp_path / "i")) as client:
        for params in ({}, {"id": "a"}, {"id": "a", "fragment": 1}):
            assert client.get("/", params=params).status_code == 200
        assert client.get("/?id=%ED%A0%80").status_code == 404
        found = result_ids(client.post(f"{API}/search/ids", json={"ids": ["a"], "k": 2}))[0]
        assert set(found) == {"b\ud800", "\udcff"}
        response = client.post(f"{API}/search/ids", content=b'{"ids": ["\\ud800"]}', headers=JSON)
        error_message(response, 422, "invalid_input")
        for method, path in (("GET", "/picture?id=%ED%A0%80"), ("GET", "/changes/%ED%A0%80")):
            assert 400 <= client.request(method, API + path).status_code < 500

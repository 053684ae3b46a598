"""Security of the server: escaping, file access, headers, hosts, origins, the token.

`test_server_access.py` tests the access checks by themselves.
"""

import re
from html.parser import HTMLParser

import pytest
from exact_index import built
from server_testing import API, TOKEN, error_message, open_album, open_client, result_ids
from starlette.testclient import TestClient
from synthetic_photos import ODD_NAMES, draw_scene, encode_jpeg

from logt.errors import InvalidInputError
from logt.server.app import create_app
from logt.server.collection import VectorCollection
from logt.server.middleware import SECURITY_HEADERS
from logt.server.settings import Settings

JSON = {"Content-Type": "application/json"}
BEARER = {"Authorization": f"Bearer {TOKEN}"}
PHOTO = encode_jpeg(draw_scene(0))


@pytest.fixture
def token_client(photo_album):
    """A client, without the token, of a server that requires one."""
    with open_client(open_album(photo_album), token=TOKEN) as client:
        yield client


def inline_handlers(page):
    """The event handlers and inline styles of a page."""
    found = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag, attributes):
            found.extend(name for name, _ in attributes if name.startswith("on") or name == "style")

    Parser().feed(page)
    return found


def test_names_of_files_are_text_in_every_page(photo_client):
    for params in ({}, {"id": ODD_NAMES[0], "k": 40}, {"id": ODD_NAMES[1], "k": 40}):
        page = photo_client.get("/", params=params).text
        assert "<img src=x" not in page
        assert "&lt;img src=x onerror=alert(1)&gt;.jpg" in page
        assert "{{7*7}}.jpg" in page
        assert not inline_handlers(page)
        assert not re.search(r"<script(?![^>]*\ssrc=\"/static/)|<style", page)
        assert not re.search(r"(src|href|action)=\"(?!/|#)", page)  # nothing of other sites
    for name in ODD_NAMES:
        assert photo_client.get(f"{API}/photo", params={"id": name}).status_code == 200
        assert result_ids(photo_client.post(f"{API}/search/ids", json={"ids": [name], "k": 1}))[0] != [name]


def test_input_is_escaped_in_responses(photo_client):
    script = "<script>alert(1)</script>"
    for response in (
        photo_client.get("/", params={"id": script}),
        photo_client.get("/", params={"id": ODD_NAMES[0], "box": script}),
        photo_client.get("/", params={"name": script, "folder": script}),
        photo_client.post("/", files={"photo": (script, b"not an image")}),
        photo_client.post("/", files={"photo": (script + ".jpg", PHOTO)}),
        photo_client.get(f"/{script}"),
    ):
        assert "<script>alert" not in response.text
    assert photo_client.get(f"/{script}").status_code == 404


@pytest.mark.parametrize(
    "id",
    ["../secret.jpg", "..%2fsecret.jpg", "/etc/passwd", "photos/../../secret.jpg", "", "\0", "a\0.jpg", "x" * 4096],
)
def test_only_photos_of_the_index_are_served(photo_client, photo_album, id):
    (photo_album[0].parent / "secret.jpg").write_bytes(PHOTO)
    error_message(photo_client.get(f"{API}/photo", params={"id": id}), 404, "not_found")
    body = {"id": id, "box": [0, 0, 1, 1]}
    error_message(photo_client.post(f"{API}/search/region", json=body), 404, "not_found")


def test_only_static_files_are_served_as_static(photo_client):
    for path in ("../web.py", "%2e%2e/app.py", "..%2fapp.py", "/etc/passwd", "%2fetc/passwd", "start.html", ""):
        assert photo_client.get(f"/static/{path}").status_code == 404
    script = photo_client.get("/static/app.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert script.headers["cache-control"] == "no-cache"
    headers = {"If-None-Match": script.headers["etag"]}
    assert photo_client.get("/static/app.js", headers=headers).status_code == 304


def test_every_response_has_the_security_headers(photo_client, token_client):
    for response in (
        photo_client.get("/"),
        photo_client.get("/static/app.js"),
        photo_client.get(f"{API}/health"),
        photo_client.get(f"{API}/photo", params={"id": ODD_NAMES[0]}),
        photo_client.get("/none"),
        photo_client.post(f"{API}/search", json={}),
        photo_client.get("/", headers={"Host": "evil.example"}),
        token_client.get("/"),
    ):
        for name, value in SECURITY_HEADERS.items():
            assert response.headers[name] == value
        assert "unsafe-inline" not in response.headers["Content-Security-Policy"]
        assert "server" not in response.headers


def test_only_ip_addresses_localhost_and_allowed_names_are_hosts(photo_client, photo_album):
    def health(client, host):
        return client.get(f"{API}/health", headers={"Host": host})

    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::1", "a b"):
        error_message(health(photo_client, host), 421, "unknown_host")
    for host in ("localhost", "localhost:8000", "127.0.0.1:9", "[::1]:8000", "192.168.1.7", "LOCALHOST"):
        assert health(photo_client, host).status_code == 200
    with open_client(open_album(photo_album), hosts=("Photos.home",)) as client:
        assert health(client, "photos.home:8000").status_code == 200


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
def test_cross_origin_posts_are_refused(photo_client, headers):
    for path in ("/search", "/search/photo", "/vectors", "/vectors/remove", "/compact"):
        error_message(photo_client.post(API + path, headers=headers), 403, "cross_origin")
    assert photo_client.post("/", files={"photo": PHOTO}, headers=headers).status_code == 403
    same_origin = {"Origin": "http://127.0.0.1:8000"}
    assert photo_client.post("/", files={"photo": PHOTO}, headers=same_origin).status_code == 200


def test_json_needs_its_content_type(photo_client):
    """An HTML form of another site can send text/plain, but not application/json."""
    headers = {"Content-Type": "text/plain"}
    response = photo_client.post(f"{API}/vectors/remove", content=b'{"ids": ["a"]}', headers=headers)
    error_message(response, 422, "invalid_input")


def test_forms_in_unusual_charsets_are_refused_before_they_are_decoded(token_client):
    """The codec punycode takes seconds for half a megabyte."""
    slow = b"x" * 500_000 + b"-" + b"a" * 60_000

    def login(charset, token):
        body = b'--b\r\nContent-Disposition: form-data; name="token"\r\n\r\n' + token + b"\r\n--b--\r\n"
        headers = {"Content-Type": f"multipart/form-data; charset={charset}; boundary=b"}
        return token_client.post("/login", content=body, headers=headers, follow_redirects=False)

    for charset in ("punycode", '"punycode"', "IDNA", "utf-7", "unicode_escape", "none", ""):
        assert login(charset, slow).status_code == 415
        headers = {**BEARER, "Content-Type": f"multipart/form-data; charset={charset}; boundary=b"}
        response = token_client.post(f"{API}/photos", headers=headers)
        assert "must be utf-8" in error_message(response, 415, "unknown_charset")
    for charset in ("utf-8", "UTF8", "us-ascii", "ISO-8859-1", '"latin-1"'):
        assert login(charset, TOKEN.encode()).status_code == 303
        headers = {"Content-Type": f"application/x-www-form-urlencoded; charset={charset}"}
        response = token_client.post("/login", content=f"token={TOKEN}", headers=headers, follow_redirects=False)
        assert response.status_code == 303


def test_without_the_token_nothing_is_revealed(token_client):
    for path in (f"{API}/info", f"{API}/metrics", "/openapi.json", f"{API}/photo?id={ODD_NAMES[5]}", f"{API}/none"):
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "Bearer ü".encode("latin-1")},
            {"Cookie": "logt_8000=wrong; a=b;;="},
        ):
            error_message(token_client.get(path, headers=headers), 401, "unauthorized")
    for path in ("/", "/duplicates", "/groups", "/map", "/map/data", "/?token=wrong", f"/?id={ODD_NAMES[5]}"):
        page = token_client.get(path)
        assert page.status_code == 401
        assert 'action="/login"' in page.text
        assert ODD_NAMES[5] not in page.text
        assert TOKEN not in page.text
    for method, path in (("GET", f"{API}/info"), ("POST", "/")):  # only the address of the page may contain it
        assert token_client.request(method, path, params={"token": TOKEN}, follow_redirects=False).status_code == 401
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
    assert cookie.startswith("logt_8000=")  # servers on other ports of this host have their own
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN not in cookie
    assert token_client.get("/").status_code == 200
    for _ in range(30):  # another user of the address guesses tokens; the session goes on
        token_client.post("/login", data={"token": "wrong"})
    assert token_client.get(f"{API}/info").status_code == 200


def test_read_only_refuses_changes(photo_album):
    with open_client(open_album(photo_album), read_only=True) as client:
        error_message(client.post(f"{API}/vectors", json={"vectors": [[1.0] * 108]}), 403, "read_only")
        error_message(client.post(f"{API}/vectors/remove", json={"ids": [ODD_NAMES[0]]}), 403, "read_only")


def test_an_unexpected_error_reveals_no_details(photo_client, monkeypatch, caplog):
    def raise_unexpected(*_, **__):
        raise ZeroDivisionError("a secret detail")

    monkeypatch.setattr("logt.index.Index.search", raise_unexpected)
    response = photo_client.post(f"{API}/search/ids", json={"ids": [ODD_NAMES[0]]})
    assert "secret" not in error_message(response, 500, "internal")
    page = photo_client.get("/", params={"id": ODD_NAMES[0]})
    assert page.status_code == 500
    assert "secret" not in page.text
    assert "a secret detail" in caplog.text


def test_too_many_wrong_tokens_are_refused_and_the_right_one_is_not(token_client, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("logt.server.access.time.monotonic", lambda: now[0])

    def attempts():
        yield token_client.get(f"{API}/info", headers={"Authorization": "Bearer wrong"})
        yield token_client.post("/login", data={"token": "wrong"})
        yield token_client.get("/", params={"token": "wrong"})

    for _ in range(30):  # requests without a token, or with an old cookie, are no attempts
        assert token_client.get(f"{API}/info", headers={"Cookie": "logt_8000=old"}).status_code == 401
    statuses = [response.status_code for _ in range(10) for response in attempts()]
    assert statuses == [401] * 20 + [429] * 10
    response = token_client.get(f"{API}/info", headers={"Authorization": "Bearer wrong"})
    assert "60 s" in error_message(response, 429, "too_many_attempts")
    assert response.headers["Retry-After"] == "60"
    assert "Too many wrong tokens" in token_client.post("/login", data={"token": "wrong"}).text
    for _ in range(30):  # another client of the same address
        assert token_client.get(f"{API}/info", headers=BEARER).status_code == 200
    assert token_client.post("/login", data={"token": TOKEN}, follow_redirects=False).status_code == 303
    assert token_client.get(f"{API}/health").status_code == 200
    token_client.cookies.clear()
    now[0] += 61
    assert [response.status_code for response in attempts()] == [401] * 3


def login_behind_proxy(app, address, client, scheme="https"):
    """Log in with the headers of a proxy, sent from an address."""
    sender = TestClient(app, base_url="http://127.0.0.1:8000", client=(address, 5000))
    headers = {"X-Forwarded-For": f"1.2.3.4, {client}", "X-Forwarded-Proto": scheme}
    return sender.post("/login", data={"token": TOKEN}, headers=headers, follow_redirects=False)


@pytest.mark.parametrize("proxy", ["10.0.0.7", "10.0.0.0/24", "::1"])
def test_the_scheme_and_the_client_are_those_that_a_trusted_proxy_names(photo_album, proxy):
    app = create_app(open_album(photo_album), Settings(TOKEN, proxies=(proxy,)))
    trusted = ("::1", "0:0::1") if proxy == "::1" else ("10.0.0.7", "::ffff:10.0.0.7")
    for address in trusted:
        assert "secure" in login_behind_proxy(app, address, "5.6.7.8").headers["set-cookie"].lower()
        assert "secure" not in login_behind_proxy(app, address, "5.6.7.8", "http").headers["set-cookie"].lower()
    assert "secure" not in login_behind_proxy(app, "10.0.1.7", "5.6.7.8").headers["set-cookie"].lower()


def test_wrong_tokens_are_counted_per_client_of_a_trusted_proxy(photo_album):
    bearer = {"Authorization": "Bearer wrong"}
    app = create_app(open_album(photo_album), Settings(TOKEN, proxies=("10.0.0.7",)))

    def status(address, forwarded):
        sender = TestClient(app, base_url="http://127.0.0.1:8000", client=(address, 5000))
        return sender.get(f"{API}/info", headers={"X-Forwarded-For": forwarded, **bearer}).status_code

    limited = [401] * 20 + [429] * 10
    assert [status("10.0.0.7", f"{number}.1.1.1, 5.6.7.8") for number in range(30)] == limited
    assert status("10.0.0.7", "5.6.7.9") == 401
    assert [status("10.0.0.8", f"{number}.1.1.1") for number in range(30)] == limited  # not a proxy


@pytest.mark.parametrize(
    ("proxies", "headers", "is_here"),
    [
        ((), {}, True),
        (("127.0.0.0/8",), {}, False),
        ((), {"Via": "1.1 proxy"}, False),
    ],
)
def test_a_client_behind_a_proxy_is_never_local(photo_album, proxies, headers, is_here):
    with open_client(open_album(photo_album), "127.0.0.1", proxies=proxies) as client:
        about = client.get(f"{API}/photo/about", params={"id": photo_album[2][0]}, headers=headers).json()
    assert (about["path"] is not None, about["original"]) == (is_here, is_here)


def test_a_trusted_proxy_is_an_address(photo_album, run_logt):
    with pytest.raises(InvalidInputError, match=re.escape("got '*'")):
        create_app(open_album(photo_album), Settings(TOKEN, proxies=("*",)))
    assert "a trusted proxy must be an IP address" in run_logt(
        "serve", photo_album[1], "--port", 0, "--trusted-proxy", "*", ok=False
    )


def test_ids_with_surrogates_are_shown(tmp_path, vectors):
    built(vectors(3, 8), ids=["a", "b\ud800", "\udcff"]).save(tmp_path / "i")
    with open_client(VectorCollection(tmp_path / "i")) as client:
        for params in ({}, {"id": "a"}):
            assert client.get("/", params=params).status_code == 200
        assert client.get("/?id=%ED%A0%80").status_code == 404
        found = result_ids(client.post(f"{API}/search/ids", json={"ids": ["a"], "k": 2}))[0]
        assert set(found) == {"b\ud800", "\udcff"}
        response = client.post(f"{API}/search/ids", content=b'{"ids": ["\\ud800"]}', headers=JSON)
        error_message(response, 422, "invalid_input")
        for method, path in (("GET", "/photo?id=%ED%A0%80"), ("GET", "/changes/%ED%A0%80")):
            assert 400 <= client.request(method, API + path).status_code < 500

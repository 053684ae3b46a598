"""The large view and what it says of a photo: keys, zoom, files for this machine only; headings of few photos."""

import zipfile
from io import BytesIO

import pytest
from PIL import Image
from server_testing import API, TOKEN, error_message, open_album, open_client, run_server
from synthetic_photos import draw_scene, write_photos

from logt.descriptors.image_io import read_camera
from logt.server import photo_api
from logt.server.app import create_app

NAME, HERE = "scene 00/photo 0.jpg", "127.0.0.1"


def write_exif(path):
    exif = Image.Exif()
    exif[0x0110] = "Camera 5\0"
    exif.get_ifd(0x8769).update({0x829A: 0.005, 0x829D: 2.8, 0x8827: 400, 0x920A: 35.0, 0xA434: "<b>Lens</b>"})
    exif.get_ifd(0x8825)[1] = "N"
    draw_scene(0).save(path, exif=exif)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """(folder, index) of photos of two days in different months; the first has EXIF data."""
    root = tmp_path_factory.mktemp("large")
    write_photos(root / "p", root / "i", 12, 4, link=5)
    write_exif(root / "p" / NAME)
    return root / "p", root / "i"


CAMERA = {"Camera": "Camera 5", "Lens": "<b>Lens</b>", "Exposure": "1/200 s", "Aperture": "f/2.8", "ISO": "400"}
CAMERA["Focal length"] = "35 mm"


def about(client, **options):
    return client.get(f"{API}/photo/about", params={"id": NAME}, **options).json()


def test_the_camera_and_exposure_are_read_and_damaged_values_left_out(shown, tmp_path):
    assert read_camera(shown[0] / NAME) == CAMERA
    exif = Image.Exif()
    exif.get_ifd(0x8769).update({0x829A: 0.0, 0x8827: "many"})
    draw_scene(0).save(tmp_path / "odd.jpg", exif=exif)
    assert read_camera(tmp_path / "odd.jpg") == {}


def test_files_and_paths_are_for_clients_of_this_machine(shown, monkeypatch):
    started = []
    monkeypatch.setattr(photo_api, "show_in_folder", started.append)
    original = (shown[0] / NAME).read_bytes()
    show, file = f"{API}/photo/show", {"id": NAME, "size": "original"}
    with open_client(open_album(shown), HERE) as client:
        assert about(client) == {"camera": CAMERA, "original": True, "path": str(shown[0] / NAME)}
        assert client.get(f"{API}/photo", params=file).content == original
        packed = client.post(f"{API}/photos/zip", data={"ids": f'["{NAME}"]'}).content
        assert zipfile.ZipFile(BytesIO(packed)).read(NAME) == original
        assert client.post(show, params={"id": NAME}).status_code == 204
        assert started == [shown[0] / NAME]
        assert client.post(show, params={"id": "none"}).status_code == 404
        assert client.post(show, params={"id": NAME}, headers={"Origin": "http://evil.example"}).status_code == 403
    for settings in ({}, {"token": TOKEN}):
        with open_client(open_album(shown), "192.0.2.1", **settings) as client:
            client.headers["Authorization"] = f"Bearer {TOKEN}"
            assert about(client) == {"camera": {}, "original": False, "path": None}
            error_message(client.get(f"{API}/photo", params=file), 403, "no_originals")
            error_message(client.post(show, params={"id": NAME}), 403, "not_here")
    assert len(started) == 1
    with open_client(open_album(shown), "192.0.2.1", originals=True) as client:
        assert about(client) == {"camera": CAMERA, "original": True, "path": None}


def test_a_machine_without_a_desktop_says_so(shown, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with open_client(open_album(shown), HERE) as client:
        error_message(client.post(f"{API}/photo/show", params={"id": NAME}), 501, "no_desktop")


def test_keys_select_zoom_and_search_and_a_caption_opens_the_photo(shown, new_page):
    with run_server(create_app(open_album(shown))) as url:
        new_page.goto(f"{url}/?order=folder")
        new_page.wait_for_selector("#virtual.active .card")
        new_page.locator(".caption").first.click()
        new_page.wait_for_function("() => document.querySelector('#lightbox-about').textContent.includes('f/2.8')")
        assert new_page.locator("#lightbox-path").text_content() == str(shown[0] / NAME)
        assert "size=original" in new_page.get_by_role("link", name="Download").get_attribute("href")
        new_page.keyboard.press("Space")
        assert new_page.locator("#lightbox").is_visible()
        assert new_page.get_by_role("button", name="Select", exact=True).get_attribute("aria-pressed") == "true"
        assert new_page.locator("#selection-count").text_content() == "1 photo selected"
        width = new_page.locator("#lightbox-photo").bounding_box()["width"]
        new_page.keyboard.press("z")
        assert new_page.locator("#lightbox-photo").bounding_box()["width"] > 1.9 * width
        new_page.locator("#lightbox-photo").click()
        assert new_page.locator("#lightbox-photo").bounding_box()["width"] == pytest.approx(width)
        new_page.keyboard.press("s")
        new_page.wait_for_selector(".results .card")
        new_page.keyboard.press("Tab")
        new_page.keyboard.press("Enter")  # skip to the photos
        new_page.wait_for_function("() => location.hash")
        new_page.keyboard.press("Tab")
        assert new_page.evaluate("document.activeElement.closest('.card').id") == "result-0"


def test_the_thumbnail_is_shown_until_the_large_photo_is_there_and_the_next_one_is_fetched(shown, new_page):
    held, background = [], "document.querySelector('#lightbox-photo').style.background"
    new_page.route("**/photo?*size=large*", lambda route: held.append(route))
    with run_server(create_app(open_album(shown))) as url:
        new_page.goto(f"{url}/?order=folder")
        new_page.wait_for_selector("#virtual.active .card")
        with new_page.expect_request("**/photo?*size=large*"):
            new_page.locator(".caption").first.click()
        assert "size=thumb" in new_page.evaluate(background)
        with new_page.expect_request("**/photo?*size=large*") as next_photo:
            held.pop().continue_()
        assert "photo+1.jpg" in next_photo.value.url
        assert new_page.evaluate(background) == ""
        held.pop().continue_()


def test_months_of_few_photos_share_a_row(shown, new_page):
    with run_server(create_app(open_album(shown))) as url:
        new_page.goto(url)
        new_page.wait_for_selector("#virtual.active .card")
        grid = "(await import('/static/virtual_grid.js')).joinMonths"
        groups = [["2020-05", 1], ["2020-04", 1], ["2020-01", 1], ["2019-12", 5], ["2019-11", 1], ["a b", 1]]
        joined = new_page.evaluate(f"async (groups) => {grid}(groups, 4)", groups)
        assert joined == [["2020-01 2020-05", 3], ["2019-12", 5], ["2019-11", 1], ["a b", 1]]
        assert new_page.locator(".headings h2").all_text_contents() == ["February 202017", "January 202031"]

"""The large view of the web page in Chromium, and what is done while it is open."""

from __future__ import annotations

import pytest
from server_testing import enter_photo, run_server
from synthetic_photos import SyntheticPhotos, draw_scene, encode_jpeg, write_photos

from logt.server.app import create_app
from logt.server.photo_collection import PhotoCollection


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A server of 90 photos of 30 scenes."""
    root = tmp_path_factory.mktemp("large")
    write_photos(root / "photos", root / "index", 30, 3, "scene {number:03}/photo {seed}.jpg")
    with run_server(create_app(PhotoCollection(SyntheticPhotos(root / "photos", root / "index")))) as url:
        yield url


def open_large(page, url):
    """Open the first photo of the list in the large view."""
    page.goto(url)
    page.locator(".tile").first.click()
    page.locator("dialog[open]").wait_for()


def test_reload_keeps_the_position_that_the_large_view_has_scrolled_to(new_page, url):
    open_large(new_page, url)
    for _ in range(40):
        new_page.keyboard.press("ArrowRight")
    new_page.wait_for_function("() => window.scrollY > 0")
    new_page.keyboard.press("Escape")
    new_page.wait_for_function("() => !history.state.large")
    new_page.wait_for_function("() => history.state.scroll === window.scrollY")
    scrolled = new_page.evaluate("window.scrollY")
    new_page.reload()
    new_page.wait_for_function("scrolled => window.scrollY === scrolled", arg=scrolled)
    assert scrolled > 0


@pytest.mark.parametrize("method", ["paste", "drop"])
def test_a_photo_that_is_entered_in_the_large_view_closes_it(new_page, url, method):
    open_large(new_page, url)
    new_page.keyboard.press("ArrowRight")
    enter_photo(new_page, method, encode_jpeg(draw_scene(4, 99)))
    new_page.wait_for_function("() => location.search.startsWith('?photo=')")
    new_page.wait_for_selector("main:not([aria-busy=true]) .results-page .card")
    assert new_page.locator("dialog").is_hidden()
    new_page.go_back()
    new_page.wait_for_selector("#virtual .card")
    assert new_page.locator("dialog").is_hidden()
    new_page.go_forward()
    new_page.wait_for_selector("main:not([aria-busy=true]) .results-page .card")


@pytest.mark.parametrize(
    "new_page",
    [{"viewport": {"width": width, "height": height}} for width, height in ((375, 667), (667, 375), (900, 700))],
    indirect=True,
    ids=["phone", "phone on its side", "tablet"],
)
def test_the_button_that_closes_the_large_view_is_next_to_the_photo(new_page, url):
    open_large(new_page, url)
    image, button = (new_page.locator(f"dialog {selector}").bounding_box() for selector in ("img", ".close"))
    right, bottom = image["x"] + image["width"], button["y"] + button["height"]
    assert right <= button["x"] or bottom <= image["y"]
    assert min(image["width"], image["height"]) > 150

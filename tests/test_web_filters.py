"""The filters of the web page in Chromium: typing, focus, and what keeps them."""

from __future__ import annotations

import re

import pytest
from server_testing import enter_photo, run_server
from synthetic_photos import SyntheticPhotos, draw_scene, encode_jpeg, write_photos

import logt
from logt.photos.progress_file import published_progress
from logt.server.app import create_app
from logt.server.photo_collection import PhotoCollection
from logt.server.rendering import _templates
from logt.server.web import PageParams

SCENES = 40
RESULTS = "?id=scene+005/photo+0.jpg"


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    """120 photos of 40 scenes in as many folders, one photo a day from 2020-01-01."""
    root = tmp_path_factory.mktemp("filters")
    write_photos(root / "photos", root / "index", SCENES, 3, "scene {number:03}/photo {seed}.jpg")
    return PhotoCollection(SyntheticPhotos(root / "photos", root / "index"))


@pytest.fixture(scope="module")
def url(collection):
    with run_server(create_app(collection)) as url:
        yield url


@pytest.fixture
def page(new_page, url):
    """The start page, marked so that a test can see whether it was loaded again."""
    new_page.goto(url)
    new_page.wait_for_selector(".card")
    new_page.evaluate("window.marker = true")
    return new_page


def wait_for_search(page, pattern):
    """Wait until the query of the URL matches a pattern, and the content is loaded."""
    page.wait_for_function("pattern => new RegExp(pattern).test(location.search)", arg=pattern)
    page.wait_for_selector("main:not([aria-busy=true])")


def focused(page):
    return page.evaluate("document.activeElement.name")


@pytest.mark.parametrize("end", ["Enter", "Tab Tab Tab Tab"])
def test_dates_are_typed_with_the_keyboard(page, end):
    page.get_by_label("From", exact=True).focus()
    page.keyboard.type("02012020", delay=60)
    assert page.locator("[name=from]").input_value() == "2020-02-01"
    page.keyboard.press("Tab")  # to the button of the calendar
    page.keyboard.press("Tab")
    page.keyboard.type("02032020", delay=60)
    assert page.locator("[name=to]").input_value() == "2020-02-03"
    assert "from" not in page.url
    for key in end.split():
        page.keyboard.press(key)
    wait_for_search(page, "from=2020-02-01&to=2020-02-03$")
    assert page.locator(".card").count() == 3
    assert page.evaluate("window.marker")


def test_a_date_that_was_cleared_is_no_filter(page, url):
    page.goto(f"{url}?from=2020-02-01")
    page.get_by_label("From", exact=True).focus()
    page.keyboard.press("Backspace")
    page.keyboard.type("03", delay=60)
    assert page.locator("[name=from]").input_value() == "2020-03-01"
    page.keyboard.press("ArrowLeft")
    for _ in range(3):
        page.keyboard.press("Backspace")
        page.keyboard.press("ArrowRight")
    assert "from=2020-02-01" in page.url
    page.get_by_role("button", name="Filter").click()
    page.wait_for_function("() => !location.search.includes('from')")


def test_filters_keep_the_focus(page):
    page.locator("select[name=folder]").focus()
    page.keyboard.press("ArrowDown")
    wait_for_search(page, "folder=scene.000")
    assert focused(page) == "folder"
    page.keyboard.press("ArrowDown")
    wait_for_search(page, "folder=scene.001")
    page.get_by_label("Name").focus()
    page.keyboard.type("1.jpg")
    page.keyboard.press("Enter")
    wait_for_search(page, "name=1.jpg")
    assert focused(page) == "name"
    assert page.locator(".card").count() == 1
    page.get_by_role("button", name="Filter").press("Enter")
    page.wait_for_selector("main:not([aria-busy=true])")
    assert page.evaluate("document.activeElement.textContent") == "Filter"


def test_show_more_goes_on_with_the_first_new_photo(page, url):
    page.goto(f"{url}{RESULTS}")
    page.get_by_role("link", name="Show more").press("Enter")
    wait_for_search(page, "k=72")
    page.wait_for_function("() => document.activeElement.closest('.card')")
    position = "[...document.querySelectorAll('.card')].indexOf(document.activeElement.closest('.card'))"
    assert page.evaluate(position) == 24


def test_the_results_of_a_photo_of_the_index_are_filtered_without_loading_the_page_again(page, url):
    page.goto(f"{url}{RESULTS}")
    page.evaluate("window.marker = true")
    page.locator("select[name=folder]").select_option("scene 005")
    wait_for_search(page, "folder=scene.005")
    assert page.evaluate("window.marker")
    assert page.locator(".results .card").count() == 2


def test_new_photos_do_not_erase_what_is_typed(new_page, tmp_path):
    write_photos(tmp_path / "p", tmp_path / "i", 2, 2)
    photos = PhotoCollection(SyntheticPhotos(tmp_path / "p", tmp_path / "i"))
    with run_server(create_app(photos)) as own, published_progress(tmp_path / "i", None) as report:
        report("indexing", 1, 2)  # the page looks each second
        new_page.goto(own)
        new_page.wait_for_selector("#indexing:not([hidden])")
        new_page.get_by_label("Name").focus()
        new_page.keyboard.type("pho")
        with logt.open(tmp_path / "i", "a") as index:
            index.remove(index.ids[:1])
            index.save()
        new_page.wait_for_function("() => document.querySelector('.count').textContent === '3 photos'")
        new_page.wait_for_timeout(500)
        new_page.keyboard.type("to")
        assert new_page.get_by_label("Name").input_value() == "photo"
        assert focused(new_page) == "name"
        new_page.get_by_label("Name").fill("")
        new_page.locator("main").focus()
        new_page.wait_for_function("() => document.querySelectorAll('.card').length === 3")


FILTERS = "name=jpg&folder=scene+005&from=2020-01-01&to=2020-12-31"


def test_find_similar_and_a_photo_of_the_user_keep_the_filters(page, url):
    page.goto(f"{url}?{FILTERS}")
    page.locator(".tile").first.click()
    page.get_by_role("link", name="Find similar").click()
    wait_for_search(page, "id=.*&name=jpg&folder=scene.005&from=2020-01-01&to=2020-12-31$")
    assert page.locator(".results .card").count() == 2
    enter_photo(page, "paste", encode_jpeg(draw_scene(5, 99)))
    wait_for_search(page, "photo=.*&name=jpg&folder=scene.005&from=2020-01-01&to=2020-12-31$")
    assert page.locator(".results .card").count() == 3
    page.locator(".tile").first.click()
    page.get_by_role("link", name="Find similar").click()
    wait_for_search(page, "id=.*folder=scene.005")
    assert "photo=" not in page.url


def test_a_search_by_text_keeps_the_filters():
    form = _templates.get_template("text_form.html").module.text_form
    html = str(form(PageParams(text="a bus", name="<x>", folder="scene 005", first="2020-01-01")))
    fields = dict(re.findall(r'<input[^>]* ?name="(\w+)" value="([^"]*)"', html))
    assert fields == {"text": "a bus", "name": "&lt;x&gt;", "folder": "scene 005", "from": "2020-01-01"}


def test_the_title_is_the_same_after_reload(page):
    page.locator(".tile").first.click()
    page.get_by_role("link", name="Find similar").click()
    wait_for_search(page, "id=")
    assert page.title() == "photo 2.jpg · photos"
    page.reload()
    assert page.title() == "photo 2.jpg · photos"
    page.get_by_role("link", name="Duplicates").click()
    page.wait_for_selector(".duplicates-page")
    assert page.title() == "Duplicates · photos"
    page.go_back()
    page.wait_for_selector(".results-page")
    assert page.title() == "photo 2.jpg · photos"

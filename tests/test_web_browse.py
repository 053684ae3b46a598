"""The web page in Chromium: all photos, filters, selection, duplicates, uploads, indexing, accessibility."""

from __future__ import annotations

import re
import zipfile

import pytest
from server_testing import run_server
from synthetic_photos import SyntheticPhotos, draw_scene, encode_jpeg, write_photos

import logt
from logt.photos import update
from logt.photos.progress_file import published_progress
from logt.photos.synthetic_scenes import write_synthetic_photos
from logt.server.app import create_app
from logt.server.photo_collection import PhotoCollection, open_collection
from logt.server.settings import Settings

PHONE = {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True}
SCENES = 130


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    """390 photos of 130 scenes in as many folders; one photo a day, so that there are 13 months. It has a graph."""
    root = tmp_path_factory.mktemp("browse")
    write_photos(root / "photos", root / "index", SCENES, 3, "scene {number:03}/photo {seed}.jpg")
    with logt.open(root / "index", "a") as index:
        index.link(5)
        index.save()
    return PhotoCollection(SyntheticPhotos(root / "photos", root / "index"))


@pytest.fixture(scope="module")
def url(collection):
    with run_server(create_app(collection)) as url:
        yield url


def visible_names(page):
    return page.eval_on_selector_all(
        ".card",
        """cards => cards.filter((card) => { const { top, bottom } = card.getBoundingClientRect();
            return bottom > 0 && top < innerHeight; }).map((card) => card.dataset.id)""",
    )


def wait_for_cards(page):
    page.wait_for_selector("main:not([aria-busy=true]) .card")


def test_all_photos_are_browsed_newest_first_and_few_are_in_the_document(new_page, url):
    new_page.goto(url)
    wait_for_cards(new_page)
    assert visible_names(new_page)[0] == f"scene {SCENES - 1:03}/photo 2.jpg"
    heading = new_page.locator(".headings h2").first
    assert heading.text_content() == "January 202124"
    assert heading.evaluate("h2 => parseFloat(getComputedStyle(h2).paddingLeft)") >= 2  # a J begins left of its box
    new_page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    new_page.wait_for_selector('.card[data-id="scene 000/photo 0.jpg"]')
    assert visible_names(new_page)[-1] == "scene 000/photo 0.jpg"
    assert new_page.locator(".card").count() < 200
    last = new_page.locator('.card[data-id="scene 000/photo 0.jpg"]')
    assert (last.get_attribute("aria-posinset"), last.get_attribute("aria-setsize")) == ("390", "390")
    scrolled = new_page.evaluate("window.scrollY")
    new_page.wait_for_function("scrolled => history.state?.scroll === scrolled", arg=scrolled)
    new_page.reload()
    new_page.wait_for_selector('.card[data-id="scene 000/photo 0.jpg"]')
    assert new_page.evaluate("window.scrollY") == scrolled
    last.locator(".tile").click()
    new_page.keyboard.press("ArrowLeft")
    assert new_page.locator("#lightbox-name").text_content() == "scene 000/photo 1.jpg"
    assert "2020-01-02 12:00 · 240 × 180" in new_page.locator("#lightbox-about").text_content()


def test_photos_are_whole_in_their_tiles(new_page, url):
    new_page.goto(url)
    wait_for_cards(new_page)
    assert new_page.locator(".tile img").first.evaluate("image => getComputedStyle(image).objectFit") == "contain"


def test_the_list_is_filtered_by_name_folder_and_date(new_page, url):
    new_page.goto(url)
    new_page.get_by_label("Name").fill("PHOTO 1.JPG")
    new_page.get_by_role("button", name="Filter").click()
    new_page.wait_for_url(re.compile("name=PHOTO"))
    assert f"{SCENES} photos of 390" in new_page.locator(".total").text_content()
    new_page.locator("select[name=folder]").select_option("scene 007")
    new_page.wait_for_url(re.compile("folder=scene"))
    assert visible_names(new_page) == ["scene 007/photo 1.jpg"]
    new_page.get_by_role("link", name="Clear").click()
    new_page.wait_for_function("() => location.search === ''")
    new_page.get_by_label("From", exact=True).fill("2020-02-01")
    new_page.get_by_label("To", exact=True).fill("2020-02-03")
    new_page.wait_for_url(re.compile("to=2020-02-03"))
    wait_for_cards(new_page)
    expected = [f"scene 010/photo {n}.jpg" for n in (2, 1)]  # days 32 and 31 of 2020, counted from 0
    assert visible_names(new_page) == ["scene 011/photo 0.jpg", *expected]
    new_page.go_back()
    new_page.wait_for_function("() => !location.search.includes('to=')")
    new_page.goto(f"{url}?order=folder")
    wait_for_cards(new_page)
    assert visible_names(new_page)[0] == "scene 000/photo 0.jpg"
    assert new_page.locator(".headings h2").first.text_content() == "scene 0003"


def test_a_search_is_filtered_and_has_a_divider(new_page, url):
    new_page.goto(f"{url}?id=scene+005/photo+0.jpg")
    assert new_page.locator(".results .grid").first.locator(".card").count() >= 2
    assert new_page.locator("#divider").text_content() == "Probably unrelated"
    new_page.get_by_label("Name").fill("2.jpg")
    new_page.get_by_role("button", name="Filter").click()
    new_page.wait_for_url(re.compile("name=2"))
    assert new_page.locator(".results .card").first.get_attribute("data-id") == "scene 005/photo 2.jpg"
    names = new_page.eval_on_selector_all(".results .card", "cards => cards.map((card) => card.dataset.id)")
    assert all(name.endswith("photo 2.jpg") for name in names)
    new_page.get_by_role("switch", name="Deeper search").click()
    new_page.wait_for_url(re.compile("deep=1"))
    assert new_page.locator("#divider").count() == 0
    assert new_page.get_by_role("switch").get_attribute("aria-checked") == "true"


def test_selected_photos_are_exported(new_page, url, tmp_path):
    new_page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    new_page.goto(f"{url}?order=folder")
    boxes = new_page.locator("[data-select]")
    boxes.nth(0).click()
    boxes.nth(2).click(modifiers=["Shift"])
    assert new_page.locator("#selection-count").text_content() == "3 photos selected"
    expected = [f"scene 000/photo {n}.jpg" for n in range(3)]
    with new_page.expect_download() as download:
        new_page.get_by_role("button", name="Download zip").click()
    download.value.save_as(tmp_path / "photos.zip")
    assert zipfile.ZipFile(tmp_path / "photos.zip").namelist() == expected
    with new_page.expect_download() as download:
        new_page.get_by_role("button", name="Save list").click()
    download.value.save_as(tmp_path / "photos.txt")
    assert (tmp_path / "photos.txt").read_text().splitlines() == expected
    new_page.get_by_role("button", name="Copy list").click()
    new_page.wait_for_function("async () => (await navigator.clipboard.readText()).split('\\n').length === 4")
    new_page.goto(f"{url}?id=scene+000/photo+0.jpg")  # the selection stays
    assert new_page.locator(".results .card.selected").count() == 2
    new_page.get_by_role("button", name="Clear", exact=True).click()
    assert new_page.locator("#selection-bar").is_hidden()
    assert new_page.locator(".selected").count() == 0


def test_a_range_of_the_selection_contains_photos_that_are_not_in_the_document(new_page, url):
    new_page.goto(f"{url}?order=folder")
    wait_for_cards(new_page)
    new_page.locator("[data-select]").nth(1).click()
    new_page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    last = new_page.locator(f'.card[data-id="scene {SCENES - 1:03}/photo 2.jpg"] [data-select]')
    last.click(modifiers=["Shift"])
    selected = "text => document.querySelector('#selection-count').textContent === text"
    new_page.wait_for_function(selected, arg="389 photos selected")
    assert new_page.locator(".card:not(.selected)").count() == 0
    new_page.locator("[data-select]").nth(-4).click(modifiers=["Shift"])  # unselects
    new_page.wait_for_function(selected, arg="385 photos selected")


def test_duplicates_are_listed_with_the_best_first_and_nothing_is_deleted(new_page, collection, url, tmp_path):
    new_page.goto(url)
    new_page.get_by_role("link", name="Duplicates").click()
    new_page.wait_for_selector(".group")
    group = new_page.locator(".group").first
    names = group.locator(".card").evaluate_all("cards => cards.map((card) => card.dataset.id)")
    assert group.locator(".folder").first.text_content() == names[0].split("/")[0]
    assert "240 × 180" in group.locator(".about").first.text_content()
    best = max(names)  # of equal pixels, the one with most bytes
    assert names[0] == best
    assert group.locator(".card.selected").count() == len(names) - 1
    total = int(new_page.locator("#selection-count").text_content().split()[0])
    group.locator("[data-select]").nth(1).click()
    with new_page.expect_download() as download:
        new_page.get_by_role("button", name="Save list").click()
    download.value.save_as(tmp_path / "delete.txt")
    listed = (tmp_path / "delete.txt").read_text().splitlines()
    assert len(listed) == total - 1
    assert best not in listed
    assert all(collection.photo_path(name).exists() for name in listed)


def test_photos_are_added_where_uploads_are_allowed(new_page, url, tmp_path, small):
    new_page.goto(url)
    assert new_page.get_by_role("button", name="Add photos").count() == 0
    write_synthetic_photos(tmp_path, 2, 2, 0)
    update(tmp_path / "collection", model=small)
    with run_server(create_app(open_collection(tmp_path / "collection", allow_uploads=True))) as own:
        new_page.goto(own)
        good = {"name": "new.jpg", "mimeType": "image/jpeg", "buffer": encode_jpeg(draw_scene(9))}
        bad = [{"name": f"{name}.txt", "mimeType": "text/plain", "buffer": b"none"} for name in ("notes", "more")]
        new_page.set_input_files("#new-photos", [good, *bad])
        new_page.wait_for_function("() => document.querySelector('#adding').textContent.includes('1 photo added')")
        failed = new_page.locator("#adding li").all_text_contents()
        assert [text.partition(": not an image")[0] for text in failed] == ["notes.txt", "more.txt"]
        assert "1 photo added, 2 not:" in new_page.locator("#adding p").text_content()
        new_page.wait_for_selector('.card[data-id^="uploads/"]')
        new_page.wait_for_function("() => document.querySelector('.count').textContent === '5 photos'")


@pytest.mark.parametrize(
    "new_page", [PHONE | {"viewport": {"width": width, "height": 640}} for width in (320, 360, 412)], indirect=True
)
def test_everything_fits_on_a_small_phone(new_page, collection, monkeypatch):
    monkeypatch.setattr(collection, "allows_uploads", True)
    with run_server(create_app(collection)) as url:
        new_page.goto(url)
        wait_for_cards(new_page)
        assert new_page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        for name in ("Search", "Add", "Duplicates"):
            box = new_page.locator(".topbar nav .button", has_text=name).bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= new_page.viewport_size["width"]
        style = new_page.locator(".filter-box summary").evaluate("(e) => getComputedStyle(e).display")
        assert style == "list-item"  # shows whether it is open


def test_the_progress_of_indexing_is_shown_while_it_runs(new_page, collection, url):
    with published_progress(collection.photos.path, None) as report:
        report("indexing", 1200, 5000)
        new_page.goto(url)
        new_page.wait_for_selector("#indexing:not([hidden])")
        assert "Indexing: 1,200 of 5,000 photos" in new_page.locator("#indexing").text_content()
    new_page.wait_for_selector("#indexing", state="hidden")


@pytest.mark.parametrize("new_page", [{}, PHONE | {"color_scheme": "dark"}], indirect=True, ids=["desktop", "phone"])
def test_axe_finds_no_violations(new_page, collection):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = {}

    def check(name):
        results = axe.run(new_page).response["violations"]
        found.update({(name, rule["id"]): [node["html"] for node in rule["nodes"]][:3] for rule in results})

    with run_server(create_app(collection, Settings(token="a token of some length"))) as url:
        new_page.goto(url)
        check("login")
        new_page.goto(f"{url}/?token=a+token+of+some+length")
        wait_for_cards(new_page)
        new_page.locator("[data-select]").first.click()
        check("browse")
        new_page.locator(".tile").first.click()
        new_page.locator("dialog[open]").wait_for()
        check("large view")
        new_page.goto(f"{url}/?id=scene+005/photo+0.jpg")
        wait_for_cards(new_page)
        check("results")
        new_page.goto(f"{url}/duplicates")
        new_page.wait_for_selector(".group")
        check("duplicates")
        new_page.goto(f"{url}/?id=none")
        check("error")
        new_page.goto(f"{url}/docs")
        check("API")
    assert found == {}

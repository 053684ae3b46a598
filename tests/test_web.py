"""The web page in a real browser, Chromium; without Chromium these tests are skipped."""

from __future__ import annotations

import os
import re

import pytest
from server_testing import TOKEN, enter_photo, run_server
from synthetic_photos import SyntheticPhotos, draw_scene, draw_two_scenes, encode_jpeg, write_photos

import logt
from logt.server.app import create_app
from logt.server.collection import VectorCollection
from logt.server.photo_collection import PhotoCollection
from logt.server.settings import Limits, Settings

EVIL = "<img src=x onerror=alert(1)>.jpg"


@pytest.fixture(scope="module")
def album(tmp_path_factory):
    """(URL, ids): 60 photos of 20 scenes; the name of the last one is HTML."""
    root = tmp_path_factory.mktemp("page")
    ids = write_photos(root / "my photos", root / "index", 20, 3)
    with logt.open(root / "index", "a") as index:
        index.add(index.reconstruct(ids[-1:]), ids=[EVIL])
        index.remove(ids[-1:])
        index.save()
    os.rename(root / "my photos" / ids[-1], root / "my photos" / EVIL)
    ids[-1] = EVIL
    with run_server(create_app(PhotoCollection(SyntheticPhotos(root / "my photos", root / "index")))) as url:
        yield url, ids


@pytest.fixture
def small_album(tmp_path):
    """A collection of four photos."""
    write_photos(tmp_path / "p", tmp_path / "i", 2, 2)
    return PhotoCollection(SyntheticPhotos(tmp_path / "p", tmp_path / "i"))


@pytest.fixture
def page(new_page, album):
    """The start page."""
    new_page.goto(album[0])
    return new_page


def wait_for_results(page):
    """Wait for the results and return their ids."""
    page.wait_for_selector("main:not([aria-busy=true]) .results-page .tile")
    return page.eval_on_selector_all(".results .card", "cards => cards.map(card => card.dataset.id)")


def wait_for_query(page, id):
    page.wait_for_function("id => document.querySelector('#query')?.dataset.id === id", arg=id)


def wait_for_region(page, condition):
    """Wait until a condition on the region that was searched is true; `box` is its text."""
    page.wait_for_function(
        f"() => {{ const box = document.querySelector('#query-image')?.dataset.box; return {condition}; }}"
    )


def drag(page, start, end):
    """Drag over the query photo between two positions, given as fractions of it."""
    page.wait_for_selector("#region-tools:not([hidden])", state="attached")
    bounds = page.locator("#query-image").bounding_box()
    (x0, y0), (x1, y1) = (
        (bounds["x"] + x * bounds["width"], bounds["y"] + y * bounds["height"]) for x, y in (start, end)
    )
    page.mouse.move(x0, y0)
    page.mouse.down()
    page.mouse.move(x1, y1, steps=4)
    page.mouse.up()


@pytest.mark.parametrize("method", ["drop", "paste", "choose"])
def test_a_photo_finds_the_others_of_its_scene(page, album, method):
    enter_photo(page, method, encode_jpeg(draw_scene(4, 99)))
    assert set(wait_for_results(page)[:3]) == set(album[1][12:15])
    assert page.locator("#query").evaluate("image => image.naturalWidth") == 240
    assert "24 results for query.jpg" in page.locator("#status").text_content()
    width = page.locator(".results img").first.evaluate("async i => { await i.decode(); return i.naturalWidth }")
    assert width == 240


def test_dragging_a_file_over_the_page_shows_the_drop_overlay(page):
    script = """(type) => {
        const data = new DataTransfer();
        data.items.add(new File(["x"], "a.jpg", { type: "image/jpeg" }));
        document.body.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true }));
    }"""
    page.evaluate(script, "dragenter")
    assert page.locator("#drop-overlay").is_visible()
    page.evaluate(script, "dragleave")
    assert page.locator("#drop-overlay").is_hidden()


def open_first(page):
    """Search with the first photo of the first scene, through the large view, and return its id."""
    page.goto(f"{page.url.split('?')[0]}?order=folder")
    photo_id = "scene 00/photo 0.jpg"
    page.locator(f'.card[data-id="{photo_id}"] .tile').click()
    find_similar(page)
    return photo_id


def find_similar(page):
    page.get_by_role("link", name="Find similar").click()
    page.wait_for_selector("dialog:not([open])", state="attached")


def test_a_click_opens_a_photo_and_find_similar_searches_with_it(page, album):
    ids = album[1]
    assert open_first(page) == ids[0]
    assert set(wait_for_results(page)[:2]) == set(ids[1:3])
    second = page.locator(".results .tile").nth(20)
    second_id = page.locator(".results .card").nth(20).get_attribute("data-id")
    second.click()
    assert page.locator("#lightbox-name").text_content() == second_id
    find_similar(page)
    wait_for_query(page, second_id)
    assert second_id not in wait_for_results(page)
    page.go_back()
    wait_for_query(page, ids[0])
    page.reload()
    assert set(wait_for_results(page)[:2]) == set(ids[1:3])
    page.go_back()
    page.wait_for_selector("#virtual")


def test_back_closes_the_large_view_and_nothing_else(page):
    open_first(page)
    before = wait_for_results(page)
    page.locator(".results .tile").nth(12).click()
    page.locator("dialog[open]").wait_for()
    scrolled = page.evaluate("window.scrollY")
    page.go_back()
    page.wait_for_selector("dialog:not([open])", state="attached")
    assert wait_for_results(page) == before
    assert page.evaluate("window.scrollY") == scrolled > 0
    page.locator(".results .tile").nth(12).click()
    page.keyboard.press("Escape")
    page.wait_for_function("() => !history.state.large")
    assert wait_for_results(page) == before
    page.go_back()
    page.wait_for_selector("#virtual")


def test_a_search_with_a_photo_has_a_url_for_a_while(page, album):
    enter_photo(page, "choose", encode_jpeg(draw_scene(4, 99)))
    first = wait_for_results(page)
    page.wait_for_url(re.compile(r"\?photo="))
    assert "described in" in page.locator("#heading").text_content()
    page.reload()
    assert wait_for_results(page) == first
    assert "described in" not in page.locator("#heading").text_content()
    assert page.locator("#query").evaluate("image => image.naturalWidth") == 240
    page.locator(".results .tile").nth(10).click()
    find_similar(page)
    page.wait_for_selector("#query[data-id]")
    page.go_back()
    page.wait_for_selector("#query:not([data-id])")
    assert wait_for_results(page) == first
    page.goto(f"{album[0]}/?photo=none")
    assert "has expired" in page.get_by_role("alert").text_content()


def test_back_and_reload_keep_the_scroll_position_and_show_more(page):
    open_first(page)
    wait_for_results(page)
    page.get_by_role("link", name="Show more").click()
    page.wait_for_function("() => document.querySelectorAll('.results .tile').length === 59")
    page.wait_for_url(re.compile("k=72"))
    page.evaluate("window.scrollTo(0, 900)")
    page.wait_for_function("() => history.state.scroll === 900")
    page.reload()
    assert len(wait_for_results(page)) == 59
    page.wait_for_function("() => window.scrollY === 900")
    page.locator(".results .tile").nth(30).click()
    scrolled = page.evaluate("window.scrollY")
    find_similar(page)
    page.wait_for_function("() => document.querySelectorAll('.results .tile').length === 24 && window.scrollY === 0")
    page.go_back()
    page.wait_for_function("() => document.querySelectorAll('.results .tile').length === 59")
    page.wait_for_function("scrolled => window.scrollY === scrolled", arg=scrolled)


def test_a_region_is_selected_by_dragging(page, album):
    enter_photo(page, "drop", encode_jpeg(draw_two_scenes(1, 2), quality=95))
    wait_for_results(page)
    drag(page, (0.505, 0.01), (0.999, 0.999))
    wait_for_region(page, "box.startsWith('0.50')")
    page.wait_for_selector("#region:visible")
    assert set(wait_for_results(page)[:3]) == set(album[1][6:9])
    drag(page, (0.75, 0.5), (0.25, 0.5))  # move the region to the other half
    wait_for_region(page, "box.startsWith('0.00')")
    assert set(wait_for_results(page)[:3]) == set(album[1][3:6])
    page.get_by_role("button", name="Clear region").click()
    page.wait_for_selector("#select-region:visible")
    assert page.locator("#region").is_hidden()


def test_a_region_of_a_result_is_in_the_url(page):
    open_first(page)
    wait_for_results(page)
    drag(page, (0.1, 0.1), (0.6, 0.6))
    page.wait_for_url(re.compile(r"box=0\.1"))
    before = wait_for_results(page)
    page.reload()
    assert wait_for_results(page) == before
    assert page.locator("#region").is_visible()


def test_a_region_is_selected_with_the_keyboard(page):
    enter_photo(page, "choose", encode_jpeg(draw_scene(4, 99)))
    wait_for_results(page)
    page.get_by_role("button", name="Select a region").press("Enter")
    region = page.locator("#region")
    assert region.evaluate("element => element === document.activeElement")
    assert "from 25% to 75%" in region.get_attribute("aria-label")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowDown")
    expected = "Region, horizontally from 27% to 77%, vertically from 25% to 77%"
    assert region.get_attribute("aria-label") == expected
    page.keyboard.press("Enter")
    wait_for_region(page, "box === '0.2700,0.2500,0.7700,0.7700'")
    wait_for_results(page)
    page.locator("#region").press("Escape")
    wait_for_region(page, "box === ''")


def test_the_lightbox_works_with_the_keyboard(page):
    enter_photo(page, "choose", encode_jpeg(draw_scene(4, 99)))
    ids = wait_for_results(page)
    page.locator(".results .tile").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    name = page.locator("#lightbox-name")
    assert page.locator("dialog").is_visible()
    assert name.text_content() == ids[1]
    page.keyboard.press("ArrowRight")
    assert name.text_content() == ids[2]
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert name.text_content() == ids[0]
    assert page.locator(".previous").is_disabled()
    page.keyboard.press("Escape")
    assert page.locator("dialog").is_hidden()
    page.wait_for_function("() => !history.state.large")
    assert page.evaluate("document.activeElement.closest('.card').dataset.id") == ids[0]
    page.keyboard.press("Space")
    assert page.locator("#selection-count").text_content() == "1 photo selected"
    page.keyboard.press("s")
    wait_for_query(page, ids[0])


def test_a_name_that_is_markup_is_text(page, album):
    page.goto(f"{album[0]}/?id={EVIL.replace('<', '%3C').replace('>', '%3E')}")
    wait_for_results(page)
    assert page.locator(".query .name").text_content() == EVIL
    assert page.title().startswith(EVIL)
    enter_photo(page, "drop", encode_jpeg(draw_scene(19, 99)), name=EVIL)
    assert EVIL in wait_for_results(page)
    page.wait_for_timeout(200)  # if the handler ran, it would open a dialog, which fails the page fixture


def test_a_file_that_is_not_an_image_shows_the_supported_formats(page):
    enter_photo(page, "drop", b"not an image", name="notes.txt", media_type="text/plain")
    alert = page.get_by_role("alert")
    alert.wait_for()
    assert "Not a readable image" in alert.text_content()
    assert "JPEG" in alert.text_content()
    enter_photo(page, "choose", encode_jpeg(draw_scene(0, 99)))
    assert len(wait_for_results(page)) == 24


def test_a_stopped_server_is_reported(new_page, small_album):
    with run_server(create_app(small_album)) as url:
        new_page.goto(url)
        new_page.locator(".tile").first.click()
    new_page.get_by_role("link", name="Find similar").click()
    new_page.get_by_role("alert").wait_for()
    assert "does not respond" in new_page.get_by_role("alert").text_content()


def test_a_file_above_the_limit_is_not_sent(new_page, small_album):
    with run_server(create_app(small_album, Settings(limits=Limits(body_bytes=1 << 20)))) as url:
        new_page.goto(url)
        enter_photo(new_page, "drop", b"x" * (2 << 20))
        new_page.get_by_role("alert").wait_for()
        assert "too large" in new_page.get_by_role("alert").text_content()
        assert "The file has 2 MB. The limit is 1 MB." in new_page.get_by_role("alert").text_content()


@pytest.mark.parametrize(
    "new_page", [{"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True}], indirect=True
)
def test_the_page_fits_a_phone(page, album):
    def check_layout():
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        small = """elements => elements.filter(e => e.offsetParent && e.getBoundingClientRect().height < 40)
            .map(e => e.outerHTML)"""
        assert page.eval_on_selector_all("button, .button", small) == []

    check_layout()
    enter_photo(page, "choose", encode_jpeg(draw_scene(4, 99)))
    assert set(wait_for_results(page)[:3]) == set(album[1][12:15])
    check_layout()
    page.get_by_role("button", name="Select a region").tap()
    page.get_by_role("button", name="Search with this region").tap()
    wait_for_region(page, "box !== ''")
    check_layout()
    page.locator(".results .tile").first.tap()
    page.locator("dialog[open]").wait_for()
    check_layout()
    overlaps = """elements => elements.flatMap((a, i) => elements.slice(i + 1).filter((b) => {
        const [p, q] = [a, b].map((e) => e.getBoundingClientRect());
        return p.left < q.right && q.left < p.right && p.top < q.bottom && q.top < p.bottom;
    }).map((b) => [a.outerHTML, b.outerHTML]))"""
    assert page.eval_on_selector_all("dialog :is(button, a, img, p:not([hidden]))", overlaps) == []


@pytest.mark.parametrize("new_page", [{"color_scheme": "light"}, {"color_scheme": "dark"}], indirect=True)
def test_text_contrast_meets_wcag_aa(page):
    """A contrast of at least 4.5 for every pair of colours that the page uses."""
    open_first(page)
    wait_for_results(page)
    pairs = [
        *(("--text", "--background"), ("--muted", "--background"), ("--muted", "--surface")),
        *(("--accent", "--background"), ("--on-accent", "--accent"), ("--accent", "--tint")),
        ("--error", "--background"),
    ]
    script = """(pairs) => {
        const style = getComputedStyle(document.documentElement);
        const probe = document.body.appendChild(document.createElement("i"));
        const luminance = (name) => {
            probe.style.color = style.getPropertyValue(name);
            const [r, g, b] = getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map((part) => {
                const c = part / 255;
                return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
            });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        return pairs.map(([a, b]) => {
            const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
            return [a, b, (high + 0.05) / (low + 0.05)];
        });
    }"""
    assert not [pair for pair in page.evaluate(script, pairs) if pair[2] < 4.5]


def test_an_index_without_photos_is_searched_by_id(new_page, tmp_path, vectors):
    index = logt.Index(16)
    index.add(vectors(40, 16))
    index.save(tmp_path / "i")
    with run_server(create_app(VectorCollection(tmp_path / "i"))) as url:
        new_page.goto(url)
        new_page.get_by_label("Vector id").fill("7")
        new_page.get_by_role("button", name="Search").click()
        new_page.wait_for_selector(".results .tile")
        expected = [hit for hit in index.search(index.reconstruct([7]), 25).ids[0].tolist() if hit != 7][:24]
        assert new_page.locator(".results .tile").all_inner_texts() == list(map(str, expected))
        new_page.locator(".results .tile").first.click()
        new_page.wait_for_url(f"{url}/?id={expected[0]}")
        new_page.goto(f"{url}/?id=999")
        assert "not in the index" in new_page.get_by_role("alert").text_content()


def test_the_login_form_accepts_the_token_once(new_page, small_album):
    with run_server(create_app(small_album, Settings(token=TOKEN))) as url:
        new_page.goto(url)
        new_page.get_by_label("Token").fill("not this one")
        new_page.get_by_role("button", name="Sign in").click()
        assert "Wrong token" in new_page.get_by_role("alert").text_content()
        new_page.get_by_label("Token").fill(TOKEN)
        new_page.get_by_role("button", name="Sign in").click()
        open_first(new_page)
        assert len(wait_for_results(new_page)) == 3
        assert new_page.evaluate("document.cookie") == ""

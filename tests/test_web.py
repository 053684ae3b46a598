"""The page in a real browser: Chromium, as the system has it; without one these tests are skipped."""

from __future__ import annotations

import base64
import os
import re
import shutil

import pytest
from PIL import Image
from server_testing import run_server
from synthetic_photos import SyntheticPhotos, draw_scene, encode_jpeg, write_photos

import logt
from logt.server.app import create_app
from logt.server.collection import VectorCollection
from logt.server.photo_collection import PhotoCollection
from logt.server.settings import Limits, Settings

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium: apt-get install chromium")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
EVIL = "<img src=x onerror=alert(1)>.jpg"


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def album(tmp_path_factory):
    """(address, ids): 60 photos of 20 scenes; the last one has a name that is markup."""
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
def page(browser, album, request):
    """A page at the start, of the size and scheme that a test asks for; at its end nothing has complained."""
    given = {"viewport": {"width": 1280, "height": 800}, **getattr(request, "param", {})}
    context = browser.new_context(**given)
    page = context.new_page()
    page.set_default_timeout(15_000)
    complaints = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.goto(album[0])
    yield page
    context.close()
    expected = re.compile("responded with a status of 4")  # a refusal that the page showed
    assert not [text for text in complaints if not expected.search(text)]


def shown(page):
    """The ids of the results, once they are there."""
    page.wait_for_selector("main:not([aria-busy=true]) .found .tile")
    return page.eval_on_selector_all(".results .tile", "tiles => tiles.map(tile => tile.dataset.id)")


def give(page, how, content, name="query.jpg", kind="image/jpeg"):
    """Hand a photo to the page: "drop", "paste" or "pick"."""
    if how == "pick":
        page.set_input_files("#photo", {"name": name, "mimeType": kind, "buffer": content})
        return
    script = """([how, encoded, name, type]) => {
        const bytes = Uint8Array.from(atob(encoded), (c) => c.charCodeAt(0));
        const data = new DataTransfer();
        data.items.add(new File([bytes], name, { type }));
        const event = how === "paste"
            ? new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true })
            : new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true });
        document.body.dispatchEvent(event);
    }"""
    page.evaluate(script, [how, base64.b64encode(content).decode(), name, kind])


def drag(page, start, end):
    """Drag over the query, from one place to another, as parts of it."""
    page.wait_for_selector("#tools:not([hidden])", state="attached")
    frame = page.locator("#stage").bounding_box()
    (x0, y0), (x1, y1) = (
        (frame["x"] + x * frame["width"], frame["y"] + y * frame["height"]) for x, y in (start, end)
    )
    page.mouse.move(x0, y0)
    page.mouse.down()
    page.mouse.move(x1, y1, steps=4)
    page.mouse.up()


@pytest.mark.parametrize("how", ["drop", "paste", "pick"])
def test_a_photo_finds_the_others_of_its_scene(page, album, how):
    give(page, how, encode_jpeg(draw_scene(4, 99)))
    assert set(shown(page)[:3]) == set(album[1][12:15])
    assert page.locator("#query").evaluate("image => image.naturalWidth") == 240
    assert "24 results for query.jpg" in page.locator("#status").text_content()
    assert (
        page.locator(".results img").first.evaluate("async i => { await i.decode(); return i.naturalWidth }") == 240
    )


def test_dragging_a_file_over_the_page_says_where_to_drop_it(page):
    script = """(kind) => {
        const data = new DataTransfer();
        data.items.add(new File(["x"], "a.jpg", { type: "image/jpeg" }));
        document.body.dispatchEvent(new DragEvent(kind, { dataTransfer: data, bubbles: true }));
    }"""
    page.evaluate(script, "dragenter")
    assert page.locator("#veil").is_visible()
    page.evaluate(script, "dragleave")
    assert page.locator("#veil").is_hidden()


def test_a_click_on_a_result_searches_by_it_and_back_goes_back(page, album):
    ids = album[1]
    page.locator(".tile").first.click()
    assert set(shown(page)[:2]) == set(ids[1:3])
    second = page.locator(".results .tile").nth(20)
    wanted = second.get_attribute("data-id")
    second.click()
    page.wait_for_function("id => document.querySelector('#query')?.dataset.id === id", arg=wanted)
    assert wanted not in shown(page)
    page.go_back()
    page.wait_for_function("id => document.querySelector('#query')?.dataset.id === id", arg=ids[0])
    page.reload()
    assert set(shown(page)[:2]) == set(ids[1:3])
    page.go_back()
    page.wait_for_selector("#drop")


def test_back_finds_a_photo_of_this_visit_again(page, album):
    give(page, "pick", encode_jpeg(draw_scene(4, 99)))
    first = shown(page)
    page.locator(".results .tile").nth(10).click()
    page.wait_for_selector("#query[data-id]")
    page.go_back()
    page.wait_for_selector("#query:not([data-id])")
    assert shown(page) == first


def test_a_region_is_cropped_by_dragging(page, album):
    both = Image.new("RGB", (480, 180))
    both.paste(draw_scene(1, 99), (0, 0))
    both.paste(draw_scene(2, 99), (240, 0))
    give(page, "drop", encode_jpeg(both, quality=95))
    shown(page)
    with page.expect_response(lambda response: response.request.method == "POST"):
        drag(page, (0.505, 0.01), (0.999, 0.999))
    page.wait_for_selector("#region:visible")
    assert set(shown(page)[:3]) == set(album[1][6:9])
    with page.expect_response(lambda response: response.request.method == "POST"):
        drag(page, (0.75, 0.5), (0.25, 0.5))  # the region is moved to the other half
    page.wait_for_function("() => document.querySelector('#stage').dataset.box.startsWith('0.00')")
    assert set(shown(page)[:3]) == set(album[1][3:6])
    page.get_by_role("button", name="Whole picture").click()
    page.wait_for_selector("#crop:visible")
    assert page.locator("#region").is_hidden()


def test_a_region_of_a_result_is_in_the_address(page, album):
    page.locator(".tile").first.click()
    shown(page)
    drag(page, (0.1, 0.1), (0.6, 0.6))
    page.wait_for_url(re.compile(r"box=0\.1"))
    before = shown(page)
    page.reload()
    assert shown(page) == before
    assert page.locator("#region").is_visible()


def test_a_region_is_chosen_by_keys(page):
    give(page, "pick", encode_jpeg(draw_scene(4, 99)))
    shown(page)
    page.get_by_role("button", name="Choose a region").press("Enter")
    region = page.locator("#region")
    assert region.evaluate("element => element === document.activeElement")
    assert "25 % to 75 %" in region.get_attribute("aria-label")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowDown")
    assert region.get_attribute("aria-label") == "Region from 27 % to 77 % across and 25 % to 77 % down"
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('#stage').dataset.box === '0.2700,0.2500,0.7700,0.7700'")
    shown(page)
    page.locator("#region").press("Escape")
    page.wait_for_function("() => document.querySelector('#stage').dataset.box === ''")


def test_the_large_view_is_walked_by_keys(page, album):
    give(page, "pick", encode_jpeg(draw_scene(4, 99)))
    ids = shown(page)
    page.locator(".results .tile").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    name = page.locator("#large-name")
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
    assert page.evaluate("document.activeElement.dataset.id") == ids[0]
    page.keyboard.press("Enter")
    page.wait_for_function("id => document.querySelector('#query')?.dataset.id === id", arg=ids[0])


def test_more_results_are_shown_on_demand(page):
    page.locator(".tile").first.click()
    assert len(shown(page)) == 24
    page.get_by_role("link", name="Show more").click()
    page.wait_for_function("() => document.querySelectorAll('.results .tile').length === 59")
    assert page.get_by_role("link", name="Show more").count() == 0


def test_a_name_that_is_markup_is_text(page, album):
    page.goto(f"{album[0]}/?id={EVIL.replace('<', '%3C').replace('>', '%3E')}")
    shown(page)
    assert page.locator(".query .name").text_content() == EVIL
    assert page.title().startswith(EVIL)
    give(page, "drop", encode_jpeg(draw_scene(19, 99)), name=EVIL)
    assert EVIL in shown(page)
    page.wait_for_timeout(200)  # a handler that ran would open a dialog, which the page fixture reports


def test_what_is_no_picture_gets_an_answer_that_helps(page):
    give(page, "drop", b"not a picture", name="notes.txt", kind="text/plain")
    alert = page.get_by_role("alert")
    alert.wait_for()
    assert "cannot be read as a picture" in alert.text_content()
    assert "JPEG" in alert.text_content()
    give(page, "pick", encode_jpeg(draw_scene(0, 99)))
    assert len(shown(page)) == 24


def test_a_service_that_is_gone_is_told(browser, tmp_path):
    write_photos(tmp_path / "p", tmp_path / "i", 2, 2)
    context = browser.new_context()
    page = context.new_page()
    with run_server(create_app(PhotoCollection(SyntheticPhotos(tmp_path / "p", tmp_path / "i")))) as url:
        page.goto(url)
    page.locator(".tile").first.click()
    page.get_by_role("alert").wait_for()
    assert "does not answer" in page.get_by_role("alert").text_content()
    context.close()


def test_a_file_above_the_limit_is_refused_before_it_is_sent(browser, tmp_path):
    write_photos(tmp_path / "p", tmp_path / "i", 2, 2)
    album = PhotoCollection(SyntheticPhotos(tmp_path / "p", tmp_path / "i"))
    with run_server(create_app(album, Settings(limits=Limits(body_bytes=1 << 20)))) as url:
        context = browser.new_context()
        page = context.new_page()
        page.goto(url)
        give(page, "drop", b"x" * (2 << 20))
        page.get_by_role("alert").wait_for()
        assert "too large" in page.get_by_role("alert").text_content()
        context.close()


@pytest.mark.parametrize(
    "page", [{"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True}], indirect=True
)
def test_the_page_fits_a_phone(page, album):
    def fits():
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        small = """elements => elements.filter(e => e.offsetParent && e.getBoundingClientRect().height < 40)
            .map(e => e.outerHTML)"""
        assert page.eval_on_selector_all("button, .button", small) == []

    fits()
    give(page, "pick", encode_jpeg(draw_scene(4, 99)))
    assert set(shown(page)[:3]) == set(album[1][12:15])
    fits()
    page.get_by_role("button", name="Choose a region").tap()
    page.get_by_role("button", name="Search by the region").tap()
    page.wait_for_function("() => document.querySelector('#stage').dataset.box !== ''")
    fits()
    page.locator(".enlarge").first.tap()
    page.locator("dialog").wait_for()
    fits()


@pytest.mark.parametrize("page", [{"color_scheme": "light"}, {"color_scheme": "dark"}], indirect=True)
def test_text_stands_out_from_its_ground(page):
    """WCAG AA, a contrast of 4.5, for what the colours of the page are used for."""
    page.locator(".tile").first.click()
    shown(page)
    script = """() => {
        const style = getComputedStyle(document.documentElement);
        const probe = document.body.appendChild(document.createElement("i"));
        const light = (name) => {
            probe.style.color = style.getPropertyValue(name);
            const parts = getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map((part) => {
                const c = part / 255;
                return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
            });
            return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
        };
        const pairs = [["--ink", "--ground"], ["--soft", "--ground"], ["--soft", "--sheet"], ["--accent", "--ground"],
                       ["--accent-ink", "--accent"], ["--accent", "--tint"], ["--wrong", "--ground"]];
        return pairs.map(([a, b]) => {
            const [low, high] = [light(a), light(b)].sort((x, y) => x - y);
            return [a, b, (high + 0.05) / (low + 0.05)];
        });
    }"""
    assert not [pair for pair in page.evaluate(script) if pair[2] < 4.5]


def test_an_index_without_pictures_is_searched_by_id(browser, tmp_path, vectors):
    index = logt.Index(16)
    index.add(vectors(40, 16))
    index.save(tmp_path / "i")
    with run_server(create_app(VectorCollection(tmp_path / "i"))) as url:
        context = browser.new_context()
        page = context.new_page()
        page.goto(url)
        page.get_by_label("Id of a vector").fill("7")
        page.get_by_role("button", name="Search").click()
        page.wait_for_selector(".results .tile")
        expected = [hit for hit in index.search(index.reconstruct([7]), 25).ids[0].tolist() if hit != 7][:24]
        assert page.locator(".results .tile").all_inner_texts() == list(map(str, expected))
        page.locator(".results .tile").first.click()
        page.wait_for_url(f"{url}/?id={expected[0]}")
        page.goto(f"{url}/?id=999")
        assert "not in the index" in page.get_by_role("alert").text_content()
        context.close()


def test_the_token_is_asked_for_once(browser, tmp_path):
    write_photos(tmp_path / "p", tmp_path / "i", 2, 2)
    token = "a token of some length"
    with run_server(
        create_app(PhotoCollection(SyntheticPhotos(tmp_path / "p", tmp_path / "i")), Settings(token=token))
    ) as url:
        context = browser.new_context()
        page = context.new_page()
        page.goto(url)
        page.get_by_label("Token").fill("not this one")
        page.get_by_role("button", name="Continue").click()
        assert "not the token" in page.get_by_role("alert").text_content()
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Continue").click()
        page.locator(".tile").first.click()
        assert len(shown(page)) == 3
        assert page.evaluate("document.cookie") == ""
        context.close()

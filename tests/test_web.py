"""Searches on the web page in a real browser, Chromium; without Chromium these tests are skipped."""

import re

import pytest
from server_testing import PHONE, enter_photo, find_similar, search_photo
from synthetic_photos import ODD_NAMES, draw_scene, draw_two_scenes, encode_jpeg

QUERY = encode_jpeg(draw_scene(4, 99))


def scene(number):
    """The ids of the photos of a scene."""
    return [f"scene {number:03}/photo {n}.jpg" for n in range(3)]


def wait_for_results(page):
    """Wait for the results and return their ids."""
    page.wait_for_selector(".results-page .tile")
    return page.eval_on_selector_all(".results .card", "cards => cards.map(card => card.dataset.id)")


def wait_for_query(page, id):
    page.wait_for_function("id => document.querySelector('#query')?.dataset.id === id", arg=id)


def wait_for_region(page, condition):
    """Wait until a condition on the region that was searched is true; `box` is its text."""
    page.wait_for_function(
        f"() => {{ const box = document.querySelector('#query-photo')?.dataset.box; return {condition}; }}"
    )


def drag(page, start, end):
    """Drag over the query photo between two positions, given as fractions of it."""
    page.wait_for_selector("#region-tools:not([hidden])", state="attached")
    bounds = page.locator("#query-photo").bounding_box()
    (x0, y0), (x1, y1) = (
        (bounds["x"] + x * bounds["width"], bounds["y"] + y * bounds["height"]) for x, y in (start, end)
    )
    page.mouse.move(x0, y0)
    page.mouse.down()
    page.mouse.move(x1, y1, steps=4)
    with page.expect_navigation():
        page.mouse.up()


def open_first(page):
    """Search with the first photo of the first scene, through the large view, and return the ids of the results."""
    page.goto(f"{page.url.split('?')[0]}?order=folder")
    page.locator(f'.card[data-id="{scene(0)[0]}"] .tile').click()
    find_similar(page)
    return wait_for_results(page)


def test_a_photo_finds_the_others_of_its_scene(page, web_album):
    for method in ("drop", "paste", "choose"):
        page.goto(web_album[0])
        search_photo(page, method, QUERY)
        assert set(wait_for_results(page)[:3]) == set(scene(4))
        assert page.locator("#query").evaluate("image => image.naturalWidth") == 240
    assert page.locator("#heading").text_content().startswith("24 results")
    script = """(type) => {
        const data = new DataTransfer();
        data.items.add(new File(["x"], "a.jpg", { type: "image/jpeg" }));
        document.body.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true }));
    }"""
    page.evaluate(script, "dragenter")
    assert page.locator("#drop-overlay").is_visible()
    page.evaluate(script, "dragleave")
    assert page.locator("#drop-overlay").is_hidden()


def test_a_click_opens_a_photo_and_find_similar_searches_with_it(page):
    open_first(page)
    assert set(wait_for_results(page)[:2]) == set(scene(0)[1:])
    second_id = page.locator(".results .card").nth(20).get_attribute("data-id")
    page.locator(".results .tile").nth(20).click()
    assert page.locator("#lightbox-name").text_content() == second_id
    find_similar(page)
    wait_for_query(page, second_id)
    assert second_id not in wait_for_results(page)
    assert page.title() == f"{second_id.split('/')[1]} · photos"
    page.go_back()
    wait_for_query(page, scene(0)[0])
    page.reload()
    assert set(wait_for_results(page)[:2]) == set(scene(0)[1:])
    page.go_back()
    page.wait_for_selector("#virtual")


def test_back_closes_the_large_view_and_nothing_else(page):
    before = open_first(page)
    page.locator(".results .tile").nth(12).click()
    page.locator("dialog[open]").wait_for()
    scrolled = page.evaluate("window.scrollY")
    page.go_back()
    page.wait_for_selector("dialog:not([open])", state="attached")
    assert wait_for_results(page) == before
    assert page.evaluate("window.scrollY") == scrolled > 0
    page.locator(".results .tile").nth(12).click()
    page.keyboard.press("Escape")
    page.wait_for_function("() => !history.state?.large")
    assert wait_for_results(page) == before
    page.go_back()
    page.wait_for_selector("#virtual")


def test_a_search_with_a_photo_has_a_url(page):
    page.locator(".tile").first.click()
    page.locator("dialog[open]").wait_for()
    search_photo(page, "paste", QUERY)
    first = wait_for_results(page)
    assert page.locator("dialog").is_hidden()
    page.wait_for_url(re.compile(r"\?photo="))
    page.reload()
    assert wait_for_results(page) == first
    page.locator(".results .tile").nth(10).click()
    find_similar(page)
    page.wait_for_selector("#query[data-id]")
    page.go_back()
    page.wait_for_selector("#query:not([data-id])")
    assert wait_for_results(page) == first


def test_back_and_reload_keep_the_scroll_position_and_show_more(page):
    open_first(page)
    with page.expect_navigation():
        page.get_by_role("link", name="Show more").press("Enter")
    assert len(wait_for_results(page)) == 72
    page.keyboard.press("Tab")  # go on with the first new photo
    assert page.evaluate("document.activeElement.closest('.card').id") == "result-24"
    page.evaluate("window.scrollTo(0, 900)")
    page.reload()
    assert len(wait_for_results(page)) == 72
    page.wait_for_function("() => window.scrollY === 900")
    page.locator(".results .tile").nth(30).click()
    scrolled = page.evaluate("window.scrollY")
    find_similar(page)
    assert len(wait_for_results(page)) == 24
    assert page.evaluate("window.scrollY") == 0
    page.go_back()
    assert len(wait_for_results(page)) == 72
    page.wait_for_function("scrolled => window.scrollY === scrolled", arg=scrolled)


def test_reload_keeps_the_position_that_the_large_view_has_scrolled_to(page):
    page.locator(".tile").first.click()
    page.locator("dialog[open]").wait_for()
    for _ in range(40):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("() => window.scrollY > 0")
    page.keyboard.press("Escape")
    page.wait_for_function("() => !history.state?.large && window.scrollY > 0")
    scrolled = page.evaluate("window.scrollY")
    page.reload()
    page.wait_for_function("scrolled => window.scrollY === scrolled", arg=scrolled)
    assert scrolled > 0


def test_a_region_is_selected_by_dragging(page):
    search_photo(page, "drop", encode_jpeg(draw_two_scenes(1, 2), quality=95))
    wait_for_results(page)
    drag(page, (0.505, 0.01), (0.999, 0.999))
    wait_for_region(page, "box.startsWith('0.50')")
    page.wait_for_selector("#region:visible")
    assert set(wait_for_results(page)[:3]) == set(scene(2))
    drag(page, (0.75, 0.5), (0.25, 0.5))  # move the region to the other half
    wait_for_region(page, "box.startsWith('0.00')")
    page.wait_for_url(re.compile(r"box=0\.00"))
    page.reload()
    assert set(wait_for_results(page)[:3]) == set(scene(1))
    assert page.locator("#region").is_visible()
    page.get_by_role("button", name="Clear region").click()
    page.wait_for_selector("#select-region:visible")
    assert page.locator("#region").is_hidden()


def test_a_region_is_selected_with_the_keyboard(page):
    open_first(page)
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


def test_the_large_view_works_with_the_keyboard(page):
    ids = open_first(page)
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
    page.wait_for_function("() => !history.state?.large")
    assert page.evaluate("document.activeElement.closest('.card').dataset.id") == ids[0]
    page.keyboard.press("Space")
    assert page.locator("#selection-count").text_content() == "1 photo selected"
    page.keyboard.press("s")
    wait_for_query(page, ids[0])


def test_a_name_that_is_markup_is_text(page):
    evil = ODD_NAMES[0]
    page.locator(".tile").first.click()
    assert page.locator("#lightbox-name").text_content() == f"zoo/{evil}"
    find_similar(page)
    wait_for_results(page)
    assert page.locator(".query .name").text_content() == evil
    assert page.title().startswith(evil)
    search_photo(page, "drop", encode_jpeg(draw_scene(1000)), name=evil)
    assert wait_for_results(page)[0] == f"zoo/{evil}"
    page.wait_for_timeout(200)  # if the handler ran, it would open a dialog, which fails the page fixture


def test_a_file_that_is_too_large_is_not_sent(page):
    page.evaluate("document.body.dataset.maxUploadBytes = 1 << 20")
    enter_photo(page, "drop", b"x" * (2 << 20))
    page.locator("#notice:visible").wait_for()
    assert "File too large. The file has 2 MB. The limit is 1 MB." in page.locator("#notice").text_content()


@pytest.mark.parametrize("new_page", [PHONE], indirect=True)
def test_the_page_fits_a_phone(page, web_album, monkeypatch):
    def check_layout():
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        small = """elements => elements.filter(e => e.offsetParent && e.getBoundingClientRect().height < 40)
            .map(e => e.outerHTML)"""
        assert page.eval_on_selector_all("button, .button", small) == []

    monkeypatch.setattr(web_album[1], "allows_uploads", True)
    for width in (320, 360, 412):
        page.set_viewport_size({"width": width, "height": 640})
        page.reload()
        check_layout()
        for name in ("Search", "Add", "Duplicates"):
            box = page.locator(".topbar nav .button", has_text=name).bounding_box()
            assert 0 <= box["x"] <= box["x"] + box["width"] <= width
        style = page.locator(".filter-box summary").evaluate("(e) => getComputedStyle(e).display")
        assert style == "list-item"  # shows whether it is open
    search_photo(page, "choose", QUERY)
    assert set(wait_for_results(page)[:3]) == set(scene(4))
    check_layout()
    page.get_by_role("button", name="Select a region").tap()
    with page.expect_navigation():
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
    for width, height in ((375, 667), (667, 375), (900, 700)):
        page.set_viewport_size({"width": width, "height": height})
        photo, close = (page.locator(f"dialog {selector}").bounding_box() for selector in ("img", ".close"))
        assert photo["x"] + photo["width"] <= close["x"] or close["y"] + close["height"] <= photo["y"]
        assert min(photo["width"], photo["height"]) > 150

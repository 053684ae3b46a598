"""The web page in Chromium: all photos, filters, selection, duplicates, uploads, indexing, accessibility."""

import re
import zipfile

import pytest
from server_testing import PHONE, TOKEN, create_app, find_similar, open_album, run_server, search_photo
from synthetic_photos import ODD_NAMES, draw_scene, encode_jpeg, write_photos

import logt
from logt.photos import update
from logt.photos.progress_file import published_progress
from logt.photos.synthetic_scenes import write_synthetic_photos
from logt.server.photo_collection import open_collection
from logt.server.settings import Settings

NEWEST, OLDEST, TOTAL = f"zoo/{ODD_NAMES[0]}", "scene 000/photo 0.jpg", 151


@pytest.fixture
def url(web_album):
    return web_album[0]


def visible_names(page):
    return page.eval_on_selector_all(
        ".card",
        """cards => cards.filter((card) => { const { top, bottom } = card.getBoundingClientRect();
            return bottom > 0 && top < innerHeight; }).map((card) => card.dataset.id)""",
    )


def wait_for_cards(page):
    """Wait for photos, and for the script, which makes the list of all of them active."""
    page.wait_for_selector(":is(#virtual.active, .results) .card")


def focused(page):
    return page.evaluate("document.activeElement.name")


def test_all_photos_are_browsed_newest_first_and_few_are_in_the_document(page):
    assert visible_names(page)[0] == NEWEST
    assert page.locator(".tile img").first.evaluate("image => getComputedStyle(image).objectFit") == "contain"
    heading = page.locator(".headings h2").first
    assert heading.text_content() == "May 202030"
    assert heading.evaluate("h2 => parseFloat(getComputedStyle(h2).paddingLeft)") >= 2  # a J begins left of its box
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    last = page.locator(f'.card[data-id="{OLDEST}"]')
    last.wait_for()
    assert visible_names(page)[-1] == OLDEST
    assert page.locator(".card").count() < 110
    assert (last.get_attribute("aria-posinset"), last.get_attribute("aria-setsize")) == (str(TOTAL), str(TOTAL))
    scrolled = page.evaluate("window.scrollY")
    page.reload()
    page.wait_for_function("scrolled => window.scrollY === scrolled", arg=scrolled)
    last.wait_for()
    last.locator(".tile").click()
    page.keyboard.press("ArrowLeft")
    assert page.locator("#lightbox-name").text_content() == "scene 000/photo 1.jpg"
    assert "2020-01-02 12:00 · 240 × 180" in page.locator("#lightbox-about").text_content()


def test_the_list_is_filtered_by_name_folder_and_date(page, url):
    page.get_by_label("Name").fill("PHOTO 1.JPG")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url(re.compile("name=PHOTO"))
    assert f"50 photos of {TOTAL}" in page.locator(".total").text_content()
    page.locator("select[name=folder]").select_option("scene 007")
    page.wait_for_url(re.compile("folder=scene"))
    wait_for_cards(page)
    assert visible_names(page) == ["scene 007/photo 1.jpg"]
    page.get_by_role("link", name="Clear").click()
    page.wait_for_function("() => location.search === ''")
    page.wait_for_load_state()  # with its scripts
    page.get_by_label("From", exact=True).fill("2020-02-01")
    page.get_by_label("To", exact=True).fill("2020-02-03")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url(re.compile("from=2020-02-01&to=2020-02-03"))
    wait_for_cards(page)
    expected = [f"scene 010/photo {n}.jpg" for n in (2, 1)]  # days 32 and 31 of 2020, counted from 0
    assert visible_names(page) == ["scene 011/photo 0.jpg", *expected]
    page.goto(f"{url}?order=folder")
    wait_for_cards(page)
    assert visible_names(page)[0] == OLDEST
    assert page.locator(".headings h2").first.text_content() == "scene 0003"


def test_a_search_is_filtered_and_has_a_divider(page, url):
    page.goto(f"{url}?id=scene+005/photo+0.jpg")
    assert page.locator(".results .grid").first.locator(".card").count() >= 2
    assert page.locator("#divider").text_content() == "Probably unrelated"
    page.get_by_label("Name").fill("2.jpg")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url(re.compile("name=2"))
    names = page.eval_on_selector_all(".results .card", "cards => cards.map((card) => card.dataset.id)")
    assert names[0] == "scene 005/photo 2.jpg"
    assert all(name.endswith("photo 2.jpg") for name in names)
    page.get_by_role("switch", name="Deeper search").click()
    page.wait_for_url(re.compile("deep=1"))
    assert page.locator("#divider").count() == 0
    assert page.get_by_role("switch").get_attribute("aria-checked") == "true"


def test_dates_are_typed_with_the_keyboard(page):
    page.get_by_label("From", exact=True).focus()
    page.keyboard.type("02012020", delay=60)
    assert page.locator("[name=from]").input_value() == "2020-02-01"
    page.keyboard.press("Tab")  # to the button of the calendar
    page.keyboard.press("Tab")
    page.keyboard.type("02032020", delay=60)
    assert page.locator("[name=to]").input_value() == "2020-02-03"
    assert "from" not in page.url
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("from=2020-02-01&to=2020-02-03$"))
    assert page.locator(".card").count() == 3


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
    page.wait_for_url(re.compile("folder=scene.000"))
    assert focused(page) == "folder"
    page.keyboard.press("ArrowDown")
    page.wait_for_url(re.compile("folder=scene.001"))
    page.get_by_label("Name").focus()
    page.keyboard.type("1.jpg")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("name=1.jpg"))
    assert focused(page) == "name"
    assert page.locator(".card").count() == 1


def test_searches_keep_the_filters(page, url):
    filters = "name=jpg&folder=scene.005&from=2020-01-01&to=2020-12-31"
    page.goto(f"{url}?{filters.replace('.', '+')}")
    search_photo(page, "paste", encode_jpeg(draw_scene(5, 99)))
    page.wait_for_url(re.compile(f"photo=.*&{filters}$"))
    assert page.locator(".results .card").count() == 3
    page.locator(".tile").first.click()
    find_similar(page)
    page.wait_for_url(re.compile(f"[?]id=.*&{filters}$"))
    assert page.locator(".results .card").count() == 2


def test_selected_photos_are_exported(page, url, tmp_path):
    page.goto(f"{url}?order=folder")
    boxes = page.locator("[data-select]")
    boxes.nth(0).click()
    boxes.nth(2).click(modifiers=["Shift"])
    assert page.locator("#selection-count").text_content() == "3 photos selected"
    expected = [f"scene 000/photo {n}.jpg" for n in range(3)]
    for button, name in (("Download zip", "photos.zip"), ("Save list", "photos.txt")):
        with page.expect_download() as download:
            page.get_by_role("button", name=button).click()
        download.value.save_as(tmp_path / name)
    assert zipfile.ZipFile(tmp_path / "photos.zip").namelist() == expected
    assert (tmp_path / "photos.txt").read_text().splitlines() == expected
    page.goto(f"{url}?id=scene+000/photo+0.jpg")  # the selection stays
    assert page.locator(".results .card.selected").count() == 2
    page.get_by_role("button", name="Clear", exact=True).click()
    assert page.locator("#selection-bar").is_hidden()
    assert page.locator(".selected").count() == 0


def test_a_range_of_the_selection_contains_photos_that_are_not_in_the_document(page):
    page.locator("[data-select]").nth(1).click()
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    page.locator(f'.card[data-id="{OLDEST}"] [data-select]').click(modifiers=["Shift"])
    selected = "text => document.querySelector('#selection-count').textContent === text"
    page.wait_for_function(selected, arg=f"{TOTAL - 1} photos selected")
    assert page.locator(".card:not(.selected)").count() == 0
    page.locator("[data-select]").nth(-4).click(modifiers=["Shift"])  # unselects
    page.wait_for_function(selected, arg=f"{TOTAL - 5} photos selected")


def test_duplicates_are_listed_with_the_best_first_and_nothing_is_deleted(page, web_album, tmp_path):
    page.get_by_role("link", name="Duplicates").click()
    page.wait_for_selector(".group .card.selected")  # the script of the page marks them
    group = page.locator(".group").first
    names = group.locator(".card").evaluate_all("cards => cards.map((card) => card.dataset.id)")
    assert group.locator(".card.selected").count() == len(names) - 1
    total = int(page.locator("#selection-count").text_content().split()[0])
    group.locator("[data-select]").nth(1).click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save list").click()
    download.value.save_as(tmp_path / "delete.txt")
    listed = (tmp_path / "delete.txt").read_text().splitlines()
    assert len(listed) == total - 1
    assert names[0] == max(names)  # of equal pixels, the one with most bytes
    assert names[0] not in listed
    assert all(web_album[1].photo_path(name).exists() for name in listed)


def test_photos_are_added_where_uploads_are_allowed(page, tmp_path, small):
    assert page.get_by_role("button", name="Add photos").count() == 0
    write_synthetic_photos(tmp_path, 2, 2, 0)
    update(tmp_path / "collection", model=small)
    with run_server(create_app(open_collection(tmp_path / "collection", allow_uploads=True))) as own:
        page.goto(own)
        good = {"name": "new.jpg", "mimeType": "image/jpeg", "buffer": encode_jpeg(draw_scene(9))}
        bad = [{"name": f"{name}.txt", "mimeType": "text/plain", "buffer": b"none"} for name in ("notes", "more")]
        page.set_input_files("#new-photos", bad)
        page.wait_for_function(
            "() => document.querySelector('#notice').textContent.includes('0 photos added, 2 not:')"
        )
        failed = page.locator("#notice li").all_text_contents()
        assert [text.partition(": not an image")[0] for text in failed] == ["notes.txt", "more.txt"]
        page.set_input_files("#new-photos", good)
        page.wait_for_selector('.card[data-id^="uploads/"]')
        page.wait_for_function("() => document.querySelector('.count').textContent === '5 photos'")


def test_progress_and_new_photos_are_shown_and_do_not_erase_what_is_typed(new_page, tmp_path):
    write_photos(tmp_path / "p", tmp_path / "i", 2, 2)
    with run_server(create_app(open_album((tmp_path / "p", tmp_path / "i")))) as own:
        with published_progress(tmp_path / "i", None) as report:
            report("indexing", 1200, 5000)  # the page looks each second
            new_page.goto(own)
            new_page.wait_for_selector("#indexing:not([hidden])")
            assert "Indexing: 1,200 of 5,000 photos" in new_page.locator("#indexing").text_content()
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
        new_page.wait_for_selector("#indexing", state="hidden")


@pytest.mark.parametrize("new_page", [{}, PHONE | {"color_scheme": "dark"}], indirect=True, ids=["desktop", "phone"])
def test_the_token_is_accepted_and_axe_finds_no_violations(new_page, tmp_path):
    """axe also checks the contrast of colours: light ones on the desktop, dark ones on the phone."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = {}
    write_photos(tmp_path / "p", tmp_path / "i", 4, 3, link=5)

    def check(name):
        results = axe.run(new_page).response["violations"]
        found.update({(name, rule["id"]): [node["html"] for node in rule["nodes"]][:3] for rule in results})

    with run_server(create_app(open_album((tmp_path / "p", tmp_path / "i")), Settings(token=TOKEN))) as url:
        new_page.goto(url)
        new_page.get_by_label("Token").fill("not this one")
        new_page.get_by_role("button", name="Sign in").click()
        assert "Wrong token" in new_page.get_by_role("alert").text_content()
        check("login")
        new_page.get_by_label("Token").fill(TOKEN)
        new_page.get_by_role("button", name="Sign in").click()
        wait_for_cards(new_page)
        assert new_page.evaluate("document.cookie") == ""
        new_page.locator("[data-select]").first.click()
        check("browse")
        new_page.locator(".tile").first.click()
        new_page.locator("dialog[open]").wait_for()
        check("large view")
        new_page.goto(f"{url}/?id=scene+03/photo+0.jpg")
        wait_for_cards(new_page)
        check("results")
        new_page.goto(f"{url}/duplicates")
        new_page.wait_for_selector(".group")
        check("duplicates")
        new_page.get_by_role("button", name="Compare").first.click()
        check("comparison")
        new_page.goto(f"{url}/?id=none")
        check("error")
    assert found == {}

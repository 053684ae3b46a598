"""`logt images` as a user runs it."""

import json
import os
import subprocess
import sys

import pytest
from drawn_photos import draw

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("onnxruntime")


def run_process(*words, before=""):
    """Run `logt images` in a process of its own, in which warnings are errors."""
    command = f"{before}from logt.cli.main import main; main()"
    words = [sys.executable, "-W", "error", "-c", command, "images", *map(str, words)]
    return subprocess.run(words, capture_output=True, text=True, env={**os.environ, "COLUMNS": "100"}, check=False)


@pytest.fixture(scope="module")
def indexed_photos(tmp_path_factory, small):
    folder = tmp_path_factory.mktemp("photos")
    for seed, name in enumerate(["one.png", "two.png", "[red]three<i>.png"]):
        draw(folder / name, seed)
    Image.open(folder / "one.png").save(folder / "one again.bmp")
    for name in ("notes.txt", "broken.jpg"):
        (folder / name).write_text("not an image")
    done = run_process("index", folder, "--model", small)
    assert "4 added, 0 changed, 0 removed, 0 unchanged, 1 failed, 1 other file; " in done.stdout, done.stderr
    assert "failed: broken.jpg: not an image" in done.stdout
    assert "notes.txt" not in done.stdout
    return folder


@pytest.fixture
def run_images(run_logt):
    """run(*words) -> the JSON that `logt images` prints."""
    return lambda *words: json.loads(run_logt("images", *words, "--json"))


def test_search_prints_names_and_scores(album, run_images, run_logt):
    found = run_images("search", album, album / "two.png", "-k", 2)
    assert (len(found), found[0]["name"]) == (2, "two.png")
    assert "[red]three<i>.png" in run_logt("images", "search", album / ".logt", album / "[red]three<i>.png")
    part = run_images("search", album, album / "one.png", "--box", "0,0,30,24")
    assert part[0]["score"] < 0.999
    assert part == run_images("search", album, album / "one.png", "--box", "0,0,0.5,0.5")


def test_other_folders_are_added_and_removed(album, tmp_path, run_images, run_logt):
    red = tmp_path / "other" / "red.png"
    draw(red, 9)
    done = run_images("index", album, "--also", red.parent)
    assert (done["unchanged"], done["added"], done["others"]) == (4, 1, 1)
    assert [name for name, _ in done["failed"]] == ["broken.jpg"]
    assert run_images("search", album, red, "-k", 1)[0]["name"] == str(red)
    words = ("images", "index", album, "--also", red.parent, "--only")
    assert "cannot be combined" in run_logt(*words, ok=False)
    assert run_images("index", album, "--only")["removed"] == 1


def test_duplicates(album, run_images, run_logt):
    assert [group["names"] for group in run_images("duplicates", album)] == [["one again.bmp", "one.png"]]
    assert "1 group of near-duplicates in 4 photos" in run_logt("images", "duplicates", album)


def test_search_writes_a_page_with_embedded_photos(album, tmp_path, run_logt):
    run_logt("images", "search", album, album / "one.png", "--html", tmp_path / "page.html", "--box", "0,0,30,24")
    text = (tmp_path / "page.html").read_text()
    assert text.count("data:image/jpeg;base64,") == 5
    assert "[red]three&lt;i&gt;.png" in text
    assert "<i>" not in text


def test_the_demo_finds_the_views_of_its_scenes(tmp_path, run_images):
    shown = run_images("demo", tmp_path / "demo", "--scenes", 2, "--others", 3)
    assert shown["mAP"] > 80
    assert shown["found in the first 5"].keys() == {"scene-00.jpg", "scene-01.jpg"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("index", "nowhere"), "nowhere is not a folder"),
        (("search", "nowhere", "{photos}/one.png"), "is not an index of photos: this path does not exist"),
        (("search", "{photos}", "none.png"), "none.png: file not found"),
        (("search", "{photos}"), "pass a photo, or --text TEXT without --box"),
        (("search", "{photos}", "{photos}/one.png", "--text", "red"), "pass a photo"),
        (("search", "{photos}", "--text", "red", "--box", "0,0,1,1"), "pass a photo"),
        (("search", "{photos}", "{photos}/one.png", "--box", "1,2,3"), "a box is left,top,right,bottom"),
        (("search", "{photos}", "{photos}/one.png", "--box", "0,0,61,48"), "the image, which has 60 x 48 pixels"),
        (("duplicates", "{photos}", "--threshold", "2"), "threshold must be above 0"),
        (("index", "{photos}", "--side", "96"), "relearn"),
        (("demo", "{photos}"), "is not empty"),
    ],
)
def test_errors_are_one_line_with_a_way_to_fix_them(indexed_photos, words, message, run_logt):
    printed = run_logt("images", *(word.format(photos=indexed_photos) for word in words), ok=False)
    assert message in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize("missing", ["PIL", "onnxruntime"])
def test_the_error_names_the_extra_to_install(indexed_photos, missing):
    without = f"import sys; sys.modules[{missing!r}] = None; "
    done = run_process("search", indexed_photos, indexed_photos / "one.png", before=without)
    assert "pip install 'logt-search[images]'" in done.stderr

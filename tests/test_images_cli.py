"""`logt images` as a user runs it, each command in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from logt.cli.main import main
from logt.server.photo_collection import open_collection

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("onnxruntime")


def run(*words, ok=True, before=""):
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            f"{before}from logt.cli.main import main; main()",
            "images",
            *map(str, words),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100"},
    )
    assert (done.returncode == 0) == ok, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def photos(tmp_path_factory, small):
    folder = tmp_path_factory.mktemp("photos")
    for seed, name in enumerate(["one.png", "two.png", "[red]three<i>.png"]):
        squares = np.random.default_rng(seed).integers(0, 256, (4, 5, 3)).astype(np.uint8)
        Image.fromarray(squares.repeat(12, axis=0).repeat(12, axis=1)).save(folder / name)
    Image.open(folder / "one.png").save(folder / "one again.bmp")
    for name in ("notes.txt", "broken.jpg"):
        (folder / name).write_text("not an image")
    printed = run("index", folder, "--model", small).stdout
    assert "4 added, 0 changed, 0 removed, 0 unchanged, 1 failed, 1 other file; " in printed
    assert "failed: broken.jpg: not an image" in printed
    assert "notes.txt" not in printed
    return folder


def test_index_prints_a_summary(photos):
    done = json.loads(run("index", photos, "--json").stdout)
    assert (done["unchanged"], done["added"], done["others"]) == (4, 0, 1)
    assert [name for name, _ in done["failed"]] == ["broken.jpg"]


def test_search_prints_names_and_scores(photos):
    found = json.loads(run("search", photos, photos / "two.png", "-k", 2, "--json").stdout)
    assert found[0]["name"] == "two.png"
    assert len(found) == 2
    assert "[red]three<i>.png" in run("search", photos / ".logt", photos / "[red]three<i>.png").stdout
    part = json.loads(run("search", photos, photos / "one.png", "--box", "0,0,30,24", "--json").stdout)
    assert part[0]["score"] < 0.999
    assert part == json.loads(run("search", photos, photos / "one.png", "--box", "0,0,0.5,0.5", "--json").stdout)


def test_search_writes_a_page_with_embedded_images(photos, tmp_path):
    run("search", photos, photos / "one.png", "--html", tmp_path / "page.html", "--box", "0,0,30,24")
    text = (tmp_path / "page.html").read_text()
    assert text.count("data:image/jpeg;base64,") == 5
    assert "[red]three&lt;i&gt;.png" in text
    assert "<i>" not in text


def test_other_folders_are_added_and_removed(photos, tmp_path):
    Image.new("RGB", (60, 48), "red").save(tmp_path / "red.png")
    assert "1 added" in run("index", photos, "--also", tmp_path).stdout
    found = json.loads(run("search", photos, tmp_path / "red.png", "-k", 1, "--json").stdout)
    assert found[0]["name"] == str(tmp_path / "red.png")
    assert "cannot be combined" in run("index", photos, "--also", tmp_path, "--only", ok=False).stderr
    assert "1 removed" in run("index", photos, "--only").stdout


def test_open_shows_the_page_in_a_browser(photos):
    seen = "import webbrowser; webbrowser.open = lambda url: print('SHOWN', url) or True; "
    assert "SHOWN file:///" in run("search", photos, photos / "one.png", "--open", before=seen).stdout
    none = "import webbrowser; webbrowser.open = lambda url: False; "
    assert "no browser" in run("search", photos, photos / "one.png", "--open", before=none).stderr


def test_photos_are_linked_for_a_deeper_search(photos):
    command = [sys.executable, "-m", "logt", "link", str(photos), "-k", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "4 vectors linked" in done.stdout
    assert open_collection(photos).has_graph
    assert json.loads(run("index", photos, "--json").stdout)["unchanged"] == 4
    assert open_collection(photos).has_graph


def test_duplicates(photos):
    groups = json.loads(run("duplicates", photos, "--json").stdout)
    assert [group["names"] for group in groups] == [["one again.bmp", "one.png"]]
    assert "1 group of near-duplicates in 4 photos" in run("duplicates", photos).stdout


def test_demo_finds_the_views_of_its_scenes(tmp_path):
    shown = json.loads(run("demo", tmp_path / "demo", "--scenes", 2, "--others", 3, "--json").stdout)
    assert shown["mAP"] > 80
    assert "data:image/jpeg" in (tmp_path / "demo" / "results.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("index", "nowhere"), "nowhere is not a folder"),
        (("search", "nowhere", "{photos}/one.png"), "is not an index of photos: this path does not exist"),
        (("search", "{photos}", "none.png"), "none.png: file not found"),
        (("search", "{photos}", "{photos}/notes.txt"), "not an image"),
        (("search", "{photos}", "{photos}/one.png", "--box", "1,2,3"), "a box is left,top,right,bottom"),
        (
            ("search", "{photos}", "{photos}/one.png", "--box", "0,0,61,48"),
            "beyond the image, which has 60 x 48 pixels",
        ),
        (("search", "{photos}", "{photos}/one.png", "--box", "0,0,99999,99999"), "60 x 48 pixels"),
        (("search", "{photos}", "{photos}/one.png", "--box", "0.2,0.2,1.2,1.2"), "or in whole pixels"),
        (("duplicates", "{photos}", "--threshold", "2"), "threshold must be above 0"),
        (("index", "{photos}", "--side", "96"), "relearn"),
        (("demo", "{photos}"), "is not empty"),
    ],
)
def test_errors_are_one_line_with_a_way_to_fix_them(photos, words, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["logt", "images", *(word.format(photos=photos) for word in words)])
    with pytest.raises(SystemExit, match="1"):
        main()
    printed = capsys.readouterr().err
    assert message in " ".join(printed.split())
    assert "Traceback" not in printed


@pytest.mark.parametrize("missing", ["PIL", "onnxruntime"])
def test_the_error_names_the_extra_to_install(photos, missing):
    without = f"import sys; sys.modules[{missing!r}] = None; "
    assert (
        "pip install 'logt-search[images]'"
        in run("search", photos, photos / "one.png", ok=False, before=without).stderr
    )

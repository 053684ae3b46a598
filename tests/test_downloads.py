"""`logt models`: downloads from a stand-in of the hub are resumed, checked, and checked again at each use."""

import json
import re
import sys
from contextlib import suppress

import numpy as np
import pytest
from model_hub import running_hub
from server_testing import API, error_message, open_client, run_server

from logt.descriptors import Model, TextEncoder, downloads
from logt.descriptors.downloads import damaged_files, download, remove
from logt.descriptors.model_catalog import CATALOG, IMAGE, TEXT, TOKENIZER
from logt.descriptors.model_checksums import CHECKSUMS
from logt.errors import InvalidInputError, LockedError, MissingExtraError
from logt.photos import Photos, update
from logt.server.app import create_app
from logt.server.photo_collection import open_collection
from logt.server.settings import Settings
from logt.storage.lock import Lock

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("tokenizers")
file_download = pytest.importorskip("huggingface_hub.file_download")

from text_encoders import example  # noqa: E402

PATHS = {"onnx/vision_model_quantized.onnx": IMAGE, "onnx/text_model_quantized.onnx": TEXT, TOKENIZER: TOKENIZER}
SETTINGS = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5), "text_length": 8, "text_padding": 3}


@pytest.fixture(scope="module")
def files(encoders):
    return {path: (encoders / name).read_bytes() for path, name in PATHS.items()}


@pytest.fixture
def hub(files, tmp_path, monkeypatch):
    with running_hub(files) as hub:
        monkeypatch.setitem(CATALOG, "words", hub.catalog_model("words", PATHS, SETTINGS))
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("LOGT_MODELS", str(tmp_path / "models"))
        monkeypatch.setattr(file_download.time, "sleep", lambda seconds: None)
        monkeypatch.setattr(file_download.constants, "DOWNLOAD_CHUNK_SIZE", 5000)
        monkeypatch.chdir(tmp_path)
        yield hub


def test_a_download_is_found_by_its_name_and_searches_photos_by_text(hub, tmp_path, run_logt):
    album = tmp_path / "album"
    album.mkdir()
    rng = np.random.default_rng(7)
    for colour, pattern in (("red", "dots"), ("blue", "stripes"), ("green", "checks")):
        example.draw(colour, pattern, rng).save(album / f"{colour}.png")
    assert re.search(r"words .*MIT.* not downloaded", run_logt("models", "list"))
    with pytest.raises(InvalidInputError, match="'words' is not on this machine yet: logt models get words"):
        Model.load("words")
    printed = run_logt("models", "get", "words")
    assert "someone/words-ONNX, 0 MB; weights of someone/words, license MIT" in printed
    assert re.search(r"words .*MIT.* downloaded", run_logt("models", "list"))
    run_logt("images", "index", album, "--model", "words")
    assert Photos.open(album).search_text("blue stripes", 1)[0][0] == "blue.png"
    assert [path for path, _ in hub.requests] == list(PATHS)
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["words"]
    run_logt("models", "get", "words")  # it is here, and intact
    assert len(hub.requests) == len(PATHS)
    assert "MB removed" in run_logt("models", "remove", "words")
    assert not list((tmp_path / "models").iterdir())
    assert "was not downloaded" in run_logt("models", "remove", "words", ok=False)


@pytest.fixture
def page_of_drawings(hub, tmp_path, small):
    """Drawings that were described for searches by photo, in a folder that clients may change."""
    album, rng = tmp_path / "album", np.random.default_rng(7)
    album.mkdir()
    for colour, pattern in (("red", "dots"), ("blue", "stripes"), ("green", "checks")):
        example.draw(colour, pattern, rng).save(album / f"{colour}.png")
    update(album, model=small)
    return album


def test_the_command_that_a_download_prints_works_for_a_folder_with_an_index(hub, page_of_drawings, run_logt):
    printed = " ".join(run_logt("models", "get", "words").split())
    command = printed.split("use it with: logt ")[1].split()
    run_logt(*[str(page_of_drawings) if word == "FOLDER" else word for word in command])
    assert Photos.open(page_of_drawings).search_text("blue stripes", 1)[0][0] == "blue.png"


def test_a_client_downloads_a_model_and_can_search_by_text_then(hub, page_of_drawings):
    local = {"address": "127.0.0.1", "changes": True}
    with open_client(open_collection(page_of_drawings, allow_changes=True), **local) as client:
        assert '<option value="words">words: a few words, 0 MB' in client.get("/").text
        error_message(client.post(f"{API}/text-model", json={"name": "cats"}), 422, "invalid_input")
        hub.cut = 100
        assert "is kept" in error_message(
            client.post(f"{API}/text-model", json={"name": "words"}), 424, "no_download"
        )
        hub.cut = None
        assert client.post(f"{API}/text-model", json={"name": "words"}).json() == {"text": True}
        (hits,) = client.post(f"{API}/search/text", json={"text": "blue stripes", "k": 1}).json()["results"]
        assert hits[0]["id"] == "blue.png"
        assert client.get(f"{API}/info").json()["indexing"] is None
        page = client.get("/").text
        assert 'name="text"' in page
        assert 'id="text-model"' not in page
    photos = Photos.open(page_of_drawings)
    assert photos.is_whitened  # photos are still compared by the network for photos


@pytest.mark.parametrize(
    ("address", "settings"),
    [
        ("192.0.2.1", {"changes": True}),
        ("127.0.0.1", {}),
        ("127.0.0.1", {"changes": True, "read_only": True}),
    ],
)
def test_a_model_is_downloaded_for_those_only_that_may_change_the_folder(hub, page_of_drawings, address, settings):
    with open_client(open_collection(page_of_drawings), address, **settings) as client:
        assert 'id="text-model"' not in client.get("/").text
        assert "logt images index FOLDER --text clip" in client.get("/").text
        error_message(client.post(f"{API}/text-model", json={"name": "words"}), 403, "no_changes")
    assert not hub.requests


def test_the_button_of_the_page_downloads_a_model(hub, page_of_drawings, new_page):
    collection = open_collection(page_of_drawings, allow_changes=True)
    with run_server(create_app(collection, Settings(changes=True))) as url:
        new_page.goto(url)
        hub.cut = 100
        new_page.get_by_label("Model").select_option("words")
        new_page.get_by_role("button", name="Download").click()
        new_page.get_by_text("could not be downloaded").wait_for()
        hub.cut = None
        new_page.get_by_role("button", name="Download").click()
        new_page.get_by_label("What to find").fill("green checks", timeout=120_000)
        new_page.keyboard.press("Enter")
        new_page.wait_for_selector(".results .card")
        names = [card.get_attribute("data-id") for card in new_page.locator(".results .card").all()]
        assert names == [name for name, _ in Photos.open(page_of_drawings).search_text("green checks")]


def test_the_preprocessing_and_the_tokens_are_those_of_the_table(hub):
    model = Model.load(download("words"))
    assert (model.preprocessing.mean, model.name) == ((0.5, 0.5, 0.5), "words")
    encoder = TextEncoder.load(model)
    assert encoder._inputs([1, 2])["input_ids"].tolist() == [[1, 2, 3, 3, 3, 3, 3, 3]]


def test_texts_are_in_lower_case_where_the_table_says_so(hub, monkeypatch):
    settings = {**SETTINGS, "text_lowercase": True}
    monkeypatch.setitem(CATALOG, "words", hub.catalog_model("words", PATHS, settings))
    encoder = TextEncoder.load(Model.load(download("words")))
    encoder.tokenizer.normalizer = None
    np.testing.assert_array_equal(encoder("RED Dots"), encoder("red dots"))


def test_a_connection_that_breaks_is_resumed_where_it_ended(hub, files):
    hub.cut = 100_000
    shown = []
    for _ in range(9):  # older versions of huggingface_hub do not try again themselves
        with suppress(ConnectionError):
            download("words", lambda what, done, total: shown.append((what, done, total)))
    path = next(iter(PATHS))
    ranges = [wanted for name, wanted in hub.requests if name == path]
    assert ranges == [None, *(f"bytes={start}-" for start in range(100_000, len(files[path]), 100_000))]
    total = sum(map(len, files.values())) // 10**6
    assert shown[-1] == ("MB downloaded", total, total)


def test_an_interrupted_download_is_resumed_by_the_next_call(hub, files, tmp_path):
    calls = 0

    def interrupt(what, done, total):
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download("words", interrupt)
    assert not (tmp_path / "models" / "words").exists()
    folder = download("words")
    path = next(iter(PATHS))
    assert [wanted for name, wanted in hub.requests if name == path][1] == "bytes=10000-"
    assert (folder / IMAGE).read_bytes() == files[path]


@pytest.mark.parametrize("path", PATHS)
def test_a_file_that_differs_from_the_table_is_refused(hub, files, path, tmp_path):
    good = files[path]
    hub.files[path] = good[:-1] + bytes([good[-1] ^ 1])
    with pytest.raises(
        InvalidInputError, match=rf"{path} of someone/words-ONNX is not the file that .* it was removed"
    ):
        download("words")
    hub.files[path] = good[:-100]
    with pytest.raises(InvalidInputError, match=f"expected {len(good):,} bytes .* got {len(good) - 100:,} bytes"):
        download("words")
    assert not (tmp_path / "models" / "words").exists()
    hub.files[path] = good
    assert not damaged_files(download("words"))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("damage", [lambda data: data[:-7], lambda data: data + b" ", lambda data: b""])
def test_a_downloaded_file_that_changed_is_noticed_when_it_is_used(hub, path, damage, run_logt):
    folder = download("words")
    file = folder / PATHS[path]
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(InvalidInputError, match=rf"{file.name} differs from what was .* `logt models get words`"):
        TextEncoder.load(Model.load("words"))
    assert json.loads(run_logt("models", "list", "--json"))[-1]["state"] == "damaged"
    assert not damaged_files(download("words"))
    TextEncoder.load(Model.load("words"))


@pytest.mark.parametrize("name", [TOKENIZER, "logt.json"])
def test_a_downloaded_file_that_is_missing_is_noticed(hub, name):
    (download("words") / name).unlink()
    with pytest.raises(InvalidInputError, match=rf"{name} is missing; `logt models get words`"):
        Model.load("words")
    assert not damaged_files(download("words"))


def test_the_settings_of_a_download_are_checked_as_well(hub):
    settings = download("words") / "logt.json"
    settings.write_text(settings.read_text().replace("0.5", "0.25", 1))
    with pytest.raises(InvalidInputError, match=r"logt.json differs from what was downloaded"):
        Model.load("words")


@pytest.mark.parametrize("name", ["a" * 5000, "a\0b", "\ud800", "..", ""])
def test_names_of_files_that_are_impossible_are_errors(encoders, tmp_path, name):
    (tmp_path / "model.onnx").write_bytes((encoders / IMAGE).read_bytes())
    (tmp_path / "logt.json").write_text(json.dumps({"text_model": name}))
    with pytest.raises(InvalidInputError, match="which is not a file"):
        Model.load(tmp_path)
    (tmp_path / "logt.json").unlink()
    (tmp_path / CHECKSUMS).write_text(json.dumps({name: ""}))
    with pytest.raises(InvalidInputError, match="is missing"):
        Model.load(tmp_path)


@pytest.mark.parametrize("broken", ["[]", "{", "[" * 100_000])
def test_damaged_checksums_are_an_error_and_replaced(hub, broken, run_logt):
    (download("words") / "logt-checksums.json").write_text(broken)
    with pytest.raises(InvalidInputError, match=r"checksums.json is damaged"):
        Model.load("words")
    assert json.loads(run_logt("models", "list", "--json"))[-1]["state"] == "damaged"
    download("words")
    Model.load("words")


def test_a_server_that_fails_is_an_error_that_names_the_way_out(hub, monkeypatch, run_logt):
    del hub.files[TOKENIZER]
    assert "tokenizer.json of someone/words-ONNX could not be" in run_logt("models", "get", "words", ok=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(ConnectionError, match="what has arrived is kept, and logt models get words resumes"):
        download("words")


def test_a_removal_that_is_killed_is_repeated(hub, monkeypatch):
    folder = download("words")

    def killed(path, **_):
        if (path / CHECKSUMS).exists():
            (path / CHECKSUMS).unlink()
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(downloads.shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            remove("words")
    assert not damaged_files(download("words"))
    with monkeypatch.context() as patched:
        patched.setattr(downloads.shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            remove("words")
    assert remove("words") > 0
    assert not folder.exists()


def test_other_models_are_left_alone(hub, tmp_path, run_logt):
    own = tmp_path / "models" / "words"
    own.mkdir(parents=True)
    (own / "model.onnx").write_bytes(b"mine")
    with pytest.raises(InvalidInputError, match="was not downloaded; move it"):
        download("words")
    with pytest.raises(InvalidInputError, match="was not downloaded to"):
        remove("words")
    assert (own / "model.onnx").read_bytes() == b"mine"
    assert "another model has this name" in json.loads(run_logt("models", "list", "--json"))[-1]["state"]
    for use in (download, remove):
        with pytest.raises(InvalidInputError, match="there is no model 'x' to download; choose from clip, "):
            use("x")


def test_two_downloads_of_one_model_do_not_mix(hub, tmp_path):
    parts = tmp_path / "models" / ".words.download"
    parts.mkdir(parents=True)
    for use in (download, remove):
        with Lock(parts), pytest.raises(LockedError):
            use("words")
    assert not hub.requests


def test_without_huggingface_hub_the_error_names_the_extra(hub, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'logt-search\[text\]'"):
        download("words")


def test_the_table_names_a_commit_and_the_checksums_of_all_files():
    for name, model in CATALOG.items():
        assert model.name == name
        assert re.fullmatch("[0-9a-f]{40}", model.revision)
        assert set(model.files) == {IMAGE, TEXT, TOKENIZER}
        assert all(re.fullmatch("[0-9a-f]{64}", file.sha256) for file in model.files.values())
        assert model.license in ("MIT", "Apache-2.0")

"""The index of a folder of photos when runs are stopped or killed, or files are damaged."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress

import pytest
from drawn_images import best_match, counts, draw, draw_folder, finds_itself

from logt.errors import CorruptIndexError, FormatVersionError, InvalidInputError, LockedError
from logt.photos import Photos, indexer, update
from logt.photos.manifest import MANIFEST_FILE, PhotoManifest
from logt.storage.lock import Lock


@pytest.fixture
def folder(tmp_path):
    return draw_folder(tmp_path / "photos")


KILLED = """
import os, signal, sys
from logt.photos import update
from logt.photos import indexer
from logt.photos.catalog import Catalog
from logt.index import Index
folder, model, where, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
def after(owner, name):
    real = getattr(owner, name)
    def call(*args, **kwargs):
        real(*args, **kwargs)
        die()
    setattr(owner, name, call)
indexer._BLOCK_SIZE = 8
indexer.FINAL_COUNT = 20
if where == "indexing":
    progress = lambda what, done, total: done >= count and die()
else:
    progress = None
    owner, name = {"saving": (Index, "save"), "whitening": (indexer.IndexFolder, "write_whitening"),
                   "manifest": (indexer.PhotoManifest, "write"), "catalog": (Catalog, "mark_indexed"),
                   "relearning": (Catalog, "start_relearning")}[where]
    after(owner, name)
update(folder, model=model, progress=progress, workers=2, relearn=where == "relearning")
"""


@pytest.mark.parametrize(
    "plan",
    [
        [("indexing", 1), ("indexing", 20), ("indexing", 9)],
        [("manifest", 0), ("saving", 0), ("whitening", 0), ("saving", 0)],
        [("catalog", 0), ("catalog", 0), ("relearning", 0), ("saving", 0)],
    ],
)
def test_a_killed_run_resumes_and_nothing_is_lost_or_duplicated(tmp_path, small, plan):
    for seed in range(50):
        draw(tmp_path / "photos" / f"{seed}.png", seed)
    (tmp_path / "photos" / "bad.png").write_text("bad")
    for where, count in plan:
        words = [sys.executable, "-c", KILLED, str(tmp_path / "photos"), str(small), where, str(count)]
        assert subprocess.run(words, capture_output=True).returncode == -signal.SIGKILL
    done = update(tmp_path / "photos", model=small)
    assert [name for name, _ in done.failed] == ["bad.png"]
    photos = Photos.open(tmp_path / "photos" / ".logt")
    assert sorted(photos.index.ids) == sorted(f"{seed}.png" for seed in range(50))
    assert all(finds_itself(photos, tmp_path / "photos" / f"{s}.png") for s in range(50))
    assert counts(update(tmp_path / "photos")) == (0, 0, 0, 50, 1)


def test_descriptors_recorded_before_a_kill_are_not_computed_again(tmp_path, small, monkeypatch):
    for seed in range(30):
        draw(tmp_path / f"{seed}.png", seed)
    words = [sys.executable, "-c", KILLED, str(tmp_path), str(small), "indexing", "20"]
    subprocess.run(words, capture_output=True)
    read = []
    real = indexer.read_photo
    monkeypatch.setattr(indexer, "read_photo", lambda path, side: read.append(path) or real(path, side))
    assert update(tmp_path, model=small).added == 30 - 16  # two blocks of eight were recorded
    assert len(read) == 14


def test_an_interrupted_run_resumes(folder, small):
    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        update(folder, model=small, progress=stop)
    assert update(folder).added == 5


def test_the_names_on_disk_are_those_of_format_2(folder, small):
    update(folder, model=small)
    home = folder / ".logt"
    manifest = json.loads((home / "photos.json").read_text())
    keys = (
        "format folder model sha256 model_path layout mean std side scales p whitening more_folders settings checksum"
    )
    assert list(manifest) == keys.split()
    checksum = manifest["whitening"]
    files = {".lock", "catalogue.sqlite", "photos.json", f"vectors-{checksum}", f"whitening-{checksum}.safetensors"}
    assert {path.name for path in home.iterdir()} == files
    with closing(sqlite3.connect(home / "catalogue.sqlite")) as db:
        columns = {
            table: [row[1] for row in db.execute(f"PRAGMA table_info({table})")] for table in ("pictures", "notes")
        }
    assert columns == {"pictures": ["name", "bytes", "changed", "raw", "vectors"], "notes": ["note", "value"]}


@pytest.mark.parametrize("lost", ["vectors", "catalog", "byte"])
def test_lost_files_of_the_index_are_computed_again(folder, small, lost):
    update(folder, model=small)
    home = folder / ".logt"
    vectors = next(path for path in home.iterdir() if path.name.startswith("vectors-"))
    if lost == "catalog":
        (home / "catalogue.sqlite").unlink()
    elif lost == "vectors":
        shutil.rmtree(vectors)
    else:
        (vectors / "manifest.json").write_text("{}")
        with pytest.raises(CorruptIndexError):
            Photos.open(home)
    if lost != "catalog":
        with pytest.raises(CorruptIndexError, match="logt images index --rebuild"):
            update(folder)
    update(folder, rebuild=lost != "catalog")
    photos = Photos.open(home)
    assert len(photos.index) == 5
    assert best_match(photos, folder / "a.png")[0] == "a.png"


@pytest.mark.parametrize(
    ("text", "error"), [("", CorruptIndexError), ("[]", CorruptIndexError), ('{"format": 9}', FormatVersionError)]
)
def test_a_damaged_or_newer_index_is_refused(folder, small, text, error):
    update(folder, model=small)
    (folder / ".logt" / MANIFEST_FILE).write_text(text)
    for use in (Photos.open, lambda path: update(folder, path)):
        with pytest.raises(error):
            use(folder / ".logt")


def test_the_error_names_a_damaged_catalog_or_whitening(folder, small):
    update(folder, model=small)
    white = next((folder / ".logt").glob("whitening-*"))
    data = bytearray(white.read_bytes())
    data[-1] ^= 1
    white.write_bytes(data)
    with pytest.raises(CorruptIndexError, match="checksum"):
        Photos.open(folder / ".logt")
    (folder / ".logt" / "catalogue.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(CorruptIndexError, match=r"catalogue.sqlite is damaged.*--rebuild"):
        update(folder)
    update(folder, rebuild=True)
    assert finds_itself(Photos.open(folder), folder / "a.png")


def all_bytes(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("rebuild", [False, True])
def test_an_error_of_the_disk_is_not_damage_and_removes_nothing(folder, small, monkeypatch, rebuild):
    update(folder, model=small)
    before = all_bytes(folder / ".logt")
    real = os.open

    def failing(path, *args, **kwargs):
        if str(path).endswith(".safetensors") and "vectors-" in str(path):
            raise OSError(errno.EIO, "Input/output error", str(path))
        return real(path, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", failing)
        with pytest.raises(OSError, match="Input/output error") as raised:
            update(folder, rebuild=rebuild)
    assert not isinstance(raised.value, CorruptIndexError)
    assert all_bytes(folder / ".logt") == before
    assert counts(update(folder)) == (0, 0, 0, 5, 0)


def test_damage_is_reported_and_nothing_is_removed_without_rebuild(folder, small):
    update(folder, model=small)
    segment = next((folder / ".logt").glob("vectors-*/segment-*"))
    flip(segment, -1)
    before = all_bytes(folder / ".logt")
    with pytest.raises(CorruptIndexError, match=r"segment-.* is damaged.*--rebuild"):
        update(folder)
    assert all_bytes(folder / ".logt") == before
    assert counts(update(folder, rebuild=True)) == (0, 0, 0, 5, 0)  # the raw descriptors were kept
    assert finds_itself(Photos.open(folder), folder / "a.png")


def flip(path, at, bit=0):
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def test_every_flipped_byte_of_the_manifest_is_noticed(folder, small):
    update(folder, model=small)
    path = folder / ".logt" / MANIFEST_FILE
    right = path.read_bytes()
    manifest = PhotoManifest.read(folder / ".logt")
    for at in range(len(right)):
        flip(path, at, at % 8)
        with suppress(CorruptIndexError, FormatVersionError):
            assert PhotoManifest.read(folder / ".logt") == manifest  # only white space changed
        path.write_bytes(right)


def test_a_manifest_of_format_1_has_no_checksum_and_is_still_read(folder, small):
    update(folder, model=small)
    path = folder / ".logt" / MANIFEST_FILE
    values = json.loads(path.read_text())
    del values["checksum"]
    path.write_text(json.dumps({**values, "format": 1}))
    assert len(Photos.open(folder).index) == 5
    assert counts(update(folder)) == (0, 0, 0, 5, 0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model_path": "{pipe}"}, "not a regular file"),
        ({"model_path": "/dev/zero"}, "not a regular file"),
        ({"model_path": "{huge}"}, "different model|more than"),
        ({"model_path": "a\0b"}, "damaged"),
        ({"model_path": 5}, "damaged"),
        ({"model_path": "\ud800"}, "damaged"),
        ({"folder": "a\0b"}, "damaged"),
        ({"whitening": "../../elsewhere"}, "damaged"),
        ({"side": 10**9}, "damaged: side must be"),
        ({"more_folders": "/etc"}, "damaged"),
        ({"more_folders": ["elsewhere"]}, "damaged"),
        ({"more_folders": [5]}, "damaged"),
        ({"scales": [1e9]}, "scales must be"),
        ({"mean": 3}, "damaged"),
        ({"sha256": None}, "damaged"),
        ({"p": "x"}, "p must be"),
    ],
)
def test_a_crafted_manifest_ends_in_a_typed_error(folder, small, tmp_path, changed, message):
    update(folder, model=small)
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "huge", "wb") as file:
        file.truncate((1 << 31) + 1)  # takes no space on disk
    path = folder / ".logt" / MANIFEST_FILE
    values = json.loads(path.read_text())
    del values["checksum"]
    if isinstance(text := changed.get("model_path"), str):
        changed = {"model_path": text.format(pipe=tmp_path / "pipe", huge=tmp_path / "huge")}
        values["sha256"] = "" if "huge" in text else values["sha256"]
    path.write_text(json.dumps({**values, "format": 1, **changed}))
    model = changed.get("model_path") if "damaged" not in message else None
    if model:
        with pytest.raises(InvalidInputError, match="have not used on this computer yet"):
            Photos.open(folder)
    with pytest.raises((CorruptIndexError, InvalidInputError), match=message):
        Photos.open(folder, model=model)


@pytest.mark.parametrize("name", [MANIFEST_FILE, "catalogue.sqlite", "whitening-"])
def test_pipes_in_the_place_of_files_end_in_a_typed_error(folder, small, name):
    update(folder, model=small)
    path = next(path for path in (folder / ".logt").iterdir() if path.name.startswith(name))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises((CorruptIndexError, InvalidInputError), match=r"not a regular file|is not an index of photos"):
        update(folder)
    if name != "catalogue.sqlite":  # readers do not use it
        with pytest.raises(CorruptIndexError, match="not a regular file"):
            Photos.open(folder)


def test_a_deeply_nested_manifest_is_refused(folder, small):
    update(folder, model=small)
    (folder / ".logt" / MANIFEST_FILE).write_text("[" * 500_000)
    with pytest.raises(CorruptIndexError, match="damaged"):
        Photos.open(folder)
    (folder / ".logt" / MANIFEST_FILE).write_text(" " * (2 << 20))
    with pytest.raises(CorruptIndexError, match="more than"):
        Photos.open(folder)


def test_a_damaged_manifest_is_created_again_by_rebuild(folder, small):
    update(folder, model=small)
    (folder / ".logt" / MANIFEST_FILE).write_text("{")
    with pytest.raises(CorruptIndexError, match="--rebuild"):
        update(folder, model=small)
    assert counts(update(folder, model=small, rebuild=True)) == (5, 0, 0, 0, 0)
    assert finds_itself(Photos.open(folder), folder / "a.png")


def test_there_is_one_writer_and_it_writes_only_to_an_index(folder, small, tmp_path):
    update(folder, model=small)
    with Lock(folder / ".logt"), pytest.raises(LockedError):
        update(folder)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("keep me")
    with pytest.raises(InvalidInputError, match="is not an index of photos"):
        update(folder, tmp_path / "full")
    with pytest.raises(InvalidInputError, match="is not a folder"):
        update(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="is not an index of photos"):
        Photos.open(tmp_path / "full")


def test_an_unusable_model_creates_no_index(folder):
    with pytest.raises(InvalidInputError, match="cannot be read"):
        update(folder, model="none.onnx")
    with pytest.raises(InvalidInputError, match="scales"):
        update(folder, scales=())
    assert not (folder / ".logt").exists()


def test_relearning_accepts_a_model_that_has_changed(folder, network):
    path = network("changing", about='{"side": 64}')
    update(folder, model=path)
    path.write_bytes(network("changed", channels=24, about='{"side": 64}').read_bytes())
    with pytest.raises(InvalidInputError, match="is a different model"):
        update(folder)
    update(folder, relearn=True)
    assert Photos.open(folder / ".logt").index.dim == 24

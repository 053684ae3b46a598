"""The index of a folder of photos when runs are stopped or killed, or files are damaged."""

import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress

import pytest
from drawn_photos import counts, draw, finds_itself
from faults import TORTURE, contents, damage

from logt import _index_base
from logt.errors import CorruptIndexError, FormatVersionError, InvalidInputError, LockedError
from logt.photos import Photos, update
from logt.photos.index_folder import IndexFolder
from logt.photos.manifest import MANIFEST_FILE, PhotoManifest, _checksum
from logt.storage.lock import Lock

KILLED = """
import json, os, signal, sys
import onnxruntime
from logt.photos import update
from logt.photos import extraction, indexer, photo_vectors
from logt.photos.catalog import Catalog
from logt.descriptors.image_io import read_details, read_image
from logt.index import Index
folder, model, plan = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
def after(owner, name):
    real = getattr(owner, name)
    def call(*args, **kwargs):
        real(*args, **kwargs)
        die()
    setattr(owner, name, call)
indexer._BLOCK_SIZE = 8
photo_vectors.FINAL_COUNT = 20
extraction.read_photo = lambda path, side: (read_image(path, side=side), read_details(path))  # no other processes
places = {"saving": (Index, "save"), "whitening": (indexer.IndexFolder, "write_whitening"),
          "manifest": (indexer.PhotoManifest, "write"), "catalog": (Catalog, "mark_indexed"),
          "relearning": (Catalog, "clear")}
for step in plan:
    child = os.fork()
    if not child:
        progress = None
        if isinstance(step, int):
            progress = lambda what, done, total: done >= step and die()
        else:
            after(*places[step])
        update(folder, model=model, progress=progress, workers=2, relearn=step == "relearning")
        os._exit(1)
    if os.waitpid(child, 0)[1] != signal.SIGKILL:
        sys.exit(f"{step}: the run was not killed")
"""


def kill_runs(album, model, plan):
    """Run `update` for each step of a plan, and kill it after so many photos, or after what the step names."""
    words = [sys.executable, "-c", KILLED, str(album), str(model), json.dumps(plan)]
    subprocess.run(words, check=True)


LONG_PLANS = [
    [1, 20, 9],
    ["manifest", "saving", "whitening", "saving"],
    ["catalog", "catalog", "relearning", "saving"],
]


@pytest.mark.parametrize(
    "plan",
    [
        ["manifest", 20, "saving", "whitening"],
        ["catalog", "relearning", "saving"],
        *(LONG_PLANS if TORTURE else ()),
    ],
)
def test_a_killed_run_resumes_and_nothing_is_lost_or_duplicated(tmp_path, small, plan):
    names = [f"{seed}.png" for seed in range(50 if TORTURE else 26)]
    for seed, name in enumerate(names):
        draw(tmp_path / name, seed)
    (tmp_path / "bad.png").write_text("bad")
    kill_runs(tmp_path, small, plan)
    done = update(tmp_path, model=small)
    assert [name for name, _ in done.failed] == ["bad.png"]
    photos = Photos.open(tmp_path)
    assert sorted(photos.index.ids) == sorted(names)
    assert all(finds_itself(photos, tmp_path / name) for name in names)
    assert counts(update(tmp_path)) == (0, 0, 0, len(names), 1)


def test_descriptors_recorded_before_a_kill_are_not_computed_again(tmp_path, small):
    for seed in range(30):
        draw(tmp_path / f"{seed}.png", seed)
    kill_runs(tmp_path, small, [20])
    assert update(tmp_path, model=small).added == 30 - 16  # two blocks of eight were recorded


@pytest.mark.parametrize(
    "damaged", ["segment", "vectors", "catalog", "manifest of the vectors", "whitening", "no whitening"]
)
def test_damage_is_reported_and_nothing_is_removed_without_rebuild(album, damaged):
    home = album / ".logt"
    vectors = next(home.glob("vectors-*"))
    if damaged == "segment":
        damage(next(vectors.glob("segment-*")))
    elif damaged == "vectors":
        shutil.rmtree(vectors)
    elif damaged == "whitening":
        damage(next(home.glob("whitening-*")))
    elif damaged == "no whitening":
        next(home.glob("whitening-*")).unlink()
    else:
        (home / "catalog.sqlite" if damaged == "catalog" else vectors / "manifest.json").write_text("{}")
    before = contents(home)
    with pytest.raises(CorruptIndexError, match="logt images index --rebuild"):
        update(album)
    assert contents(home) == before
    descriptors_are_read_again = damaged == "catalog"
    assert update(album, rebuild=True).added == (5 if descriptors_are_read_again else 0)
    assert finds_itself(Photos.open(home), album / "a.png")


@pytest.mark.parametrize("manifest", ["damaged", "missing"])
def test_a_damaged_catalog_is_replaced_even_if_the_manifest_is_lost_too(album, small, manifest):
    home = album / ".logt"
    (home / "catalog.sqlite").write_text("{}")
    (home / MANIFEST_FILE).write_text("{}")
    if manifest == "missing":
        (home / MANIFEST_FILE).unlink()
    with pytest.raises(CorruptIndexError, match="is damaged"):
        update(album, model=small)
    assert counts(update(album, model=small, rebuild=True)) == (5, 0, 0, 0, 0)


def test_a_reader_that_a_writer_overtakes_reads_the_new_state(album, monkeypatch):
    real = IndexFolder.read_whitening

    def overtaken(self, checksum):
        patch.undo()
        for seed in range(10):
            draw(album / f"{seed}.png", seed + 50)
        update(album)  # learns another whitening
        return real(self, checksum)

    with monkeypatch.context() as patch:
        patch.setattr(IndexFolder, "read_whitening", overtaken)
        assert len(Photos.open(album).index) == 15


def test_an_index_without_photos_can_be_checked(tmp_path, small):
    (tmp_path / "bad.png").write_text("bad")
    update(tmp_path, model=small)
    manifest, vectors = IndexFolder(tmp_path / ".logt").check()
    assert (manifest, vectors) == (PhotoManifest.read(tmp_path / ".logt"), None)


def test_a_check_reads_the_values_of_the_catalog_and_all_vectors(album, monkeypatch):
    home = album / ".logt"
    IndexFolder(home).check()
    with monkeypatch.context() as patch:
        patch.setattr(_index_base, "AT_ONCE", 0)  # or small files are checked when they are opened
        vectors = next(home.glob("vectors-*/segment-*"))
        right = vectors.read_bytes()
        damage(vectors)
        with pytest.raises(CorruptIndexError, match="segment-"):
            IndexFolder(home).check()
        vectors.write_bytes(right)
    with closing(sqlite3.connect(home / "catalog.sqlite")) as db:
        db.execute("UPDATE photos SET width = 'wide'")
        db.commit()
    with pytest.raises(CorruptIndexError):
        IndexFolder(home).check()


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        *[(text, CorruptIndexError, "is damaged") for text in ("", "[]", "{", "[" * 500_000)],
        (" " * (2 << 20), CorruptIndexError, "more than"),
        ('{"format": 1}', FormatVersionError, "has format 1, this version of logt reads format 3"),
        ('{"format": 9}', FormatVersionError, "has format 9"),
    ],
)
def test_a_damaged_manifest_or_one_of_another_format_is_refused(album, small, text, error, message):
    (album / ".logt" / MANIFEST_FILE).write_text(text)
    for use in (Photos.open, lambda path: update(album, path)):
        with pytest.raises(error, match=message):
            use(album / ".logt")
    if error is CorruptIndexError:
        assert counts(update(album, model=small, rebuild=True)) == (5, 0, 0, 0, 0)
        assert finds_itself(Photos.open(album), album / "a.png")


@pytest.mark.parametrize("rebuild", [False, True])
def test_an_error_of_the_disk_is_not_damage_and_removes_nothing(album, monkeypatch, rebuild):
    before = contents(album / ".logt")
    real = os.open

    def failing(path, *args, **kwargs):
        if str(path).endswith(".safetensors") and "vectors-" in str(path):
            raise OSError(errno.EIO, "Input/output error", str(path))
        return real(path, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", failing)
        with pytest.raises(OSError, match="Input/output error") as raised:
            update(album, rebuild=rebuild)
    assert not isinstance(raised.value, CorruptIndexError)
    assert contents(album / ".logt") == before
    assert counts(update(album)) == (0, 0, 0, 5, 0)


def test_every_flipped_byte_of_the_manifest_is_noticed(indexed_photos):
    manifest = PhotoManifest.read(indexed_photos / ".logt")
    right = manifest.to_json().encode()
    for at in range(len(right)):
        wrong = right[:at] + bytes([right[at] ^ 1 << at % 8]) + right[at + 1 :]
        with suppress(CorruptIndexError, FormatVersionError):
            assert PhotoManifest.from_json(wrong, indexed_photos) == manifest  # only white space changed


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model_path": "/dev/zero"}, "not a regular file"),
        ({"model_path": "a\0b"}, "damaged"),
        ({"model_path": 5}, "damaged"),
        ({"model_path": "\ud800"}, "damaged"),
        ({"folder": "a\0b"}, "damaged"),
        ({"whitening": "../../elsewhere"}, "damaged"),
        ({"more_folders": "/etc"}, "damaged"),
        ({"more_folders": ["elsewhere"]}, "damaged"),
        ({"more_folders": [5]}, "damaged"),
        ({"sha256": None}, "damaged"),
        ({"text_sha256": 5}, "damaged"),
        ({"tokenizer_sha256": ["a"]}, "damaged"),
        ({"settings": 3}, "damaged"),
        ({"settings": {"side": 10**9}}, "side must be at most"),
        ({"settings": {"scales": [1e9]}}, "scales must be"),
        ({"settings": {"anything": 3}}, "indexed with anything = 3"),
    ],
)
def test_a_crafted_manifest_ends_in_a_typed_error(album, changed, message):
    path = album / ".logt" / MANIFEST_FILE
    values = {**json.loads(path.read_text()), **changed}
    del values["checksum"]
    path.write_text(json.dumps({**values, "checksum": _checksum(values)}))
    model = values["model_path"] if "model_path" in changed and message != "damaged" else None
    if model:
        with pytest.raises(InvalidInputError, match="have not used on this computer yet"):
            Photos.open(album)
    with pytest.raises((CorruptIndexError, InvalidInputError), match=message):
        Photos.open(album, model=model)


@pytest.mark.parametrize("name", [MANIFEST_FILE, "catalog.sqlite", "whitening-"])
def test_pipes_in_the_place_of_files_end_in_a_typed_error(album, name):
    path = next(path for path in (album / ".logt").iterdir() if path.name.startswith(name))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises((CorruptIndexError, InvalidInputError), match=r"not a regular file|is not an index of photos"):
        update(album)
    if name != "catalog.sqlite":  # readers do not use it
        with pytest.raises(CorruptIndexError, match="not a regular file"):
            Photos.open(album)


def test_there_is_one_writer_and_it_writes_only_to_an_index(album, tmp_path):
    with Lock(album / ".logt"), pytest.raises(LockedError):
        update(album)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("keep me")
    with pytest.raises(InvalidInputError, match="is not an index of photos"):
        update(album, tmp_path / "full")
    with pytest.raises(InvalidInputError, match="is not a folder"):
        update(tmp_path / "nowhere")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        update(tmp_path, model="none.onnx")
    assert not (tmp_path / ".logt").exists()
    with pytest.raises(FileNotFoundError, match=f"{tmp_path / 'full'} is not an index of photos"):
        Photos.open(tmp_path / "full")

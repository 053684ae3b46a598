"""Indexes whose files fit their checksums but are not as logt writes them: they are refused when they are opened."""

from __future__ import annotations

import hashlib
import json
import struct

import numpy as np
import pytest

import logt
from logt.errors import CorruptIndexError
from logt.storage import changes
from logt.storage.changes import Change
from logt.storage.files import array_file, checksum, parse_arrays
from logt.storage.manifest import manifest_bytes, state_of

DIM = 16


@pytest.fixture
def folder(tmp_path, vectors):
    index = logt.Index(DIM, segment_size=2000)
    index.add(vectors(1500, DIM), ids=[f"n{i}" for i in range(1500)])
    index.link(4)
    index.save(tmp_path / "index")
    return tmp_path / "index"


def read(folder):
    return json.loads((folder / "manifest.json").read_bytes())["manifest"]


def write(folder, manifest, *, state=True):
    if state:
        manifest["state"] = state_of(manifest)
    (folder / "manifest.json").write_bytes(manifest_bytes(manifest))


def edit(folder, kind, array, change):
    """Replace one array of the file of a kind, and what the manifest holds of it."""
    manifest = read(folder)
    (name,) = (name for name in manifest["files"] if name.startswith(f"{kind}-"))
    arrays = {
        k: np.array(v) for k, v in parse_arrays(np.frombuffer((folder / name).read_bytes(), np.uint8))[0].items()
    }
    arrays[array] = change(arrays[array])
    data = array_file(arrays)
    (folder / name).unlink()
    (folder / name).write_bytes(data)
    manifest["files"][name] = {"bytes": len(data), "checksum": checksum(data)}
    write(folder, manifest)


def wrapped_starts(starts):
    starts[1:4] = 2**63 - 1, -(2**63), -1
    return starts


def wrapped_ids(ids):
    ids[-2:] = 2**63 - 1, -(2**63)
    return ids


@pytest.mark.parametrize(
    ("kind", "array", "change"),
    [
        ("segment", "starts", wrapped_starts),
        ("segment", "ids", wrapped_ids),
        ("model", "band_size", lambda size: np.array([2**62] * 4 + [DIM])),
        ("strings", "ends", lambda ends: np.where(np.arange(len(ends)) % 2, 0, ends[-1])),
        ("strings", "ends", lambda ends: ends - 1),
    ],
)
def test_numbers_that_overflow_are_refused(folder, kind, array, change):
    edit(folder, kind, array, change)
    with pytest.raises(CorruptIndexError):
        logt.open(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"state": "x/../../victim"},
        {"state": None},
        {"state": 5},
        {"state": "\0"},
        {"generation": -5},
        {"generation": 2**64},
        {"settings": None},
        {"settings": "x"},
        {"segments": {}},
        {"files": []},
    ],
)
def test_impossible_manifests_are_refused(folder, change):
    write(folder, {**read(folder), **change}, state=False)
    for mode in ("r", "a"):
        with pytest.raises(CorruptIndexError, match=r"manifest\.json is damaged"):
            logt.open(folder, mode)


@pytest.mark.parametrize(
    ("part", "value"), [("probe", 5), ("group", None), ("residual", "x"), ("decode", {"stage": "Sum"})]
)
def test_methods_of_wrong_stages_are_refused(folder, part, value):
    manifest = read(folder)
    manifest["method"][part] = value
    write(folder, manifest)
    with pytest.raises(CorruptIndexError):
        logt.open(folder)


@pytest.mark.parametrize("name", ["manifest.json", ".lock", "..", "", "../victim", "/tmp/victim", "thesis.pdf"])
def test_names_of_other_files_are_refused(folder, name):
    manifest = read(folder)
    manifest["files"][name] = {"bytes": 3, "checksum": checksum(b"abc")}
    write(folder, manifest)
    for call in (logt.open, lambda folder: logt.open(folder, "a")):
        with pytest.raises(CorruptIndexError, match="not the name of a file of an index"):
            call(folder)


@pytest.mark.parametrize("about", [{"checksum": "/tmp/x"}, {"checksum": 5}, {"bytes": -1}, {"bytes": 2.5}])
def test_a_cache_writes_nothing_elsewhere(folder, tmp_path, monkeypatch, about):
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.setenv("LOGT_CACHE", str(tmp_path / "cache"))
    url = f"memory://crafted-{hashlib.md5(repr(about).encode()).hexdigest()}"
    logt.open(folder).save(url)
    disk, path = fsspec.core.url_to_fs(url)
    (name,) = (name for name in disk.ls(path, detail=False) if "manifest" in name)
    manifest = json.loads(disk.cat(name))["manifest"]
    (segment,) = (file for file in manifest["files"] if file.startswith("segment-"))
    manifest["files"][segment] |= about
    disk.pipe(name, manifest_bytes(manifest))
    with pytest.raises(CorruptIndexError, match="is damaged"):
        logt.open(url)


@pytest.mark.parametrize("empty", [False, True])
def test_vectors_of_another_dimension_in_the_log_are_refused(tmp_path, folder, vectors, empty):
    if empty:
        folder = tmp_path / "empty"
        logt.Index(DIM).save(folder)
    reader = logt.open(folder)
    manifest = read(folder)
    start = changes.start_of_log(manifest)
    strings = None if empty else ("x", "y")
    change = Change("add", np.array([5000, 5001]), vectors(2, 2 * DIM), strings)
    changes.append(folder / f"changes-{manifest['state']}.log", start, [change])
    with pytest.raises(CorruptIndexError, match="dimension"):
        logt.open(folder)
    with pytest.raises(CorruptIndexError, match="dimension"):
        reader.refresh()


@pytest.mark.parametrize("payload", [b"abc", struct.pack("<Q", 10) + struct.pack("<Q", 2) + b"[]"])
def test_a_log_that_is_no_list_of_changes_is_refused(folder, payload, monkeypatch):
    manifest = read(folder)
    start = changes.start_of_log(manifest)
    monkeypatch.setattr(changes, "_encode", lambda change: payload)
    changes.append(folder / f"changes-{manifest['state']}.log", start, [Change("remove", np.array([1]))])
    with pytest.raises(CorruptIndexError, match="damaged at byte"):
        logt.open(folder)


@pytest.mark.parametrize("name", [".lock", "log"])
def test_nothing_is_written_through_a_link(folder, tmp_path, vectors, name):
    victim = tmp_path / "victim"
    victim.write_bytes(b"text")
    link = folder / (f"changes-{read(folder)['state']}.log" if name == "log" else name)
    link.unlink(missing_ok=True)
    link.symlink_to(victim)

    def add():
        with logt.open(folder, "a") as index:
            index.add(vectors(1, DIM, seed=3), ids=["new"])
            index.save()

    with pytest.raises(CorruptIndexError, match="symbolic link"):
        add()
    assert victim.read_bytes() == b"text"


@pytest.mark.parametrize("path", [5, b"abc", "", "a\0b", None])
def test_wrong_paths_are_named(path):
    index = logt.Index(DIM)
    for call in (index.save, logt.open):
        with pytest.raises(logt.InvalidInputError, match="path"):
            call(path)


def test_huge_numbers_are_refused_or_cut(folder):
    index, q = logt.open(folder), np.ones(DIM)
    assert index.search(q, 3, beam=10**30).ids.tolist() == index.search(q, 3, beam=1500).ids.tolist()
    with pytest.raises(logt.InvalidInputError, match="expand must be at most"):
        index.search(q, 3, expand=10**30)
    for threshold in (None, "x"):
        with pytest.raises(logt.InvalidInputError, match="threshold"):
            index.links.groups(threshold)

"""The files of an index by themselves: which changes a log can hold, and what a store keeps in memory."""

import copy
import os
from dataclasses import replace

import numpy as np
import pytest
from exact_index import built
from faults import damage

import logt
from logt.errors import ConflictError, CorruptIndexError, InvalidInputError
from logt.storage import changes, files
from logt.storage.changes import Change, log_path
from logt.storage.locations import location_at
from logt.storage.lock import Lock
from logt.storage.manifest import parse_manifest
from logt.storage.shard_files import read_outline
from logt.storage.store import Store


@pytest.fixture(scope="module")
def whole(tmp_path_factory, vectors):
    """A saved index of 30 vectors."""
    folder = tmp_path_factory.mktemp("whole") / "index"
    built(vectors(30, 8)).save(folder)
    return folder


@pytest.fixture
def store(saved):
    store = Store.open(saved, write=True)
    yield store
    store.close()


def test_vectors_are_logged_only_if_what_they_are_encoded_with_has_a_file(saved, store):
    (segment,) = store.read()[0].segments
    known = replace(Change.add(segment, None), arrays={**Change.add(segment, None).arrays, "ids": segment.ids + 50})
    new = replace(known, model=copy.copy(segment.model))
    removal = Change.remove(np.array([1]))
    for pending in ([new], [removal, new], [known, new]):
        assert not store.append(pending)
    assert not list(saved.glob("*.log"))
    assert store.append([])
    assert store.append([removal, known])
    assert len(logt.open(saved)) == 59


@pytest.mark.parametrize("failing", ["store.last_position", "locations.flush_folder"])
def test_a_store_that_cannot_be_created_leaves_no_lock(saved, monkeypatch, failing):
    def fail(*_):
        raise PermissionError

    monkeypatch.setattr(f"logt.storage.{failing}", fail)
    with pytest.raises(PermissionError) as raised:
        Store.create(saved)
    Lock(saved).close()
    assert raised  # holds the frames that failed


def test_a_lock_that_is_closed_is_free_even_if_a_copy_of_its_file_is_open(tmp_path):
    lock = Lock(tmp_path)
    copied = os.dup(lock._file)  # as in a child that was forked a moment ago
    lock.close()
    Lock(tmp_path).close()
    os.close(copied)


def test_a_store_that_has_read_nothing_logs_nothing(store):
    assert not store.append([])
    assert not store.append([Change.remove(np.array([1]))])


def test_a_manifest_for_files_that_are_there_does_not_replace_what_another_wrote(saved, store):
    store.read()
    contents = store.location.read_manifest()
    before = (saved / "manifest.json").read_bytes()
    (saved / ".lock").unlink()
    with pytest.raises(ConflictError, match="nothing was written"):
        store.write_entries(contents, contents["files"])
    assert (saved / "manifest.json").read_bytes() == before


def test_files_are_checked_again_after_a_store_has_forgotten_them(saved):
    store = Store.open(saved, write=False)
    store.read()
    damage(next(saved.glob("segment-*")), -200)
    store.read()  # mapped
    store.forget()
    with pytest.raises(CorruptIndexError, match="checksum"):
        store.read()


def test_a_record_that_names_a_file_without_a_model_is_damage(saved, store):
    (segment,) = store.read()[0].segments
    end = changes.append(
        log_path(saved, store._state), store.position, [replace(Change.add(segment, None), model="x")]
    )
    assert end is not None
    for read in (store.read_changes, store.read):
        with pytest.raises(CorruptIndexError, match="do not fit together"):
            read()


def test_a_change_of_an_unknown_kind_is_damage(tmp_path):
    start = changes.Position(0, 1, b"")
    changes.append(tmp_path / "log", start, [Change("move", {"ids": np.arange(3)}, model="a file")])
    assert "a change of kind 'move'" in changes.read(tmp_path / "log", start)[2]


def test_parts_of_an_index_are_read_only_if_its_manifest_names_all_of_it(saved):
    assert len(read_outline(saved)) == 30
    with logt.open(saved, "a") as index:
        index.remove([1])
        index.save()
    with pytest.raises(InvalidInputError, match="write-ahead log"):
        read_outline(saved)
    next(saved.glob("*.log")).unlink()
    location = location_at(saved)
    location.write_manifest(location.read_manifest() | {"segments": [{}]})
    with pytest.raises(CorruptIndexError, match="do not fit together"):
        read_outline(saved)


@pytest.fixture
def url(monkeypatch, tmp_path, vectors):
    """The URL of an index of 30 vectors in memory."""
    monkeypatch.setenv("LOGT_CACHE", str(tmp_path / "cache"))
    pytest.importorskip("fsspec")
    url = f"memory://{tmp_path.name}/index"
    built(vectors(30, 8)).save(url)
    return url


def test_readers_at_a_url_without_a_log_see_what_is_saved(url, vectors):
    reader = logt.open(url)
    assert not reader.refresh()
    with logt.open(url, "a") as index:
        index.remove([3])
        index.save(f"{url}/")  # the same place
        index.add(vectors(2, 8, seed=1))
        index.save()
        assert sorted(index._store.location._generations()) == [1, 2, 3]
    assert reader.refresh()
    assert reader.ids.tolist() == index.ids.tolist()


def test_a_file_at_a_url_that_another_writer_has_removed_is_removed_too():
    location = location_at("memory://removed/index")
    location.write("a", b"first")
    for _ in range(2):
        location.remove("a")
        assert location.names() == []


def test_files_are_named_by_their_checksums_and_at_a_url_also_by_the_save(url, saved, vectors):
    built(vectors(30, 8)).save(f"{url}2")
    local, first, second = (location_at(path).read_manifest()["files"] for path in (saved, url, f"{url}2"))
    assert all(name.endswith(f"-{about['checksum'][:16]}.safetensors") for name, about in local.items())
    assert not first.keys() & second.keys()
    assert sorted(map(str, first.values())) == sorted(map(str, second.values())) == sorted(map(str, local.values()))


def test_a_store_knows_its_place_by_any_name(url, saved, monkeypatch):
    at_url, store = Store.open(url, write=False), Store.open(saved, write=False)
    monkeypatch.chdir(saved.parent)
    assert at_url.is_at(url + "/")
    assert all(store.is_at(path) for path in (saved, f"{saved}/", "index", f"file://{saved}"))
    assert not at_url.is_at(saved)
    assert not any(store.is_at(path) for path in (url, saved.parent))


def test_an_index_without_vectors_is_an_index_and_a_file_is_none(tmp_path):
    logt.Index(8).save(tmp_path / "empty")
    (tmp_path / "file").write_text("x")
    for name, message in (("empty", "another index"), ("file", "is not an index")):
        with pytest.raises(InvalidInputError, match=message):
            built(np.eye(8)).save(tmp_path / name)


def test_the_mark_of_a_first_save_goes_even_if_that_was_killed_after_its_manifest(saved):
    (saved / ".unfinished").touch()
    logt.open(saved, "a").close()
    assert not (saved / ".unfinished").exists()


def test_only_the_files_of_the_present_manifest_stay_mapped(saved, vectors):
    reader = logt.open(saved)
    with logt.open(saved, "a") as index:
        index.add(vectors(3, 8, seed=1))
        index.compact()
        index.save()
    assert reader.refresh()
    store = reader._store
    assert store._loaded.keys() == {about["checksum"] for about in store._files.values()}


def test_an_index_with_a_damaged_log_is_replaced_by_the_next_generation(saved, vectors):
    with logt.open(saved, "a") as index:
        for n in range(2):
            index.remove([n])
            index.save()
    damage(next(saved.glob("*.log")), 0)
    built(vectors(3, 8)).save(saved, overwrite=True)
    assert Store.open(saved, write=False).location.read_manifest()["generation"] == 2


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"{}", b"[]", b"7", b"null", b"\xff", b"[" * 100_000),
        *(b'{"manifest": {}, "checksum": ""}', b'{"manifest": {"format": 1, "generation": 1.5}, "checksum": ""}'),
    ],
)
def test_any_text_that_is_no_manifest_is_damage(text):
    with pytest.raises(CorruptIndexError, match=r"manifest\.json is damaged"):
        parse_manifest(text, "manifest.json")


def test_two_processes_may_make_the_same_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "missing_folders", lambda folder: [folder])
    files.make_folder(tmp_path)

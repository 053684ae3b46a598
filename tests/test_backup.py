"""Copies of indexes: consistent while the index is written, checked, and never over something else."""

import os
import shutil
import threading

import pytest
from exact_index import assert_same, built
from faults import contents, damage, die_at, killed_in_child

import logt
from logt.errors import CorruptIndexError, InvalidInputError, LockedError
from logt.storage import backup
from logt.storage.backup import copy_index


@pytest.fixture(scope="module")
def whole(tmp_path_factory, vectors):
    """An index with string ids, two segments, a removal and a log of changes."""
    X = vectors(130, 16)
    names = [f"v{i}" for i in range(130)]
    index = built(X[:100], ids=names[:100], segment_size=60)
    index.remove(["v3"])
    folder = tmp_path_factory.mktemp("whole") / "source"
    index.save(folder)
    with logt.open(folder, "a") as opened:
        opened.add(X[100:], ids=names[100:])
        opened.save()
        opened.remove(["v5"])
        opened.save()
    return folder


def assert_same_answers(a, b, Q):
    assert_same(logt.open(a).search(Q, 10), logt.open(b).search(Q, 10))


def test_a_copy_gives_the_same_answers_and_leaves_the_index_as_it_is(saved, tmp_path, vectors):
    before = contents(saved)
    generation = copy_index(saved, tmp_path / "new" / "copy")
    assert contents(saved) == before
    assert_same_answers(saved, tmp_path / "new" / "copy", vectors(20, 16))
    copy = logt.open(tmp_path / "new" / "copy")
    assert (len(copy), copy.generation) == (128, generation) == (128, logt.open(saved).generation)
    with logt.open(tmp_path / "new" / "copy", "a") as changed:
        changed.add(vectors(1, 16, seed=9), ids=["new"])
        changed.save()
    assert "new" not in logt.open(saved)


def test_another_index_is_only_replaced_with_overwrite_and_its_readers_move_on(saved, tmp_path, vectors):
    copy_index(saved, tmp_path / "copy")
    with logt.open(saved, "a") as opened:
        opened.add(vectors(5, 16, seed=4), ids=list("abcde"))
        opened.save()
    reader = logt.open(saved)
    generation, before = reader.generation, contents(saved)
    with pytest.raises(InvalidInputError, match="--overwrite"):
        copy_index(tmp_path / "copy", saved)
    assert contents(saved) == before
    copy_index(tmp_path / "copy", saved, overwrite=True)
    assert len(reader) == 133  # it keeps its files
    assert reader.refresh()
    assert (len(reader), "a" in reader) == (128, False)
    assert reader.generation > generation
    assert len(contents(saved)) == len(contents(tmp_path / "copy"))  # nothing of the old index is left
    assert_same_answers(saved, tmp_path / "copy", vectors(20, 16))


@pytest.mark.parametrize("log", [True, False])
def test_a_copy_that_is_moved_over_an_index_is_noticed_by_readers(saved, tmp_path, vectors, log):
    if not log:
        with logt.open(saved, "a") as opened:
            opened.compact()
            opened.save()
    copy_index(saved, tmp_path / "copy")
    with logt.open(saved, "a") as opened:
        opened.add(vectors(1, 16, seed=4), ids=["late"])
        opened.save()
    reader = logt.open(saved)
    shutil.rmtree(saved)
    (tmp_path / "copy").rename(saved)
    assert reader.refresh()
    assert "late" not in reader


def test_a_folder_of_other_things_and_the_index_itself_are_refused(saved, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_text('{"generation": 3}')
    with pytest.raises(InvalidInputError, match="is not an index"):
        copy_index(saved, tmp_path / "other", overwrite=True)
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["manifest.json"]
    (tmp_path / "other" / "manifest.json").rename(tmp_path / "other" / "letter")
    with pytest.raises(InvalidInputError, match="is not an index"):
        copy_index(saved, tmp_path / "other", overwrite=True)
    assert (tmp_path / "other" / "letter").exists()
    for target in (saved, saved / "inside"):
        with pytest.raises(InvalidInputError, match="the index itself"):
            copy_index(saved, target, overwrite=True)
    with pytest.raises(FileNotFoundError, match="holds no index"):
        copy_index(tmp_path / "nowhere", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_damaged_index_or_a_pipe_in_the_place_of_a_file_is_not_copied(saved, tmp_path):
    path = damage(next(saved.glob("segment-*")))
    with pytest.raises(CorruptIndexError, match="is damaged"):
        copy_index(saved, tmp_path / "new" / "copy")
    path.unlink()
    with pytest.raises(CorruptIndexError, match=rf"{path} is missing"):
        copy_index(saved, tmp_path / "new" / "copy")
    os.mkfifo(path)
    with pytest.raises(CorruptIndexError, match="not a regular file"):
        copy_index(saved, tmp_path / "new" / "copy")
    assert not (tmp_path / "new").exists()


def test_a_copy_that_was_written_wrong_is_noticed_and_removed(saved, tmp_path, monkeypatch):
    real = backup.copy_file

    def wrong(old, new, about):
        real(old, new, about)
        if new.name.startswith("model"):
            damage(new)

    monkeypatch.setattr(backup, "copy_file", wrong)
    with pytest.raises(CorruptIndexError, match=r"copy.*is damaged"):
        copy_index(saved, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_an_index_that_is_being_written_is_not_overwritten(saved, tmp_path):
    copy_index(saved, tmp_path / "copy")
    before = contents(saved)
    with logt.open(saved, "a"), pytest.raises(LockedError):
        copy_index(tmp_path / "copy", saved, overwrite=True)
    assert contents(saved) == before


def test_copies_of_an_index_under_a_writer_are_saved_states(tmp_path, vectors):
    X = vectors(400, 8)
    built(X[:40]).save(tmp_path / "index")
    states = {logt.open(tmp_path / "index").generation: 40}
    stop = threading.Event()

    def write():
        with logt.open(tmp_path / "index", "a") as opened:
            at = 40
            while not stop.is_set() and at < 400:
                opened.add(X[at : at + 3])
                at += 3
                if at % 2:
                    opened.compact()  # replaces all files
                states[opened.generation + 1] = len(opened)
                opened.save()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(5):
            generation = copy_index(tmp_path / "index", tmp_path / f"copy {number}")
            assert len(logt.open(tmp_path / f"copy {number}")) == states[generation]
    finally:
        stop.set()
        writer.join()


def test_a_copy_begins_again_if_a_writer_replaces_the_files(saved, tmp_path, monkeypatch, vectors):
    def late(*arguments):
        monkeypatch.undo()
        with logt.open(saved, "a") as opened:
            opened.compact()
            opened.save()
        copy_file(*arguments)

    copy_file = backup.copy_file
    monkeypatch.setattr(backup, "copy_file", late)
    copy_index(saved, tmp_path / "copy")
    assert_same_answers(saved, tmp_path / "copy", vectors(20, 16))


def copy_until_killed(source, target, n):
    die_at(n, ["replace"])
    copy_index(source, target, overwrite=True)


@pytest.mark.parametrize("existing", [False, True])
def test_a_killed_copy_leaves_the_old_index_or_the_new_one_and_can_be_repeated(saved, tmp_path, vectors, existing):
    target = tmp_path / "copy"
    if existing:
        built(vectors(50, 16, seed=3)).save(target)
    while killed_in_child(lambda: copy_until_killed(saved, target, 1)):  # each run copies one file more
        if existing:
            assert len(logt.open(target)) == 50
        else:
            assert not (target / "manifest.json").exists()
    assert len(logt.open(target)) == 128
    assert_same_answers(saved, target, vectors(20, 16))

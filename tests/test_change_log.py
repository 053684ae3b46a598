"""The log of changes: small saves append to it, opening repeats it, and no writer overwrites what another saved."""

import copy
import itertools
import os
import shutil
import struct
import zlib

import pytest
from exact_index import assert_same, built
from faults import contents, damage, every

import logt
from logt.errors import ConflictError, CorruptIndexError, InvalidInputError
from logt.storage import changes, store


@pytest.fixture(scope="module")
def whole(tmp_path_factory, vectors):
    """A saved index of 30 vectors."""
    index = built(vectors(30, 8))
    folder = tmp_path_factory.mktemp("whole") / "index"
    index.save(folder)
    return folder


def log_of(path):
    (log,) = path.glob("changes-*.log")
    return log


def three_saves(path, vectors):
    """Save an add, a removal and an upsert; return the sets of ids after each save and the lengths of the log."""
    states, ends = [set(range(30))], [0]
    with logt.open(path, mode="a") as index:
        for change in (
            lambda: index.add(vectors(4, 8, seed=1)),
            lambda: index.remove([2, 31]),
            lambda: index.upsert(vectors(2, 8, seed=2), [5, 70]),
        ):
            change()
            index.save()
            states.append(set(index.ids.tolist()))
            ends.append(log_of(path).stat().st_size)
    return states, ends


def test_a_small_save_appends_to_the_log_and_touches_no_other_file(saved, vectors):
    before = contents(saved)
    with logt.open(saved, mode="a") as index:
        index.add(vectors(3, 8, seed=1))
        index.save()
        once = contents(saved)
        index.save()  # there is nothing to save
        assert contents(saved) == once
        index.remove([1])
        index.save()
    after = contents(saved)
    (log,) = after.keys() - before.keys()
    assert {name: data for name, data in after.items() if name != log} == before
    assert after[log].startswith(once[log])
    assert len(after[log]) > len(once[log])


@pytest.mark.parametrize("strings", [False, True])
def test_opening_repeats_the_log(saved, vectors, strings):
    def ids(*numbers):
        return [f"ü{n}/\udcff" for n in numbers] if strings else list(numbers)

    if strings:
        built(vectors(30, 8), ids=ids(*range(30))).save(saved, overwrite=True)
    with logt.open(saved, mode="a") as index:
        index.add(vectors(5, 8, seed=1), ids=ids(*range(30, 35)))
        index.save()
        index.upsert(vectors(2, 8, seed=2), ids(0, 99))
        index.remove(ids(7))
        index.save()
        opened, Q = logt.open(saved), vectors(6, 8, seed=3)
        assert opened.generation == index.generation
        assert set(opened.ids.tolist()) == set(ids(*range(7), *range(8, 35), 99))
        assert_same(opened.search(Q, 40), index.search(Q, 40))


def test_a_log_that_is_cut_off_anywhere_opens_at_the_last_complete_save(saved, vectors):
    states, ends = three_saves(saved, vectors)
    log = log_of(saved)
    data = log.read_bytes()
    near_ends = {end + more for end in ends for more in (-1, 0, 1)} & set(range(len(data) + 1))
    for length in sorted({*every(len(data), 37), *near_ends}):
        log.write_bytes(data[:length])
        saves = sum(end <= length for end in ends) - 1
        assert set(logt.open(saved).ids.tolist()) == states[saves]  # without a warning: a writer may be writing
    log.write_bytes(data[:-1])
    with pytest.warns(UserWarning, match=f"{ends[-1] - ends[-2] - 1:,} bytes"):
        index = logt.open(saved, mode="a")
    with index:
        index.add(vectors(1, 8, seed=4), ids=[500])
        index.save()
    assert set(logt.open(saved).ids.tolist()) == states[-2] | {500}


def test_every_flipped_byte_of_the_log_is_noticed(saved, vectors):
    """Before the last record as damage; the last one may be torn by a power failure, and is left out."""
    states, ends = three_saves(saved, vectors)
    log = log_of(saved)
    for at in sorted({*every(log.stat().st_size, 17), ends[-2] - 1, ends[-2]}):
        damage(log, at)
        if at < ends[-2]:
            with pytest.raises(CorruptIndexError, match="damaged"):
                logt.open(saved)
        else:
            with pytest.warns(UserWarning, match=f"{ends[-1] - ends[-2]:,} bytes"):
                assert set(logt.open(saved).ids.tolist()) == states[-2]
        damage(log, at)  # flips it back
    assert set(logt.open(saved).ids.tolist()) == states[-1]


@pytest.mark.parametrize("tail", [bytes, os.urandom, lambda size: b"LOGT" * (size // 4) + b"LOGT"[: size % 4]])
def test_what_a_power_failure_leaves_behind_the_log_is_dropped_with_a_warning(saved, vectors, tail):
    states, ends = three_saves(saved, vectors)
    log = log_of(saved)
    data = log.read_bytes()
    for length, size in itertools.product((0, ends[1], ends[-1]), (24, 56, 4096)):
        log.write_bytes(data[:length] + tail(size))
        saves = ends.index(length)
        with pytest.warns(UserWarning, match=f"{size:,} bytes"):
            reader = logt.open(saved)
        assert set(reader.ids.tolist()) == states[saves]
        with pytest.warns(UserWarning, match=f"{size:,} bytes"):
            index = logt.open(saved, mode="a")
        with index:
            index.add(vectors(1, 8, seed=4), ids=[500])
            index.save()
        assert reader.refresh()
        assert set(logt.open(saved).ids.tolist()) == set(reader.ids.tolist()) == states[saves] | {500}


def test_a_last_record_whose_blocks_were_not_written_is_dropped_with_a_warning(saved, vectors):
    """The file has its length, but some blocks of the last record are zero."""
    states, ends = three_saves(saved, vectors)
    log = log_of(saved)
    data = log.read_bytes()
    for start in sorted({*every(ends[-1] - ends[-2], 41)}):
        log.write_bytes(data[: ends[-2] + start] + bytes(len(data) - ends[-2] - start))
        with pytest.warns(UserWarning, match="did not finish"):
            assert set(logt.open(saved).ids.tolist()) == states[-2]


@pytest.fixture
def planted(saved, vectors):
    """Records of string ids that are headers of records, or are alike; return where the last one starts."""
    heads = (struct.pack("<4sQQ", b"LOGT", 5, n) for n in itertools.count())
    records = (head + struct.pack("<I", zlib.crc32(head)) for head in heads)
    planted = next(record for record in records if record.decode(errors="ignore").encode() == record).decode()
    built(vectors(30, 8), ids=[f"v{n}" for n in range(30)]).save(saved, overwrite=True)
    with logt.open(saved, mode="a") as index:
        for step, string in enumerate((planted, "LOGLOG", "LOG\0T", planted * 2)):
            last = sum(log.stat().st_size for log in saved.glob("changes-*.log"))
            index.add(vectors(1, 8, seed=step), ids=[string])
            index.save()
            assert string in logt.open(saved)
    return last


def test_an_id_that_is_the_header_of_a_record_is_no_record(saved, planted):
    data = log_of(saved).read_bytes()
    for end in range(planted + 60, len(data), 17):
        log_of(saved).write_bytes(data[:end])
        assert len(logt.open(saved)) == 33
        log_of(saved).write_bytes(data[:end] + bytes(len(data) - end))
        with pytest.warns(UserWarning, match="did not finish"):
            assert len(logt.open(saved)) == 33


@pytest.mark.parametrize("lost", [1, 4, 20, 24, 56, 200])
def test_a_torn_record_whose_header_is_lost_is_dropped_whatever_its_ids_are(saved, planted, lost):
    data = log_of(saved).read_bytes()
    log_of(saved).write_bytes(data[:planted] + bytes(lost) + data[planted + lost :])
    with pytest.warns(UserWarning, match="did not finish"):
        assert len(logt.open(saved)) == 33
    log_of(saved).write_bytes(bytes(lost) + data[lost:])
    with pytest.raises(CorruptIndexError, match="damaged at byte 0"):
        logt.open(saved)


def test_large_changes_and_a_long_log_become_segments(saved, vectors, monkeypatch):
    monkeypatch.setattr(changes, "MAX_LOG", 2000)
    with logt.open(saved, mode="a") as index:
        for n in range(8):
            index.add(vectors(2, 8, seed=n))
            index.save()
            assert all(log.stat().st_size < 3000 for log in saved.glob("changes-*.log"))
        monkeypatch.setattr(changes, "MAX_PENDING", 100)
        index.add(vectors(20, 8, seed=50))
        index.save()
        assert not list(saved.glob("changes-*.log"))
        assert logt.open(saved).ids.tolist() == index.ids.tolist()


def test_records_of_another_index_are_not_used(saved, vectors, tmp_path):
    other = tmp_path / "other"
    index = copy.copy(logt.open(saved))
    index.remove([0])
    index.save(other)
    for folder in (saved, other):
        with logt.open(folder, mode="a") as index:
            for n in range(2):
                index.add(vectors(2, 8, seed=1), ids=[100 + n, 200 + n])
                index.save()
    data = log_of(other).read_bytes()
    log_of(saved).write_bytes(data)
    with pytest.raises(CorruptIndexError):
        logt.open(saved)
    log_of(saved).write_bytes(data[: len(data) // 2])
    with pytest.warns(UserWarning, match="did not finish"):
        assert len(logt.open(saved)) == 30


def test_a_reader_follows_the_log(saved, vectors):
    reader = logt.open(saved)
    with logt.open(saved, mode="a") as index:
        for n in range(3):
            index.add(vectors(2, 8, seed=n))
            index.remove([n])
            index.save()
            assert reader.refresh()
            assert not reader.refresh()
            assert (reader.generation, set(reader.ids.tolist())) == (index.generation, set(index.ids.tolist()))
        index.compact()
        index.save()
        assert reader.refresh()
        assert set(reader.ids.tolist()) == set(index.ids.tolist())


def test_a_reader_that_is_overtaken_while_it_opens_reads_the_new_state(saved, vectors, monkeypatch):
    real = store.read_log

    def overtaken(*given, **options):
        monkeypatch.undo()
        with logt.open(saved, mode="a") as writer:
            writer.add(vectors(3, 8, seed=1))
            writer.compact()
            writer.save()
        return real(*given, **options)

    monkeypatch.setattr(store, "read_log", overtaken)
    assert len(logt.open(saved)) == 33


def test_a_log_has_a_limited_number_of_changes(saved, vectors, monkeypatch):
    """Opening repeats them one by one."""
    monkeypatch.setattr(changes, "MAX_CHANGES", 3)
    counts = []
    with logt.open(saved, mode="a") as index:
        for n in range(8):
            index.add(vectors(1, 8, seed=n))
            index.save()
            counts.append(logt.open(saved)._store.position.changes)
            assert index._store.position.changes == counts[-1]
        for n in range(4):
            index.remove([n])
        index.save()
        assert not list(saved.glob("changes-*.log"))
        assert logt.open(saved).ids.tolist() == index.ids.tolist()
    assert counts == [1, 2, 3, 0] * 2


@pytest.mark.parametrize("size", [1, 2])
def test_a_reader_goes_back_if_a_record_could_not_be_flushed(saved, vectors, monkeypatch, size):
    """A reader may see a record that is not flushed yet. If flushing fails, the record is removed or replaced."""
    reader, real = logt.open(saved), os.fsync
    with logt.open(saved, mode="a") as index:
        index.add(vectors(1, 8, seed=1), ids=[100])

        def failing(file):
            assert reader.refresh()
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "fsync", failing)
        with pytest.raises(OSError, match="Input/output"):
            index.save()
        monkeypatch.setattr(os, "fsync", real)
        assert 100 in reader
        assert 100 not in logt.open(saved)
        index.remove([100])
        index._pending.restart()
        index.add(vectors(size, 8, seed=2), ids=range(200, 200 + size))
        index.save()
        assert reader.refresh()
        assert sorted(reader.ids) == sorted(index.ids) == [*range(30), *range(200, 200 + size)]
        assert not reader.refresh()


def test_a_refresh_that_failed_is_repeated(saved, vectors, monkeypatch):
    reader = logt.open(saved)
    with logt.open(saved, mode="a") as index:
        for rewrite in (False, True):
            index.add(vectors(3, 8, seed=1))
            if rewrite:
                index.compact()
            index.save()
            for name in ("_repeated", "_from_store"):
                monkeypatch.setattr(type(reader), name, interrupted)
            with pytest.raises(MemoryError):
                reader.refresh()
            monkeypatch.undo()
            assert reader.refresh()
            assert sorted(reader.ids) == sorted(index.ids)


def interrupted(*args):
    raise MemoryError


@pytest.mark.parametrize("rewrite", [False, True])
def test_a_writer_does_not_overwrite_what_another_one_saved(saved, vectors, rewrite):
    first = logt.open(saved, mode="a")
    (saved / ".lock").unlink()  # only then can there be a second writer
    with logt.open(saved, mode="a") as second:
        second.add(vectors(3, 8, seed=1), ids=[100, 101, 102])
        second.compact()
        second.save()
    before = contents(saved)
    first.add(vectors(1, 8, seed=2))
    if rewrite:
        first.compact()
    with pytest.raises(ConflictError, match="open it again"):
        first.save()
    assert contents(saved) == before
    first.save(saved.parent / "elsewhere")
    assert len(logt.open(saved.parent / "elsewhere")) == 31


@pytest.mark.parametrize("rewrite", [False, True])
def test_a_second_save_to_a_path_does_not_replace_what_another_writer_saved(whole, tmp_path, vectors, rewrite):
    index, path = copy.copy(logt.open(whole)), tmp_path / "new"
    index.save(path)
    index.add(vectors(1, 8, seed=1))
    index.save(path)  # there was no other writer
    with logt.open(path, mode="a") as other:
        other.add(vectors(3, 8, seed=2), ids=[100, 101, 102])
        if rewrite:
            other.compact()
        other.save()
    before = contents(path)
    for _ in range(2):
        with pytest.raises(ConflictError, match="saved there"):
            index.save(path)
    assert contents(path) == before
    with pytest.raises(InvalidInputError, match="another index"):
        copy.copy(index).save(path)  # it was never saved there
    assert contents(path) == before
    copy.copy(index).save(path, overwrite=True)
    assert len(logt.open(path)) == 31


def test_a_second_save_to_a_path_that_is_empty_or_damaged_writes_it_again(whole, tmp_path):
    index, path = copy.copy(logt.open(whole)), tmp_path / "new"
    index.save(path)
    shutil.rmtree(path)
    index.save(path)
    (path / "manifest.json").write_text("{")
    index.save(path)
    assert len(logt.open(path)) == 30


@pytest.mark.parametrize("moved", [True, False])
def test_a_folder_that_was_replaced_is_not_written_to(saved, vectors, moved):
    writer = logt.open(saved, mode="a")
    if moved:
        saved.rename(saved.parent / "moved")
        shutil.copytree(saved.parent / "moved", saved)
    else:
        logt.Index(8).save(saved.parent / "other")
        shutil.copy(saved.parent / "other" / "manifest.json", saved)
    before = contents(saved)
    writer.add(vectors(1, 8, seed=1))
    with pytest.raises(ConflictError, match="was replaced" if moved else "by another"):
        writer.save()
    assert contents(saved) == before


@pytest.mark.parametrize("size", [None, 0, 100])
def test_a_log_whose_end_is_lost_is_replaced_by_the_next_save(saved, vectors, size):
    with logt.open(saved, "a") as writer:
        writer.add(vectors(2, 8, seed=5))
        writer.save()
        log_of(saved).unlink() if size is None else os.truncate(log_of(saved), size)
        writer.add(vectors(2, 8, seed=6))
        writer.save()
        expected = writer.reconstruct(writer.ids).tolist()
    opened = logt.open(saved)
    assert opened.reconstruct(opened.ids).tolist() == expected

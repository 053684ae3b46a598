"""An index by URL, on a server that speaks the protocol of S3."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from exact_index import assert_same, built
from faults import TORTURE

import logt
from logt import _index_base
from logt.errors import ConflictError, CorruptIndexError, InvalidInputError, MissingExtraError
from logt.storage import cache, locations

DIM = 16


@pytest.fixture(scope="module")
def made(vectors):
    return built(vectors(400, DIM), segment_size=150)


def objects(url):
    import s3fs

    return {name.rsplit("/", 1)[1] for name in s3fs.S3FileSystem().ls(url.removeprefix("s3://"), refresh=True)}


def test_an_index_is_saved_to_and_opened_from_a_url(bucket, made, vectors):
    made.save(f"{bucket}/index")
    index = logt.open(f"{bucket}/index")
    Q = vectors(20, DIM, seed=1)
    assert_same(index.search(Q, 5), made.search(Q, 5))
    assert index.generation == 1
    assert "manifest-000000000001.json" in objects(f"{bucket}/index")
    with pytest.raises(logt.ReadOnlyError, match="s3://"):
        index.remove([1])
    with pytest.raises(FileNotFoundError, match="holds no index"):
        logt.open(f"{bucket}/other")


def test_a_new_generation_replaces_the_old_one_and_readers_move_on(bucket, made, vectors):
    url = f"{bucket}/index"
    made.save(url)
    reader = logt.open(url)
    before = objects(url)
    with logt.open(url, mode="a") as writer:
        writer.remove([3])
        writer.save()
        assert writer.generation == 2
        writer.save()
        assert writer.generation == 2  # nothing has changed
        changed = objects(url) - before
        assert {name.split("-")[0] for name in changed} == {"removed", "manifest"}  # nothing else is written again
        assert 3 in reader
        assert reader.refresh()
        assert 3 not in reader
        assert not reader.refresh()
        writer.add(vectors(1, DIM, seed=9))
        writer.save()
    sizes = [len(locations.RemoteLocation(url).read(f"manifest-{number:012d}.json")) for number in (1, 2, 3)]
    assert sizes[0] < 50 < min(sizes[1:])  # the last two are kept, and the name of the first


def test_a_save_does_not_replace_what_another_writer_saved(bucket, made):
    url = f"{bucket}/index"
    made.save(url)
    made.save(url)
    with logt.open(url, mode="a") as one, logt.open(url, mode="a") as two:
        one.remove([1])
        two.remove([2])
        one.save()
        before = objects(url)
        for save in (two.save, lambda: made.save(url)):
            with pytest.raises(ConflictError, match="written by another"):
                save()
        assert objects(url) == before
    assert 2 in logt.open(url)
    assert 1 not in logt.open(url)


def test_writers_at_the_same_moment_never_overwrite_each_other(bucket, made):
    url = f"{bucket}/index"
    made.save(url)

    def change(number):
        with logt.open(url, mode="a") as writer:
            writer.remove([number])
            barrier.wait(60)
            try:
                writer.save()
                return number
            except ConflictError:
                return None

    barrier = threading.Barrier(4)
    with ThreadPoolExecutor(4) as pool:
        (winner,) = {*pool.map(change, range(4))} - {None}
    assert logt.open(url).generation == 2
    assert winner not in logt.open(url)


WRITER = """
import sys, logt
url, saves, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
done = 0
while done < saves:
    with logt.open(url, mode="a") as index:
        try:
            while done < saves:  # the same removals come again: so do the bytes of files
                if number in index:
                    index.remove([number])
                else:
                    index.upsert([[1.0] * 16], [number])
                index.save()
                done += 1
        except logt.ConflictError:
            pass
"""


def test_no_manifest_names_a_file_that_another_writer_removed(bucket, made, monkeypatch):
    url, saves = f"{bucket}/index", 250 if TORTURE else 3
    made.save(url)
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, url, str(saves), str(number)], stderr=subprocess.PIPE)
        for number in (1, 2)
    ]
    while any(writer.poll() is None for writer in writers):
        assert len(logt.open(url)) >= 398  # not CorruptIndexError
    for writer in writers:
        assert (writer.wait(), writer.stderr.read().decode()) == (0, "")
        writer.stderr.close()
    assert logt.open(url).generation == 2 * saves + 1
    monkeypatch.setattr(locations, "ORPHAN_SECONDS", -1)  # then go the files of saves that were overtaken, too
    with logt.open(url, mode="a") as index:
        index.remove([3])
        index.save()
    names, location = objects(url), locations.RemoteLocation(url)
    manifests = b"".join(location.read(name) for name in names if name.startswith("manifest-"))
    assert [name for name in names if not name.startswith("manifest-") and name.encode() not in manifests] == []


def test_a_file_that_is_gone_is_noticed_before_a_manifest_names_it(bucket, made, vectors):
    import s3fs

    url = f"{bucket}/index"
    made.save(url)
    with logt.open(url, mode="a") as writer:
        name = next(name for name in objects(url) if name.startswith("segment-"))
        s3fs.S3FileSystem().rm_file(f"{url}/{name}")
        writer.add(vectors(1, DIM, seed=9))
        before = objects(url)
        with pytest.raises(ConflictError, match=rf"has removed {name} and 0 other files"):
            writer.save()
        assert objects(url) == before
        writer.save()  # writes all files again
    assert len(logt.open(url)) == 401


def test_a_manifest_that_is_sent_twice_is_no_conflict(bucket, made, monkeypatch):
    url, create = f"{bucket}/index", locations.RemoteLocation.create

    def sent_twice(self, name, data):
        create(self, name, data)
        create(self, name, data)

    monkeypatch.setattr(locations.RemoteLocation, "create", sent_twice)
    made.save(url)
    assert len(logt.open(url)) == 400


def test_a_save_that_was_overtaken_twice_is_a_conflict(bucket, made, monkeypatch):
    url, create = f"{bucket}/index", locations.RemoteLocation.create
    made.save(url)

    def overtaken(self, name, data):
        patch.undo()
        for number in (5, 6, 7):
            with logt.open(url, mode="a") as other:
                other.remove([number])
                other.save()
        create(self, name, data)  # the manifest of this name is superseded by now

    with logt.open(url, mode="a") as writer, monkeypatch.context() as patch:
        writer.remove([1])
        patch.setattr(locations.RemoteLocation, "create", overtaken)
        with pytest.raises(ConflictError, match="written by another"):
            writer.save()
    assert len(logt.open(url)) == 397


def test_files_of_a_save_that_is_not_committed_stay(bucket, made, monkeypatch):
    """Even if a generation before had a file of the same name, as a repeated build has."""
    url = f"{bucket}/index"
    made.save(url)
    location = locations.RemoteLocation(url)
    name = next(name for name in objects(url) if name.startswith("segment-"))
    data = location.read(name)
    with logt.open(url, mode="a") as writer:
        writer.compact(relearn=True)
        writer.save()
        time.sleep(1.1)  # the store counts seconds
        location.write(name, data)
        writer.remove([3])
        writer.save()  # removes what only the first generation has
    assert name in objects(url)
    monkeypatch.setattr(locations, "ORPHAN_SECONDS", -1)
    with logt.open(url, mode="a") as writer:
        writer.remove([1])
        writer.save()
    assert name not in objects(url)


def test_other_files_stay_and_those_that_were_replaced_go(bucket, made, monkeypatch):
    url, waiting = f"{bucket}/index", f"segment-{'0' * 16}.safetensors"
    made.save(url)
    first = objects(url)
    locations.RemoteLocation(url).write(waiting, b"of a save that takes longer than others")
    locations.RemoteLocation(url).write("notes.txt", b"m" * 44)  # as long as what supersedes a manifest
    with logt.open(url, mode="a") as writer:
        writer.compact(relearn=True)
        for number in (1, 2):
            writer.remove([number])
            writer.save()
        assert first & objects(url) == {"manifest-000000000001.json"}  # its name only
        assert {waiting, "notes.txt"} <= objects(url)
        monkeypatch.setattr(locations, "ORPHAN_SECONDS", -1)
        writer.remove([3])
        writer.save()
    assert not {waiting, "manifest-000000000001.json"} & objects(url)
    assert "notes.txt" in objects(url)


def test_a_damaged_manifest_of_an_older_generation_hinders_nobody(bucket, made, monkeypatch):
    url, newest = f"{bucket}/index", locations.RemoteLocation.newest_generation
    made.save(url)
    with logt.open(url, mode="a") as writer:
        for number in (1, 2):
            locations.RemoteLocation(url).write("manifest-000000000000.json", b"damaged")
            writer.remove([number])
            writer.save()
    found = iter([1])  # as it was listed before two commits
    monkeypatch.setattr(locations.RemoteLocation, "newest_generation", lambda self: next(found, None) or newest(self))
    assert len(logt.open(url)) == 398


def test_a_store_without_conditional_writes_checks_first(bucket):
    location = locations.RemoteLocation(f"{bucket}/index")
    pipe_file = location._files.pipe_file

    def without_modes(path, data, mode="overwrite"):
        if mode == "create":
            raise NotImplementedError
        pipe_file(path, data)

    location._files.pipe_file = without_modes
    location.create("a", b"first")
    with pytest.raises(FileExistsError):
        location.create("a", b"second")
    assert (location.read("a"), location.size("a"), location.size("b")) == (b"first", 5, None)
    location.write("a", b"longer than before")
    assert (location.size("a"), location.nbytes) == (18, 18)


def test_files_that_another_process_writes_are_seen_at_once(bucket):
    import s3fs

    other, location = s3fs.S3FileSystem(skip_instance_cache=True), locations.RemoteLocation(f"{bucket}/index")
    location.write("a", b"first")
    assert location.names() == ["a"]  # file systems keep what they have listed
    other.pipe_file(f"{bucket}/index/b", b"second")
    assert sorted(location.names()) == ["a", "b"]
    other.pipe_file(f"{bucket}/index/a", b"longer than before")
    assert location.size("a") == 18


def test_times_of_any_zone_are_compared(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    utc, japan = datetime(2020, 1, 1, tzinfo=UTC), timezone(timedelta(hours=9))
    for about in ({"LastModified": utc}, {"mtime": datetime(2020, 1, 1)}, {"created": utc.astimezone(japan)}):
        assert locations._written(about) == utc.timestamp()
    assert locations._written({"created": "unknown"}) == 0
    monkeypatch.undo()
    time.tzset()


def test_the_command_verifies_an_index_at_a_url(bucket, made, run_logt):
    import s3fs

    url = f"{bucket}/index"
    made.save(url)
    assert "OK" in run_logt("verify", url)
    name = next(name for name in sorted(objects(url)) if name.startswith("segment-"))
    data = s3fs.S3FileSystem().cat_file(f"{url}/{name}")
    s3fs.S3FileSystem().pipe_file(f"{url}/{name}", data[:-1] + b"\xff")  # the cache still has it
    assert f"{name} is damaged" in run_logt("verify", url, ok=False)


def test_a_damaged_object_is_reported(bucket, made):
    import s3fs

    url = f"{bucket}/index"
    made.save(url)
    name = next(name for name in sorted(objects(url)) if name.startswith("segment-"))
    files = s3fs.S3FileSystem()
    data = bytearray(files.cat_file(f"{url}/{name}"))
    data[len(data) // 2] ^= 1
    files.pipe_file(f"{url}/{name}", bytes(data))
    with pytest.raises(CorruptIndexError, match=name):
        logt.open(url)
    files.rm_file(f"{url}/{name}")
    with pytest.raises(CorruptIndexError, match="missing"):
        logt.open(url)


def test_the_cache_stays_within_its_limit_and_a_damaged_file_is_fetched_again(bucket, made, tmp_path, monkeypatch):
    def files():
        return list((tmp_path / "cache").iterdir())

    url, expected = f"{bucket}/index", made.search(np.ones(DIM), 5).ids
    made.save(url)
    index = logt.open(url)
    half = sum(path.stat().st_size for path in files()) / 2
    monkeypatch.setenv("LOGT_CACHE_GB", str(half / 1e9))
    cache.make_room(tmp_path / "cache", 0)
    assert 0 < sum(path.stat().st_size for path in files()) <= half
    np.testing.assert_array_equal(index.search(np.ones(DIM), 5).ids, expected)  # what is mapped stays readable
    monkeypatch.delenv("LOGT_CACHE_GB")
    logt.open(url)
    monkeypatch.setattr(_index_base, "AT_ONCE", 0)  # large files are fetched again too
    for path in files():
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.unlink()
        path.write_bytes(data)
    np.testing.assert_array_equal(logt.open(url).search(np.ones(DIM), 5).ids, expected)
    written = f".{files()[0].name}.1.tmp"
    (tmp_path / "cache" / written).write_bytes(b"so far")
    monkeypatch.setenv("LOGT_CACHE_GB", "0")
    cache.make_room(tmp_path / "cache", 1)
    assert [path.name for path in files()] == [written]  # it is being written
    monkeypatch.setenv("LOGT_CACHE_GB", "much")
    with pytest.raises(InvalidInputError, match="LOGT_CACHE_GB"):
        cache.cache_limit()


def test_workers_build_from_urls_to_a_url(bucket, tmp_path, vectors):
    import s3fs

    import logt.distributed

    files = s3fs.S3FileSystem()
    X = vectors(2400, DIM)
    np.save(tmp_path / "a.npy", X[:1500])
    with open(tmp_path / "b.fbin", "wb") as file:
        np.array([900, DIM], "<u4").tofile(file)
        X[1500:].tofile(file)
    for name in ("a.npy", "b.fbin"):
        files.put_file(tmp_path / name, f"{bucket}/{name}")
    sources = [f"{bucket}/a.npy", f"{bucket}/b.fbin"]
    done = logt.distributed.build(sources, f"{bucket}/index", workers=1, segment_size=1300, link=5)
    assert (done.segments, done.linked) == (2, 2400)
    logt.distributed.build(
        [tmp_path / "a.npy", tmp_path / "b.fbin"], tmp_path / "index", workers=1, segment_size=1300, link=5
    )
    arrays = {path.name for path in (tmp_path / "index").glob("*.safetensors")}
    assert arrays <= objects(f"{bucket}/index")
    assert not [name for name in objects(f"{bucket}/index") if name.startswith("links-")]
    assert logt.open(f"{bucket}/index").report()["linked"] == 2400
    with pytest.raises(InvalidInputError, match="is an index"):
        logt.distributed.build(sources, f"{bucket}/index", workers=1)


def test_urls_of_an_unknown_kind_and_missing_packages_are_reported(monkeypatch):
    with pytest.raises(InvalidInputError, match="unknown://bucket/index cannot be opened"):
        logt.open("unknown://bucket/index")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtraError, match=r"s3://bucket/index needs more packages: pip install .*\[cloud\]"):
        logt.open("s3://bucket/index")


def test_urls_of_files_are_local_paths(tmp_path, made):
    assert not any(map(locations.is_url, (tmp_path, "index", f"file://{tmp_path}", "a:b")))
    assert all(map(locations.is_url, ("s3://bucket/index", "memory://index")))
    made.save(f"file://{tmp_path}/index")
    assert len(logt.open(f"file://{tmp_path}/index")) == len(logt.open(tmp_path / "index")) == 400
    for wrong in ("", "file://", "a\0b"):
        with pytest.raises(InvalidInputError, match="is not a path"):
            logt.open(wrong)
    for wrong in (None, 5, b"index"):
        with pytest.raises(InvalidInputError, match="a path must be a string or a Path"):
            logt.open(wrong)

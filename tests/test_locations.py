"""Locations by themselves: what a commit to a URL removes, and which folders are those of an index."""

import pytest

from logt.errors import InvalidInputError
from logt.storage import locations
from logt.storage.locations import ORPHAN_SECONDS, LocalLocation, RemoteLocation
from logt.storage.manifest import state_of

NAMES = [f"segment-{number:016x}.safetensors" for number in range(7)]
MANIFESTS = [f"manifest-{number:012d}.json" for number in range(5)]
SETTINGS = dict.fromkeys(("dim", "metric", "seed", "segment_size", "next_id"), 1)


def manifest(generation, *names):
    files = {name: {"bytes": 1, "checksum": "0" * 64} for name in names}
    parts = {"settings": SETTINGS, "models": {}, "segments": [], "files": files}
    contents = {"format": 1, "generation": generation, **parts}
    return {**contents, "state": state_of(contents)}


@pytest.fixture
def location(tmp_path):
    """A place in memory with files of indexes and of others."""
    pytest.importorskip("fsspec")
    location = RemoteLocation(f"memory://{tmp_path.name}/index")
    for name in NAMES:
        location.write(name, b"1")
    location.write("notes.txt", b"m" * 44)  # as long as what supersedes a manifest
    location.write("manifest.json", b"of another program")
    location.write(MANIFESTS[0], b"damaged")
    return location


def test_a_commit_removes_what_nobody_needs_and_nothing_else(location, monkeypatch):
    times = dict.fromkeys(NAMES, 0.0)

    def written(about):
        return times.get(about["name"].rsplit("/", 1)[-1], 0.0) if about else 0.0

    monkeypatch.setattr(locations, "_written", written)
    others = {"notes.txt", "manifest.json", MANIFESTS[0]}
    first = manifest(1, *NAMES[:3])
    location.commit(first)
    location.commit(manifest(2, NAMES[2]))  # readers may still have generation 1
    assert set(location.names()) == {*NAMES, *MANIFESTS[:3], *others}

    times |= {NAMES[0]: ORPHAN_SECONDS, MANIFESTS[2]: ORPHAN_SECONDS, MANIFESTS[3]: 2 * ORPHAN_SECONDS}
    times[NAMES[1]] = ORPHAN_SECONDS + 1  # written again since, maybe for a save that is not committed yet
    times |= {NAMES[4]: ORPHAN_SECONDS - 1, NAMES[5]: ORPHAN_SECONDS, NAMES[6]: 2 * ORPHAN_SECONDS}
    location.commit(manifest(3, NAMES[3]))
    assert set(location.names()) == {*NAMES[1:4], *NAMES[5:], *MANIFESTS[:4], *others}
    assert location.read(MANIFESTS[1]) == f"superseded {first['state']}\n".encode()
    assert location.read_manifest()["generation"] == 3

    times[MANIFESTS[4]] = 2 * ORPHAN_SECONDS + 2
    location.commit(manifest(4, NAMES[3]))  # the name of manifest 1 is free again: no save can be as old
    assert set(location.names()) == {NAMES[3], NAMES[6], *MANIFESTS[2:], *others}


def test_a_manifest_that_another_writer_removes_meanwhile_hinders_nobody(location, monkeypatch):
    listed = RemoteLocation._generations
    monkeypatch.setattr(RemoteLocation, "_generations", lambda self: [1, *listed(self)])
    location.commit(manifest(2, NAMES[0]))
    assert location.newest_generation() == 2


def test_a_place_with_manifests_of_other_programs_holds_no_index(location):
    assert not location.holds_index()
    with pytest.raises(FileNotFoundError, match="no manifest"):
        location.read_manifest()


def test_a_first_save_that_was_killed_is_no_index(tmp_path):
    location = LocalLocation(tmp_path / "new" / "index")
    for _ in range(2):
        with location.lock(create=True):
            assert not location.holds_index()
            location.write(NAMES[0], b"")
    (location.folder / ".unfinished").unlink()
    assert location.holds_index()  # a damaged one


@pytest.mark.parametrize("text", [None, b"{}", b'{"generation": 1}', b'{"segments": []}'])
def test_a_folder_with_the_manifest_of_another_program_is_no_index(tmp_path, text):
    path = tmp_path / "manifest.json"
    path.mkdir() if text is None else path.write_bytes(text)
    with pytest.raises(InvalidInputError, match="is not an index"):
        LocalLocation(tmp_path).lock(create=True)
    assert list(tmp_path.iterdir()) == [path]

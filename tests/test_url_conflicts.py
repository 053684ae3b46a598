"""Saves to a URL whose answers are lost or come late: no manifest that was stored loses its files."""

import pytest
from exact_index import built

import logt
from logt.errors import ConflictError, CorruptIndexError, InvalidInputError
from logt.storage import locations
from logt.storage.locations import RemoteLocation

DIM = 16


@pytest.fixture
def url(bucket, vectors):
    """An index of 400 vectors."""
    built(vectors(400, DIM), segment_size=150).save(f"{bucket}/index")
    return f"{bucket}/index"


def remove(url, *numbers):
    """Save a removal for each of some ids."""
    with logt.open(url, mode="a") as writer:
        for number in numbers:
            writer.remove([number])
            writer.save()


def ids(url):
    """The ids of an index all of whose files are there, also those that the cache has."""
    RemoteLocation(url).check_files()
    return set(logt.open(url).ids.tolist())


def array_files(url):
    return {name for name in RemoteLocation(url).names() if name.endswith(".safetensors")}


def named_files(url, *generations):
    location = RemoteLocation(url)
    manifests = [locations.parse_manifest(location.read(f"manifest-{n:012d}.json"), url) for n in generations]
    return {name for manifest in manifests for name in manifest["files"]}


def test_a_save_whose_answer_was_lost_is_kept_by_those_that_follow(url, vectors, monkeypatch):
    create = RemoteLocation.create

    def sent_again(self, name, data):
        patch.undo()
        create(self, name, data)
        remove(url, 5, 6)  # the manifest is superseded after that
        create(self, name, data)

    with logt.open(url, mode="a") as writer, monkeypatch.context() as patch:
        writer.add(vectors(3, DIM, seed=1))
        patch.setattr(RemoteLocation, "create", sent_again)
        writer.save()
        writer.remove([1])
        with pytest.raises(ConflictError, match="written by another"):
            writer.save()
    assert ids(url) == {*range(403)} - {5, 6}


def test_a_save_of_which_nothing_is_known_removes_nothing(url, vectors, monkeypatch):
    create, name = RemoteLocation.create, "manifest-000000000002.json"

    def forgotten(self, name, data):
        patch.undo()
        create(self, name, data)
        remove(url, 5)
        self.write(name, b"damaged")
        create(self, name, data)

    with logt.open(url, mode="a") as writer, monkeypatch.context() as patch:
        writer.add(vectors(3, DIM, seed=1))
        patch.setattr(RemoteLocation, "create", forgotten)
        with pytest.raises(ConflictError, match="it is not known whether this save is stored"):
            writer.save()
    assert RemoteLocation(url).read(name) == b"damaged"
    assert ids(url) == {*range(403)} - {5}


def test_an_index_of_which_only_superseded_manifests_are_left_is_damaged(url):
    remove(url, 1, 2)
    for generation in (2, 3):
        RemoteLocation(url).remove(f"manifest-{generation:012d}.json")
    with pytest.raises(CorruptIndexError, match="no newer manifest"):
        logt.open(url)
    with pytest.raises(InvalidInputError, match="is another index"):
        logt.Index(DIM).save(url)
    logt.Index(DIM).save(url, overwrite=True)
    assert logt.open(url).generation == 2


def test_a_manifest_that_arrives_late_keeps_its_files(url, vectors, monkeypatch):
    create, sent = RemoteLocation.create, []

    def lost(self, *manifest):
        sent.append(manifest)
        raise TimeoutError

    def late(self, name, data):
        create(self, *sent[0])
        create(self, name, data)

    with logt.open(url, mode="a") as writer:
        writer.add(vectors(4, DIM, seed=1))
        for fault, error in ((lost, TimeoutError), (late, ConflictError)):
            monkeypatch.setattr(RemoteLocation, "create", fault)
            with pytest.raises(error):
                writer.save()
            writer.remove([1])
    assert ids(url) == {*range(404)}
    assert array_files(url) == named_files(url, 1, 2)  # the second attempt has removed its own

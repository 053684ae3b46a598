"""Models that an index of photos names: they are loaded only if the user has passed them before."""

import json
import shutil
from dataclasses import replace
from functools import partial

import pytest

from logt.descriptors import Model
from logt.errors import InvalidInputError
from logt.photos import Photos, update
from logt.photos.manifest import PhotoManifest
from logt.server.photo_collection import open_collection


@pytest.fixture
def model(small, tmp_path):
    (tmp_path / "model").mkdir()
    return shutil.copy(small, tmp_path / "model" / "net.onnx")


def test_a_model_that_an_index_names_is_loaded_only_if_the_user_has_passed_it(album, small, tmp_path, monkeypatch):
    path = shutil.copy(small, album / "evil.onnx")
    update(album, model=path, relearn=True)
    config = tmp_path / "config of another user"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config))

    def forget_process():
        monkeypatch.setattr("logt.photos.manifest._of_this_process", set())

    forget_process()
    with monkeypatch.context() as patch:
        patch.setattr("logt.photos.manifest.fingerprint", lambda path: pytest.fail("it was opened"))
        for use in (Photos.open, update, partial(update, relearn=True), open_collection):
            with pytest.raises(
                InvalidInputError, match=rf"have not used .*: if you trust it, pass it once, .* {path}"
            ):
                use(album)
    assert not config.exists()
    Photos.open(album, model=path)
    forget_process()
    assert Photos.open(album).search(album / "a.png", 1)[0][0] == "a.png"
    path.rename(album / "moved.onnx")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        Photos.open(album)
    Photos.open(album, model=album / "moved.onnx")
    path.write_bytes(b"\x08\x09")
    with pytest.raises(InvalidInputError, match="different model"):
        Photos.open(album)


def test_a_list_of_models_that_cannot_be_written_does_not_matter_to_this_process(album, model, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    update(album, model=model, relearn=True)
    assert Photos.open(album).search(album / "a.png", 1)[0][0] == "a.png"


@pytest.mark.parametrize("is_given", [False, True])
def test_an_index_names_no_other_text_encoder_for_a_model(album, model, is_given):
    update(album, model=model, relearn=True)
    for name in ("evil.onnx", "evil.json"):
        (album / name).write_bytes(b"anything")
    manifest = PhotoManifest.read(album / ".logt")
    evil = {"text_model": "../album/evil.onnx", "tokenizer": "../album/evil.json"}
    replace(manifest, settings={**manifest.settings, **evil}).write(album / ".logt")
    message = "indexed with text_model = .*evil" if is_given else "have not used on this computer yet"
    with pytest.raises(InvalidInputError, match=message):
        Photos.open(album, model=model if is_given else None)


def test_the_text_encoder_in_the_settings_of_a_model_is_kept(album, model, tmp_path):
    for name in ("words.onnx", "words.json"):
        (tmp_path / name).write_bytes(b"\x08\x09")  # an empty model
    words = {"text_model": "../words.onnx", "tokenizer": "../words.json"}
    model.with_suffix(".json").write_text(json.dumps({**words, "fit": "crop"}))
    update(album, model=model, relearn=True)
    model.with_suffix(".json").write_text(json.dumps(words))  # the other settings are those of the index
    for given in (None, model):
        opened = Photos.open(album, model=given)._model
        assert (opened.text.model, opened.settings["fit"]) == (tmp_path / "words.onnx", "crop")


def test_a_model_that_is_no_longer_included_has_to_be_passed(album, small):
    manifest = PhotoManifest.read(album / ".logt")
    replace(manifest, model="forgotten", model_path=None).write(album / ".logt")
    with pytest.raises(InvalidInputError, match="the model forgotten, which this version of logt does not include"):
        Photos.open(album)
    assert Photos.open(album, model=small).search(album / "a.png", 1)[0][0] == "a.png"


def test_an_index_is_of_a_model_with_its_bytes_and_its_settings(album, small, network):
    manifest = PhotoManifest.read(album / ".logt")
    other = Model.load(
        network("other bytes", about='{"side": 64, "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}', seed=1)
    )
    assert other.settings == Model.load(small).settings
    for model, is_same in ((Model.load(small), True), (Model.load(small, side=96), False), (other, False)):
        assert manifest.is_of(model) == is_same
    with pytest.raises(InvalidInputError, match="is a different model"):
        Photos.open(album, model=other)


def test_models_are_remembered_in_the_home_folder_of_the_user(album, model, small, tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("logt.photos.manifest._of_this_process", set())
    another = shutil.copy(small, tmp_path / "another.onnx")
    for path in (model, another, model):
        Photos.open(album, model=path)
    lines = (tmp_path / ".config" / "logt" / "models").read_text().splitlines()
    assert [json.loads(line)[1] for line in lines] == [str(model), str(another)]

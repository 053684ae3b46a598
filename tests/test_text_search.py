"""Search by text with a small pair of encoders that the test trains: the right photos must come back."""

import hashlib
import json
import re
import shutil
import sys

import numpy as np
import pytest
from server_testing import API, error_message, open_client, result_ids, run_server

from logt.descriptors import Model, TextEncoder
from logt.descriptors.text import text_fingerprints
from logt.errors import InvalidInputError, MissingExtraError
from logt.index import Index
from logt.photos import Photos, update
from logt.photos.manifest import PhotoManifest
from logt.server.app import create_app
from logt.server.client import Client
from logt.server.photo_collection import open_collection
from logt.server.settings import Settings
from logt.storage.files import checksum

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("PIL")
tokenizers = pytest.importorskip("tokenizers")

from text_encoders import example  # noqa: E402

CAPTIONS = [(colour, pattern) for colour in example.COLOURS for pattern in example.PATTERNS]


@pytest.fixture(scope="module")
def album(tmp_path_factory, encoders):
    """A folder of photos that the encoders have not seen, three for each caption, and its index."""
    folder = tmp_path_factory.mktemp("album")
    rng = np.random.default_rng(7)
    for colour, pattern in CAPTIONS:
        for view in range(3):
            example.draw(colour, pattern, rng).save(folder / f"{colour} {pattern} {view}.png")
    update(folder, model=encoders)
    return folder


def expected(colour, pattern):
    return {f"{colour} {pattern} {view}.png" for view in range(3)}


def test_a_text_finds_the_photos_it_describes(album):
    photos = Photos.open(album)
    assert photos.has_text
    for caption in CAPTIONS:
        assert set(dict(photos.search_text(f"a photo of {' '.join(caption)}", 3))) == expected(*caption)
    assert all("dots" in name for name, _ in photos.search_text("Dots", 12))
    assert photos.search(album / "blue dots 1.png", 1)[0][0] == "blue dots 1.png"


def test_scores_are_the_cosines_of_the_two_encoders(album, encoders):
    photos, model = Photos.open(album), Model.load(encoders)
    text = TextEncoder.load(model)("green checks")
    np.testing.assert_array_equal(photos.text_descriptor("green checks"), text)
    for name, score in photos.search_text("green checks", 3):
        image = photos.descriptor(album / name)
        assert score == pytest.approx(float(text @ image), abs=0.03)  # the index stores 4 bits per dimension
    assert (photos.is_whitened, photos.duplicate_score) == (False, 0.95)


def test_the_text_encoder_is_loaded_once_for_each_model(album, encoders, tmp_path, monkeypatch):
    loaded, load = [], TextEncoder.load
    monkeypatch.setattr(TextEncoder, "load", lambda model: loaded.append(model.text.model) or load(model))
    photos = Photos.open(album)
    for _ in range(2):
        photos.search_text("red dots", 1)
    moved = shutil.copytree(encoders, tmp_path / "moved")
    photos._model = Model.load(moved)  # as a refresh does when everything was indexed again
    photos.search_text("red dots", 1)
    assert loaded == [Model.load(folder).text.model for folder in (encoders, moved)]


def test_the_command_searches_by_text(album, run_logt):
    printed = run_logt("images", "search", album, "--text", "yellow stripes", "-k", "3", "--json")
    assert {hit["name"] for hit in json.loads(printed)} == expected("yellow", "stripes")
    assert "text must have 1 to 4,096 characters" in run_logt("images", "search", album, "--text", "  ", ok=False)


def test_the_service_and_its_page_compare_a_text_with_all_photos(album, monkeypatch):
    """What an index measured with its photos does not hold for texts: searches by text read everything."""
    efforts, search = [], Index.search

    def recorded(index, *args, **settings):
        efforts.append(settings.get("effort"))
        return search(index, *args, **settings)

    monkeypatch.setattr(Index, "search", recorded)
    Photos.open(album).search_text("blue dots", 1)
    with open_client(open_collection(album)) as client:
        assert client.get(f"{API}/info").json()["text"] is True
        response = client.post(f"{API}/search/text", json={"text": "green dots", "k": 3})
        assert set(result_ids(response)[0]) == expected("green", "dots")
        for bad in ({"text": "   "}, {"text": "x" * 5000}, {"text": 3}, {}, {"text": "x", "K": 1}):
            error_message(client.post(f"{API}/search/text", json=bad), 422, "invalid_input")
        page = client.get("/", params={"text": "green dots", "k": 3}).text
        assert set(re.findall(r'data-id="([^"]+)"', page)) == expected("green", "dots")
        assert 'name="text"' in page
        assert 'value="green dots"' in page
        none = client.get("/", params={"text": "green dots", "name": "no such photo"})
        assert "No other photo matches the filter" in none.text
        client.get("/", params={"id": "blue dots 1.png", "k": 3})
    assert efforts == [1, 1, 1, None]


def test_the_client_searches_by_text(album):
    with run_server(create_app(open_collection(album), Settings())) as url:
        hits = Client(url).search_text("red checks", 3)
        assert {hit.id for hit in hits} == expected("red", "checks")
        with pytest.raises(InvalidInputError, match="text"):
            Client(url).search_text("")


def test_an_index_without_a_text_encoder_states_what_is_missing(tmp_path, small):
    example.draw("red", "dots", np.random.default_rng(0)).save(tmp_path / "a.png")
    update(tmp_path, model=small)
    photos = Photos.open(tmp_path)
    assert not photos.has_text
    with pytest.raises(InvalidInputError, match=r"small has no text encoder, .* tokenizer\.json"):
        photos.search_text("red")
    with open_client(open_collection(tmp_path)) as client:
        assert client.get(f"{API}/info").json()["text"] is False
        page = client.get("/").text
        assert 'name="text"' not in page
        assert "logt models get clip" in page
        assert client.get("/", params={"text": "red"}).status_code == 409
        error_message(client.post(f"{API}/search/text", json={"text": "red"}), 409, "no_text")


def test_without_tokenizers_the_error_names_the_extra(album, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    photos = Photos.open(album)
    with pytest.raises(MissingExtraError, match=r"logt-search\[text\]"):
        photos.search_text("red")


def test_photos_that_were_indexed_before_the_text_encoder_came_must_be_relearned(tmp_path, encoders, album):
    model, folder = tmp_path / "model", tmp_path / "album"
    shutil.copytree(encoders, model)
    folder.mkdir()
    for name in expected("red", "dots") | expected("blue", "dots"):
        shutil.copy(album / name, folder)
    (model / "text_model.onnx").rename(tmp_path / "later.onnx")
    update(folder, model=model)
    assert Photos.open(folder).is_whitened
    (tmp_path / "later.onnx").rename(model / "text_model.onnx")
    photos = Photos.open(folder)
    assert not photos.has_text
    with pytest.raises(InvalidInputError, match=r"logt images index .* --relearn"):
        photos.search_text("red")
    update(folder, model=model, relearn=True)
    assert photos.refresh()
    assert set(dict(photos.search_text("red dots", 3))) == expected("red", "dots")


# ------------------------------------------------------------------- text encoders and tokenizers that are replaced


@pytest.fixture
def own_model(tmp_path, encoders):
    return shutil.copytree(encoders, tmp_path / "own model")


@pytest.fixture
def small_album(tmp_path, album, own_model):
    """A folder of 6 photos with an index of the model `own_model`."""
    folder = tmp_path / "small album"
    folder.mkdir()
    for name in expected("red", "dots") | expected("blue", "dots"):
        shutil.copy(album / name, folder)
    update(folder, model=own_model)
    return folder


def turn_weights(folder):
    """Let the text encoder return the negative vector of each text."""
    model = onnx.load(folder / "text_model.onnx")
    (table,) = model.graph.initializer
    table.CopyFrom(onnx.numpy_helper.from_array(-onnx.numpy_helper.to_array(table), table.name))
    onnx.save(model, folder / "text_model.onnx")


def swap_words(folder):
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    words = tokenizer["model"]["vocab"]
    words["red"], words["blue"] = words["blue"], words["red"]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


def write_config(folder):
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 1}')


REPLACED = {"text encoder": turn_weights, "tokenizer": swap_words, "tokenizer and its configuration": write_config}


@pytest.mark.parametrize("what", REPLACED)
def test_texts_are_not_compared_by_a_replaced_text_encoder_or_tokenizer(small_album, own_model, tmp_path, what):
    kept, opened = shutil.copytree(own_model, tmp_path / "kept"), Photos.open(small_album)
    before = opened.search_text("red dots", 6)
    REPLACED[what](own_model)
    name = what.split(" and")[0]
    message = rf"indexed with another {name} \(\w{{12}}…\) than {own_model}/.*; put the original files back"
    update(small_album)  # photos do not depend on it
    for photos in (Photos.open(small_album), Photos.open(small_album, model=own_model)):
        with pytest.raises(InvalidInputError, match=f"{message}, or relearn .* --relearn"):
            photos.search_text("red dots", 6)
        assert photos.search(small_album / "red dots 1.png", 1)[0][0] == "red dots 1.png"
    assert opened.search_text("red dots", 6) == before  # it has the original one in memory
    assert Photos.open(small_album, model=kept).search_text("red dots", 6) == before


@pytest.mark.parametrize("what", REPLACED)
def test_after_a_relearning_texts_are_compared_by_the_new_text_encoder_and_tokenizer(small_album, own_model, what):
    opened = Photos.open(small_album)
    before = opened.search_text("red dots", 6)
    REPLACED[what](own_model)
    update(small_album, relearn=True)
    assert opened.refresh()
    after = opened.search_text("red dots", 6)
    assert after == Photos.open(small_album).search_text("red dots", 6) != before


def test_weights_in_files_of_their_own_count_also_in_an_index_for_texts_alone(
    small_album, own_model, small, tmp_path
):
    path = own_model / "text_model.onnx"
    options = {"save_as_external_data": True, "location": "text.data", "size_threshold": 0}
    onnx.save(onnx.load(path), path, **options)
    update(small_album, tmp_path / "index", model=small, text=own_model)
    assert Photos.open(tmp_path / "index").search_text("red dots", 1)
    (-np.fromfile(own_model / "text.data", np.float32)).tofile(own_model / "text.data")
    with pytest.raises(InvalidInputError, match="another text encoder"):
        Photos.open(tmp_path / "index").search_text("red dots", 1)


def test_an_index_names_the_fingerprints_of_its_text_encoder_and_one_without_them_is_searched(
    small_album, own_model, small
):
    manifest = PhotoManifest.read(small_album / ".logt")
    digests = [
        hashlib.sha256((own_model / name).read_bytes()).hexdigest() for name in ("text_model.onnx", "tokenizer.json")
    ]
    assert [manifest.text_sha256, manifest.tokenizer_sha256] == digests
    values = json.loads(manifest.to_json())
    del values["checksum"], values["text_sha256"], values["tokenizer_sha256"]
    written = json.dumps({**values, "checksum": checksum(json.dumps(values, sort_keys=True).encode())})
    (small_album / ".logt" / "photos.json").write_text(written)
    turn_weights(own_model)
    assert Photos.open(small_album).search_text("red dots", 1)
    assert text_fingerprints(Model.load(small).text) is None


# ------------------------------------------------------------------------------- other forms of text encoders


def write_text_encoder(folder, *, length="T", integers="int64", mask=False, extra=None):
    """Write a text encoder that returns (sum of the tokens, number of tokens that are not masked, 1)."""
    names = ["tokens", *(["attention_mask"] if mask else []), *([extra] if extra else [])]
    model = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["": 17]>
        text ({", ".join(f"{integers}[N, {length}] {name}" for name in names)}) => (float[N, 3] vector)
        <int64[1] axis = {{1}}, float[1, 1] one = {{1}}> {{
            values = Cast <to = 1> (tokens)
            counted = Cast <to = 1> ({"attention_mask" if mask else "tokens"})
            sum = ReduceSum (values, axis)
            count = ReduceSum (counted, axis)
            vector = Concat <axis = 1> (sum, count, one)
        }}""")
    onnx.save(model, folder / "text_model.onnx")


@pytest.fixture
def model_folder(tmp_path, network):
    """A model folder with an image encoder and a tokenizer: "a" is 5, "b" is 7, all other words are 0."""
    shutil.copy(network("three", channels=3, vector=True), tmp_path / "vision_model.onnx")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0, "a": 5, "b": 7, "pad": 9}, unk_token="?"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def direction(*values):
    return np.array(values, np.float32) / np.linalg.norm(values)


@pytest.mark.parametrize("integers", ["int64", "int32"])
def test_a_text_is_padded_to_the_length_of_the_encoder(model_folder, integers):
    write_text_encoder(model_folder, length=4, integers=integers, mask=True)
    encode = TextEncoder.load(Model.load(model_folder))
    np.testing.assert_allclose(encode("a b"), direction(12, 2, 1), rtol=1e-6)
    np.testing.assert_allclose(encode("a b a b a b a"), direction(24, 4, 1), rtol=1e-6)  # cut after 4 tokens
    (model_folder / "tokenizer_config.json").write_text('{"pad_token": {"content": "pad"}}')
    np.testing.assert_allclose(TextEncoder.load(Model.load(model_folder))("a b"), direction(30, 2, 1), rtol=1e-6)
    tokenizer = tokenizers.Tokenizer.from_file(str(model_folder / "tokenizer.json"))
    tokenizer.enable_padding(pad_id=7, pad_token="b", length=3)  # comes first
    tokenizer.save(str(model_folder / "tokenizer.json"))
    np.testing.assert_allclose(TextEncoder.load(Model.load(model_folder))("a b"), direction(26, 2, 1), rtol=1e-6)


def test_the_settings_give_the_length_of_an_encoder_that_accepts_any(model_folder):
    write_text_encoder(model_folder)
    np.testing.assert_allclose(TextEncoder.load(Model.load(model_folder))("b"), direction(7, 7, 1), rtol=1e-6)
    (model_folder / "tokenizer_config.json").write_text('{"pad_token": "pad", "model_max_length": 3}')
    assert TextEncoder.load(Model.load(model_folder))("a a a a a a")[0] == pytest.approx(15 / np.sqrt(451))
    (model_folder / "logt.json").write_text('{"text_length": 2}')
    np.testing.assert_allclose(TextEncoder.load(Model.load(model_folder))("b"), direction(16, 16, 1), rtol=1e-6)


def test_text_encoders_that_cannot_be_used_are_refused(model_folder):
    write_text_encoder(model_folder, extra="pixel_values")
    with pytest.raises(InvalidInputError, match="input 'pixel_values'"):
        TextEncoder.load(Model.load(model_folder))("a")
    (model_folder / "logt.json").write_text('{"text_output": "none"}')
    with pytest.raises(InvalidInputError, match="no output 'none'; its outputs: vector"):
        TextEncoder.load(Model.load(model_folder))
    (model_folder / "tokenizer.json").write_text("{}")
    with pytest.raises(InvalidInputError, match="cannot be loaded as a tokenizer"):
        TextEncoder.load(Model.load(model_folder))


def test_encoders_of_different_dimensions_are_refused(tmp_path, encoders, network):
    model = tmp_path / "model"
    shutil.copytree(encoders, model)
    shutil.copy(network("wide", channels=24, vector=True), model / "vision_model.onnx")
    example.draw("red", "dots", np.random.default_rng(0)).save(tmp_path / "a.png")
    update(tmp_path, tmp_path / "index", model=model)
    with pytest.raises(InvalidInputError, match="text encoder returns 7 values, the image encoder 24"):
        Photos.open(tmp_path / "index").search_text("red")


def test_the_benchmark_of_text_searches_measures_a_model(album, encoders, tmp_path):
    from benchmarks.images import text_quality

    (tmp_path / "collection").mkdir()
    for name in expected("red", "dots") | expected("blue", "dots"):
        shutil.copy(album / name, tmp_path / "collection")
    texts = {"red dots": [f"collection/{name}" for name in expected("red", "dots")], "blue": []}
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    quality, _, best = text_quality(tmp_path, encoders)
    assert quality > 95
    assert list(best) == ["blue"]
    assert all(name.startswith("collection/blue") for name in best["blue"][:3])

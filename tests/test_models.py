"""Models of all kinds: where their files are found, how their settings are read, and what their outputs become."""

import json

import numpy as np
import pytest

from logt.descriptors import Model
from logt.errors import InvalidInputError
from logt.photos import Photos, update
from logt.photos.manifest import PhotoManifest

Image = pytest.importorskip("PIL.Image")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def photo(width=80, height=60, seed=0):
    squares = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), np.uint8)
    return Image.fromarray(squares).resize((width, height), Image.Resampling.BICUBIC)


def write_transformer(path, *, size="H, W", outputs=("last_hidden_state",)):
    """Write a network that returns tokens: the mean of the patches first, then one token for each patch."""
    shapes = {"last_hidden_state": "float[N, T, 12]", "pooler_output": "float[N, 12]"}
    model = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["": 17]>
        transformer (float[N, 3, {size}] pixel_values) => ({", ".join(f"{shapes[name]} {name}" for name in outputs)})
        <int64[3] shape = {{0, 12, -1}}> {{
            map = Conv <strides = [8, 8]> (pixel_values, weights)
            positive = Relu (map)
            columns = Reshape (positive, shape)
            patches = Transpose <perm = [0, 2, 1]> (columns)
            mean = ReduceMean <axes = [1], keepdims = 1> (patches)
            last_hidden_state = Concat <axis = 1> (mean, patches)
            pooler_output = ReduceMax <axes = [1], keepdims = 0> (patches)
        }}""")
    weights = np.random.default_rng(0).standard_normal((12, 3, 8, 8)).astype(np.float32) / 8
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "weights"))
    onnx.save(model, path)
    return path


# --------------------------------------------------------------------------------------------------- outputs


@pytest.mark.parametrize("prefix", [1, 5])  # with and without registers
def test_tokens_are_pooled_as_the_settings_state(tmp_path, prefix):
    path = write_transformer(tmp_path / "vit.onnx", size="48, 64")
    for pooling in ("cls", "mean", "gem", "cls+mean"):
        model = Model.load(path, settings={"pooling": pooling, "prefix": prefix})
        x = model.preprocessing(photo(), (0, 0, 80, 60), 1.0)
        first, *tokens = model.session.run(None, {"pixel_values": x})[0][0].astype(float)
        patches = np.array(tokens[prefix - 1 :])
        mean = patches.mean(axis=0)
        expected = {
            "cls": first,
            "mean": mean,
            "gem": np.cbrt((np.maximum(patches, 1e-6) ** 3).mean(axis=0)),
            "cls+mean": np.concatenate([first / np.linalg.norm(first), mean / np.linalg.norm(mean)]),
        }[pooling]
        np.testing.assert_allclose(model(photo()), expected / np.linalg.norm(expected), atol=1e-5)


def test_the_pooled_output_is_preferred_and_another_can_be_chosen(tmp_path):
    path = write_transformer(tmp_path / "vit.onnx", outputs=("last_hidden_state", "pooler_output"))
    assert Model.load(path).output.name == "pooler_output"
    assert Model.load(path, settings={"output": "last_hidden_state"}).output.name == "last_hidden_state"
    with pytest.raises(InvalidInputError, match="no output 'x'; its outputs: last_hidden_state, pooler_output"):
        Model.load(path, settings={"output": "x"})


# -------------------------------------------------------------------------------------------------- settings


TRANSFORMERS = "preprocessor_config.json"


@pytest.mark.parametrize(
    ("file", "config", "expected"),
    [
        (
            TRANSFORMERS,
            {"crop_size": 224, "size": 224, "resample": 2},
            {"size": (224, 224), "fit": "crop", "resample": "bilinear"},
        ),
        (  # SigLIP
            TRANSFORMERS,
            {"size": {"height": 256, "width": 192}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3},
            {"size": (256, 192), "fit": "stretch", "mean": (0.5, 0.5, 0.5)},
        ),
        (  # DINOv2
            TRANSFORMERS,
            {"crop_size": {"height": 224, "width": 224}, "do_center_crop": True, "size": {"shortest_edge": 256}},
            {"size": (224, 224), "fit": "crop", "zoom": 0.875, "mean": (0.485, 0.456, 0.406)},
        ),
        (  # from 0 to 255, without a scale
            TRANSFORMERS,
            {"do_rescale": False, "image_mean": [127.5] * 3, "image_std": [127.5] * 3, "size": 64},
            {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)},
        ),
        (TRANSFORMERS, {"rescale_factor": 1 / 127.5, "do_normalize": False}, {"std": (0.5, 0.5, 0.5)}),
        (TRANSFORMERS, {"do_resize": False}, {"size": None}),
        (
            "preprocess_cfg.json",
            {"size": [224, 224], "mean": [0.1] * 3, "std": [0.2] * 3, "interpolation": "bicubic"},
            {"size": (224, 224), "fit": "crop", "mean": (0.1, 0.1, 0.1), "resample": "bicubic"},
        ),
        (
            "open_clip_config.json",
            {"model_cfg": {}, "preprocess_cfg": {"size": 256, "resize_mode": "squash", "mean": [0.1] * 3}},
            {"size": (256, 256), "fit": "stretch", "mean": (0.1, 0.1, 0.1)},
        ),
        (
            "config.json",
            {"pretrained_cfg": {"input_size": [3, 240, 200], "crop_pct": 0.9, "interpolation": "bilinear"}},
            {"size": (240, 200), "fit": "crop", "zoom": 0.9, "resample": "bilinear"},
        ),
        ("config.json", {"architectures": ["CLIPModel"]}, {"size": None}),
    ],
)
def test_the_preprocessing_is_read_from_the_files_of_other_libraries(tmp_path, file, config, expected):
    (tmp_path / "onnx").mkdir()
    write_transformer(tmp_path / "onnx" / "model.onnx")
    (tmp_path / file).write_text(json.dumps(config))
    preprocessing = Model.load(tmp_path).preprocessing
    for name, value in expected.items():
        found = getattr(preprocessing, name)
        assert found == (pytest.approx(value) if name in ("mean", "std", "zoom") else value)


def test_arguments_come_before_the_json_file_the_preset_and_other_configurations(tmp_path):
    path = write_transformer(tmp_path / "net.onnx")
    (tmp_path / "preprocessor_config.json").write_text('{"size": 100, "image_mean": [0.3, 0.3, 0.3], "resample": 2}')
    assert Model.load(path).preprocessing.mean == (0.3, 0.3, 0.3)
    fixed = write_transformer(tmp_path / "fixed.onnx", size="48, 64")
    assert Model.load(fixed).preprocessing.size == (48, 64)  # that of the file
    clip = Model.load(path, preset="clip").preprocessing
    assert (clip.size, clip.fit, clip.resample) == ((224, 224), "crop", "bilinear")
    assert clip.mean == (0.48145466, 0.4578275, 0.40821073)
    (tmp_path / "net.json").write_text('{"mean": [0.2, 0.2, 0.2], "name": "mine"}')
    model = Model.load(path, preset="clip")
    assert (model.name, model.preprocessing.mean, model.preprocessing.fit) == ("mine", (0.2, 0.2, 0.2), "crop")
    assert Model.load(path, mean=(0.1, 0.1, 0.1)).preprocessing.mean == (0.1, 0.1, 0.1)
    for preset in ("siglip", "dinov2", "timm"):
        Model.load(path, preset=preset)
    with pytest.raises(InvalidInputError, match="preset must be one of 'clip', 'siglip', 'dinov2', 'timm', got 'x'"):
        Model.load(path, preset="x")


@pytest.mark.parametrize("zoom", [1.0, 0.5])
def test_the_centre_of_an_image_is_cropped(tmp_path, zoom):
    path = write_transformer(tmp_path / "net.onnx", size="48, 48")
    crop = Model.load(path, settings={"fit": "crop", "zoom": zoom})
    image = photo(120, 60)
    side = 60 * zoom
    centre = image.crop((round(60 - side / 2), round(30 - side / 2), round(60 + side / 2), round(30 + side / 2)))
    stretch = Model.load(path, settings={})
    np.testing.assert_allclose(crop(image), stretch(centre), atol=0.02)
    region = (60, 0, 120, 60)  # its own centre
    np.testing.assert_allclose(crop(image, region), crop(image.crop(region)), atol=0.02)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("net.json", "{", "cannot be read as JSON"),
        ("net.json", "[]", "must contain a JSON object"),
        ("net.json", '{"meen": 1}', "unknown setting 'meen'; known: layout, mean"),
        ("net.json", '{"mean": [1, 2]}', "mean must be three numbers"),
        ("net.json", '{"std": [1, 0, 1]}', "std must be above 0"),
        ("net.json", '{"layout": "CHWN"}', "layout must be one of"),
        ("net.json", '{"side": 0}', "side must be >= 1"),
        ("net.json", '{"side": 99999}', "side must be at most"),
        ("net.json", '{"fit": "x"}', "fit must be one of 'stretch', 'crop'"),
        ("net.json", '{"size": "x"}', "size must be height and width"),
        ("net.json", '{"size": [1, 99999]}', "size must be at most 16,384 pixels"),
        ("net.json", '{"zoom": 2}', "zoom must be above 0 and at most 1"),
        ("net.json", '{"pooling": "max"}', "pooling must be one of"),
        ("net.json", '{"scales": 3}', "scales must be a list"),
        ("net.json", '{"whiten": 1}', "whiten must be true or false"),
        ("net.json", '{"text_model": "x.onnx"}', "text_model of the model .* is not a file"),
        ("preprocessor_config.json", '{"image_mean": 7}', "has an unsupported form"),
        ("config.json", '{"pretrained_cfg": {"input_size": 3}}', "has an unsupported form"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(tmp_path, file, text, message):
    path = write_transformer(tmp_path / "net.onnx")
    (tmp_path / file).write_text(text)
    with pytest.raises(InvalidInputError, match=message):
        Model.load(path)


# ----------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("image", "text", "tokenizer"),
    [
        ("vision_model.onnx", "text_model.onnx", "tokenizer.json"),
        ("onnx/vision_model.onnx", "onnx/text_model.onnx", "tokenizer.json"),
        ("visual/model.onnx", "textual/model.onnx", "textual/tokenizer.json"),
        ("visual.onnx", "textual.onnx", "tokenizer.json"),
        ("model.onnx", "text_encoder.onnx", "tokenizer.json"),
    ],
)
def test_the_text_encoder_of_a_model_is_found(tmp_path, image, text, tokenizer):
    for name in (image, text, tokenizer):
        (tmp_path / name).parent.mkdir(exist_ok=True)
    write_transformer(tmp_path / image)
    model = Model.load(tmp_path)
    assert (model.path, model.has_text, model.output.whiten) == (tmp_path / image, False, True)
    (tmp_path / text).touch()
    assert not Model.load(tmp_path / image).has_text  # without a tokenizer
    (tmp_path / tokenizer).touch()
    for path in (tmp_path, tmp_path / image):
        model = Model.load(path)
        assert (model.text.model, model.text.tokenizer) == (tmp_path / text, tmp_path / tokenizer)
        assert not model.output.whiten


def test_models_are_found_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "clip").mkdir(parents=True)
    write_transformer(tmp_path / "models" / "clip" / "model.onnx")
    write_transformer(tmp_path / "models" / "vit.onnx")
    with pytest.raises(InvalidInputError, match=r"there is no model 'vit'; pass an ONNX file, .* 'lite', 'clip', "):
        Model.load("vit")
    with pytest.raises(InvalidInputError, match="'clip' is not on this machine yet: logt models get clip downloads "):
        Model.load("clip")
    monkeypatch.setenv("LOGT_MODELS", str(tmp_path / "models"))
    assert Model.load("clip").path == tmp_path / "models" / "clip" / "model.onnx"
    assert Model.load("vit").path == tmp_path / "models" / "vit.onnx"
    with pytest.raises(InvalidInputError, match=r"contains no image encoder; .* one of vision_model.onnx"):
        Model.load(tmp_path)
    for name in ("text_model", "other"):
        assert Model.load(tmp_path / "models").path == tmp_path / "models" / "vit.onnx"  # the only one of its folder
        write_transformer(tmp_path / "models" / f"{name}.onnx")
    with pytest.raises(InvalidInputError, match=r"several ONNX files \(other.onnx, vit.onnx\); pass the path"):
        Model.load(tmp_path / "models")


# --------------------------------------------------------------------------------------------------- indexes


@pytest.fixture
def album(tmp_path):
    folder = tmp_path / "album"
    folder.mkdir()
    for seed in range(2):
        photo(seed=seed).save(folder / f"{seed}.png")
    return folder


def test_an_index_remembers_the_settings_of_its_model(album, tmp_path):
    path = write_transformer(tmp_path / "net.onnx")
    settings = tmp_path / "net.json"
    settings.write_text('{"size": [40, 40], "fit": "crop", "pooling": "gem", "resample": "bilinear"}')
    update(album, model=path)
    before = Photos.open(album).descriptor(album / "1.png")
    settings.unlink()
    photos = Photos.open(album)
    np.testing.assert_array_equal(photos.descriptor(album / "1.png"), before)
    assert photos.search(album / "1.png", 1)[0][0] == "1.png"
    update(album)  # needs no settings either
    with pytest.raises(InvalidInputError, match=r"indexed with size = \[40, 40\], not None; relearn to change it"):
        update(album, model=Model.load(path))
    update(album, relearn=True)  # keeps the settings
    assert Photos.open(album).descriptor(album / "1.png").shape == before.shape


def test_an_index_of_the_small_network_keeps_it_although_the_default_is_another(album, monkeypatch):
    update(album, model="lite")
    assert Photos.open(album).duplicate_score == 0.85
    monkeypatch.delenv("LOGT_MODEL")
    photo(seed=9).save(album / "9.png")
    assert update(album).added == 1
    photos = Photos.open(album)
    assert PhotoManifest.read(album / ".logt").model == "efficientnet-lite0"
    with pytest.raises(InvalidInputError, match=r"were indexed with the model lite \("):
        update(album, model="dinov2")
    assert update(album, model="efficientnet-lite0").unchanged  # as indexes store it, and `logt info` prints it
    update(album, relearn=True, model="dinov2")
    photos.refresh()
    assert (photos.duplicate_score, photos.index.dim) == (0.9, 384)
    assert photos.search(album / "9.png", 1)[0][0] == "9.png"

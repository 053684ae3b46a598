"""Networks of all layouts, pooling and whitening compared with their definitions."""

import math

import numpy as np
import pytest

from logt.descriptors import Model, Whitening
from logt.errors import CorruptIndexError, InvalidInputError

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("onnxruntime")


def pixels(width=40, height=30):
    """Red from left to right, green from top to bottom: all rotations and flips differ."""
    X = np.zeros((height, width, 3), np.uint8)
    X[..., 0], X[..., 1] = np.linspace(0, 255, width)[None], np.linspace(0, 255, height)[:, None]
    return Image.fromarray(X)


# ------------------------------------------------------------------------------------------- included models


def test_the_descriptor_of_the_default_model_is_the_class_token_of_dinov2(monkeypatch):
    monkeypatch.delenv("LOGT_MODEL")
    size = 64, 140
    model = Model.load()
    image = pixels(*size)
    factor = model.preprocessing.side / max(size)
    width, height = (14 * math.ceil(length * factor / 14 - 0.5) for length in size)
    small = np.asarray(image.resize((width, height), Image.Resampling.BICUBIC, reducing_gap=2.0), np.float32) / 255
    mean, std = np.array([(0.485, 0.456, 0.406), (0.229, 0.224, 0.225)], np.float32)
    x = ((small - mean) / std).transpose(2, 0, 1)[None]  # in float32: the network rounds it to 8 bits
    tokens = model.session.run(None, {model.session.get_inputs()[0].name: x})[0][0]
    assert tokens.shape == (1 + width * height // 14**2, 384)
    assert tokens[1:].std(axis=0).mean() > 0.01  # the positions of patches matter at this size, too
    np.testing.assert_allclose(model(image), tokens[0] / np.linalg.norm(tokens[0]), atol=1e-4)


def test_the_descriptor_of_the_small_model_is_gem_of_its_feature_maps():
    model = Model.load("lite")
    image = pixels(96, 64)
    expected = np.zeros(1280)
    for width, height in ((448, 288), (320, 224), (224, 160)):  # 448/√2 and 448/2, in multiples of 32
        small = np.asarray(image.resize((width, height), Image.Resampling.BICUBIC, reducing_gap=2.0), np.float64)
        x = ((small - 127) / 128).astype(np.float32).transpose(2, 0, 1)[None]
        features = model.session.run(None, {"pictures": x})[0][0].astype(np.float64)
        assert features.shape == (1280, height // 32, width // 32)
        pooled = np.cbrt((features**3).mean(axis=(1, 2)))
        expected += pooled / np.linalg.norm(pooled)
    np.testing.assert_allclose(model(image), expected / np.linalg.norm(expected), atol=1e-4)


# ---------------------------------------------------------------------------------------------------- model


def test_networks_of_all_layouts_give_the_same_descriptor(network):
    expected = Model.load(network("map"), side=80, scales=[1.0])(pixels(80, 64))
    last = Model.load(network("last", layout="NHWC"), side=80, scales=[1.0])
    fixed = Model.load(network("fixed", size=(64, 80)))  # a fixed size has one scale
    for model in (last, fixed):
        np.testing.assert_allclose(model(pixels(80, 64)), expected, atol=1e-6)


def test_arguments_override_metadata(network):
    path = network("metadata", about='{"side": 96, "mean": [0, 0, 0], "std": [1, 1, 1], "name": "other"}')
    model = Model.load(path)
    assert (model.name, model.preprocessing.side, model.preprocessing.mean) == ("other", 96, (0.0, 0.0, 0.0))
    assert Model.load(path, side=32, std=(2, 2, 2)).preprocessing.std == (2.0, 2.0, 2.0)


def test_files_that_are_not_models_are_refused(tmp_path):
    with open(tmp_path / "huge.onnx", "wb") as file:
        file.truncate((1 << 31) + 1)  # takes no space on disk
    wrong = {"none.onnx": "cannot be read", __file__: "cannot be loaded as an ONNX model"}
    for path, message in {**wrong, tmp_path / "huge.onnx": "more than"}.items():
        with pytest.raises(InvalidInputError, match=message):
            Model.load(path)


def test_a_model_output_that_cannot_be_pooled_is_refused(tmp_path):
    onnx = pytest.importorskip("onnx")
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 17]>
        flat (float[N, 3, H, W] x) => (float[N] y) { y = ReduceMean <axes = [1, 2, 3], keepdims = 0> (x) }""")
    onnx.save(model, tmp_path / "flat.onnx")
    with pytest.raises(InvalidInputError, match=r"expected a feature map \(N, C, H, W\), tokens \(N, T, D\) or a"):
        Model.load(tmp_path / "flat.onnx")


def test_the_descriptor_of_a_box_is_that_of_the_cropped_image(small):
    extract, image, box = Model.load(small), pixels(200, 150), (20, 30, 120, 90)
    np.testing.assert_allclose(extract(image, box), extract(image.crop(box)), atol=1e-3)
    np.testing.assert_array_equal(extract(image, (0.1, 0.2, 0.6, 0.6)), extract(image, box))  # as fractions
    np.testing.assert_array_equal(extract(image, (0.999, 0.5, 1, 0.5001)), extract(image, (199, 75, 200, 76)))
    for everything in ((0, 0, 200, 150), (0, 0, 1, 1)):
        np.testing.assert_array_equal(extract(image, everything), extract(image))


@pytest.mark.parametrize(
    "box",
    [
        *((10, 10, 10, 20), (300, 0, 400, 50), (0, 0, 201, 150), (-1, 0, 50, 50), (0.2, 0.2, 1.2, 1.2)),
        *((1, 2, 3), ("a", 0, 1, 1), (math.nan, 0, 9, 9), (0, 0, math.inf, 9), 7),
    ],
)
def test_what_is_not_a_region_of_the_image_is_refused(small, box):
    with pytest.raises(InvalidInputError, match="box"):
        Model.load(small)(pixels(200, 150), box)


def test_images_of_any_shape_have_a_descriptor(small):
    extract = Model.load(small)
    for size in ((1, 1), (3000, 2), (1, 500)):
        x = extract(Image.new("RGB", size, "red"))
        np.testing.assert_allclose(x @ x, 1, rtol=1e-5)


# ------------------------------------------------------------------------------------------------ whitening


@pytest.mark.parametrize(("n", "d"), [(200, 12), (12, 12), (2, 12)])
def test_whitening_is_pca_whitening_of_the_covariance_plus_a_ridge(rng, n, d):
    X = (rng.standard_normal((n, d)) * np.arange(1, d + 1) + 3).astype(np.float32)
    C = np.cov(X.T, bias=True).astype(float)
    variances, columns = np.linalg.eigh(C + 10 * np.trace(C) / n * np.eye(d))
    by_definition = (X - X.mean(axis=0) * n / (n + 1)) @ columns / np.sqrt(variances)
    by_definition /= np.linalg.norm(by_definition, axis=1, keepdims=True)
    ours = Whitening.learn(X)(X)
    np.testing.assert_allclose(ours @ ours.T, by_definition @ by_definition.T, atol=2e-4)


def test_few_and_equal_descriptors_stay_distinct_and_usable(rng):
    X = np.abs(rng.standard_normal((5, 32))).astype(np.float32)
    white = Whitening.learn(X)(X)
    assert (white @ white.T - np.eye(5)).max() < 0.95
    for equal in (X[:1], X[[0, 0, 0, 0]]):
        np.testing.assert_allclose(np.linalg.norm(Whitening.learn(equal)(equal), axis=1), 1, rtol=1e-5)
    whitening = Whitening(X[0], np.empty((0, 32), np.float32), np.empty(0, np.float32), 4)
    np.testing.assert_allclose(np.linalg.norm(whitening(X[:1]), axis=1), 1, rtol=1e-5)  # the mean itself


def test_a_whitening_is_stored_and_read_back(rng):
    whitening = Whitening.learn(rng.standard_normal((20, 6)).astype(np.float32))
    again = Whitening.from_bytes(whitening.serialized)
    assert again.checksum == whitening.checksum
    x = rng.standard_normal(6).astype(np.float32)
    np.testing.assert_array_equal(again(x), whitening(x))
    with pytest.raises(InvalidInputError, match="dimension 5"):
        whitening(x[:5])
    for cut in range(0, len(whitening.serialized), 7):
        with pytest.raises(CorruptIndexError):
            Whitening.from_bytes(whitening.serialized[:cut])
    with pytest.raises(InvalidInputError, match="finite"):
        Whitening.learn(np.full((3, 4), np.nan))

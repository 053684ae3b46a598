"""scripts/export_model.py, with small networks of the real libraries: our reader gives the vectors of torch."""

import sys
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest
from PIL import Image
from test_project import ROOT

from logt.descriptors import Model, TextEncoder

LIBRARIES = ("torch", "timm", "open_clip", "transformers")
MISSING = [name for name in LIBRARIES if find_spec(name) is None]
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason="needs torch: pip install torch timm open_clip_torch transformers"),
    pytest.mark.filterwarnings("ignore"),
]
TEXTS = ["a red bus", "It's 2 o'clock:  the\nold HOUSE!", "ein grüner Baum 写真"]


@pytest.fixture
def script(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "scripts"), *sys.path])
    import torch

    torch.manual_seed(0)
    return import_module("export_model")


@pytest.fixture
def image():
    return Image.fromarray(np.random.default_rng(1).integers(0, 256, (60, 90, 3), np.uint8))


def torch_vector(network, x):
    """Return the output of a torch network for one input, normalized."""
    import torch

    with torch.no_grad():
        vector = network(torch.from_numpy(x))[0].numpy()
    return vector / np.linalg.norm(vector)


def input_of(model, image):
    return model.preprocessing(image, (0.0, 0.0, float(image.width), float(image.height)), 1.0)


def test_a_model_of_timm(script, image, tmp_path):
    import timm

    network = timm.create_model("test_vit", pretrained=False, num_classes=0).eval()  # small, for tests
    script.export_timm(network, tmp_path / "timm")
    model = Model.load(tmp_path / "timm")
    assert (model.name, model.preprocessing.size, model.preprocessing.fit) == ("timm", (160, 160), "crop")
    assert model.preprocessing.zoom == pytest.approx(network.pretrained_cfg["crop_pct"])
    vector = model(image)
    np.testing.assert_allclose(vector, torch_vector(network, input_of(model, image)), atol=1e-4)


def check_pair(folder, image, image_network, text_network, tokens):
    """Compare both encoders with those of torch, and the cosine of an image and a text."""
    model = Model.load(folder)
    text_encoder = TextEncoder.load(model)
    vector, expected = model(image), torch_vector(image_network, input_of(model, image))
    np.testing.assert_allclose(vector, expected, atol=1e-4)
    for text in TEXTS:
        given, wanted = text_encoder(text), torch_vector(text_network, tokens(text))
        np.testing.assert_allclose(given, wanted, atol=1e-4)
        assert vector @ given == pytest.approx(expected @ wanted, abs=1e-4)
    assert not model.output.whiten


def test_a_model_of_open_clip(script, image, tmp_path):
    import open_clip

    network = open_clip.CLIP(
        embed_dim=24,
        vision_cfg={"image_size": 64, "layers": 2, "width": 64, "patch_size": 16},
        text_cfg={"context_length": 77, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 2},
    ).eval()
    open_clip.set_model_preprocess_cfg(network, {"size": 64, "mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.4]})
    tokenizer = open_clip.get_tokenizer("ViT-B-32")
    script.export_open_clip(network, tokenizer, tmp_path / "clip")
    check_pair(
        tmp_path / "clip", image, network.encode_image, network.encode_text, lambda text: tokenizer([text]).numpy()
    )


def small_tokenizer(transformers):
    """A tokenizer with letters as words, as the tests have no files of the field's."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    letters = sorted(set("".join(TEXTS).lower()) - set(" \n"))
    vocabulary = {name: number for number, name in enumerate(["<pad>", "<unk>", *letters, "<first>", "<last>"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    ends = [(name, vocabulary[name]) for name in ("<first>", "<last>")]
    tokenizer.post_processor = processors.TemplateProcessing(single="<first> $A <last>", special_tokens=ends)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<last>")


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_a_model_of_transformers_with_a_text_encoder(script, image, tmp_path, kind):
    import transformers

    tokenizer = small_tokenizer(transformers)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    texts = {**size, "vocab_size": len(tokenizer), "max_position_embeddings": 40}
    texts |= {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": 0, "bos_token_id": len(tokenizer) - 2}
    images = {**size, "image_size": 64, "patch_size": 16}
    if kind == "clip":
        config = transformers.CLIPConfig(text_config=texts, vision_config=images, projection_dim=24)
        network = transformers.CLIPModel._from_config(config, attn_implementation="eager").eval()
        processor = transformers.CLIPImageProcessor(size={"shortest_edge": 80}, crop_size={"height": 64, "width": 64})
    else:
        config = transformers.SiglipConfig(text_config=texts, vision_config=images)
        network = transformers.SiglipModel._from_config(config, attn_implementation="eager").eval()
        processor = transformers.SiglipImageProcessor(size={"height": 64, "width": 64})
    script.export_transformers(network, processor, tokenizer, tmp_path / kind)
    preprocessing = Model.load(tmp_path / kind).preprocessing
    assert (preprocessing.fit, preprocessing.zoom) == (("crop", 0.8) if kind == "clip" else ("stretch", 1.0))

    def tokens(text):
        return tokenizer(text, padding="max_length", max_length=40, truncation=True, return_tensors="np")["input_ids"]

    check_pair(
        tmp_path / kind,
        image,
        lambda x: script._features(network.get_image_features(pixel_values=x)),
        lambda ids: script._features(network.get_text_features(input_ids=ids)),
        tokens,
    )

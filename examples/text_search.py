"""Search photos by text: python examples/text_search.py [FOLDER MODEL TEXT]

MODEL is a folder with vision_model.onnx, text_model.onnx and tokenizer.json, such as an export of CLIP. Without
arguments, the example draws pictures and trains two small encoders that know a few words. Needs
pip install "logt-search[text]", and onnx to write the small encoders.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from logt.photos import Photos, update

COLOURS = {"red": (220, 40, 40), "green": (40, 180, 60), "blue": (50, 70, 220), "yellow": (230, 210, 40)}
PATTERNS = ("stripes", "checks", "dots")
WORDS = [*COLOURS, *PATTERNS]
SIDE = 48


def draw(colour: str, pattern: str, rng: np.random.Generator) -> Image.Image:
    """Draw a pattern of a colour on gray, at a random place and size."""
    period, (x0, y0) = int(rng.integers(12, 17)), rng.integers(0, 16, 2)
    y, x = np.mgrid[:SIDE, :SIDE]
    x, y = (x + x0) % period, (y + y0) % period
    half = period / 2
    marked = {
        "stripes": x < half,
        "checks": (x < half) != (y < half),
        "dots": (x - half) ** 2 + (y - half) ** 2 < (period / 3.5) ** 2,
    }[pattern]
    pixels = np.where(marked[..., None], COLOURS[colour], int(rng.integers(90, 160)))
    return Image.fromarray(np.clip(pixels + rng.normal(0, 8, pixels.shape), 0, 255).astype(np.uint8))


def write_encoders(folder: Path) -> None:
    """Train a pair of encoders on captioned pictures, and write them as people export CLIP.

    The image encoder is a layer of fixed random filters, the mean of its positive part, and a linear layer that
    predicts the words of the caption, learned by least squares. The text encoder returns the words of a text.
    """
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    def save(name: str, nodes: list, inputs: list, output: tuple, arrays: dict) -> None:
        initializers = [numpy_helper.from_array(np.asarray(value), key) for key, value in arrays.items()]
        inputs = [helper.make_tensor_value_info(*spec) for spec in inputs]
        graph = helper.make_graph(nodes, name, inputs, [helper.make_tensor_value_info(*output)], initializers)
        opset = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), folder / f"{name}.onnx")

    rng = np.random.default_rng(0)
    filters = rng.normal(0, 0.2, (384, 3, 9, 9)).astype(np.float32)
    layers = [
        helper.make_node("Conv", ["pixel_values", "filters"], ["responses"], strides=[2, 2]),
        helper.make_node("Relu", ["responses"], ["positive"]),
        helper.make_node("ReduceMean", ["positive"], ["features"], axes=[2, 3], keepdims=0),
    ]
    pixels = ("pixel_values", TensorProto.FLOAT, ["N", 3, SIDE, SIDE])
    save("vision_model", layers, [pixels], ("features", TensorProto.FLOAT, ["N", 384]), {"filters": filters})

    captions = [(colour, pattern) for colour in COLOURS for pattern in PATTERNS] * 40
    pictures = np.array([np.asarray(draw(*caption, rng), np.float32) for caption in captions])
    X = (pictures.transpose(0, 3, 1, 2) / 255 - 0.5) / 0.5
    session = onnxruntime.InferenceSession(folder / "vision_model.onnx", providers=["CPUExecutionProvider"])
    F = session.run(None, {"pixel_values": X.astype(np.float32)})[0]
    mean, Y = F.mean(axis=0), np.array([[word in caption for word in WORDS] for caption in captions], float)
    C = F - mean
    W = np.linalg.solve(C.T @ C + 1e-3 * np.trace(C.T @ C) / len(C) * np.eye(384), C.T @ (Y - Y.mean(axis=0)))
    arrays = {"filters": filters, "mean": mean, "W": W.astype(np.float32)}
    layers += [
        helper.make_node("Sub", ["features", "mean"], ["centred"]),
        helper.make_node("MatMul", ["centred", "W"], ["image_embeds"]),
    ]
    embedding = ("image_embeds", TensorProto.FLOAT, ["N", len(WORDS)])
    save("vision_model", layers, [pixels], embedding, arrays)

    vocabulary = {word: number for number, word in enumerate(["[UNK]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    table = np.vstack([np.full(len(WORDS), 1e-3), np.eye(len(WORDS)) - Y.mean(axis=0)]).astype(np.float32)
    layers = [
        helper.make_node("Gather", ["table", "input_ids"], ["words"]),
        helper.make_node("ReduceMean", ["words"], ["text_embeds"], axes=[1], keepdims=0),
    ]
    tokens = ("input_ids", TensorProto.INT64, ["N", "T"])
    save("text_model", layers, [tokens], ("text_embeds", TensorProto.FLOAT, ["N", len(WORDS)]), {"table": table})
    (folder / "preprocessor_config.json").write_text('{"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}')


def main(folder: Path, model: Path, text: str) -> None:
    update(folder, model=model)
    photos = Photos.open(folder)
    for name, score in photos.search_text(text, k=3):
        print(f"{score:6.3f}  {name}")


if __name__ == "__main__":
    if len(sys.argv) == 4:
        main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            model, album = Path(temporary, "model"), Path(temporary, "album")
            model.mkdir(), album.mkdir()
            write_encoders(model)
            rng = np.random.default_rng(1)
            for colour in COLOURS:
                for pattern in PATTERNS:
                    for view in range(3):
                        draw(colour, pattern, rng).save(album / f"{colour} {pattern} {view}.png")
            main(album, model, "a photo of blue dots")

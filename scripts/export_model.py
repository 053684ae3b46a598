"""Export an image encoder, and its text encoder if it has one, to a folder that `logt images index --model` reads.

    pip install torch onnx tokenizers timm open_clip_torch transformers      # what of these you use
    python scripts/export_model.py timm vit_small_patch14_dinov2.lvd142m models/dinov2
    python scripts/export_model.py open_clip ViT-B-32:laion2b_s34b_b79k models/clip
    python scripts/export_model.py transformers google/siglip-base-patch16-224 models/siglip
    logt images index FOLDER --model models/clip

The weights are those that the library downloads or has. The folder gets vision_model.onnx and logt.json (the
preprocessing) and, for CLIP and SigLIP, text_model.onnx and tokenizer.json. The outputs are compared with torch.
"""

import argparse
import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

IMAGE_FILE, TEXT_FILE = "vision_model.onnx", "text_model.onnx"
RESAMPLES = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # by their numbers in Pillow


class Call(torch.nn.Module):
    """A function of the parts of a model, as a network of its own."""

    def __init__(self, model: torch.nn.Module, function: Callable[[torch.Tensor], torch.Tensor]):
        super().__init__()
        self.model, self.function = model, function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def export_timm(model: torch.nn.Module, folder: Path) -> None:
    """Export a model of timm that was created with num_classes=0, which returns a vector."""
    import timm

    config = timm.data.resolve_model_data_config(model)
    squash = config["crop_mode"] == "squash"
    settings = {
        "mean": list(config["mean"]),
        "std": list(config["std"]),
        "size": list(config["input_size"][1:]),
        "fit": "stretch" if squash else "crop",
        "zoom": 1.0 if squash else config["crop_pct"],
        "resample": config["interpolation"] if config["interpolation"] in RESAMPLES else "bicubic",
    }
    _export_images(Call(model, model), "image_embeds", settings, folder)


def export_open_clip(model: torch.nn.Module, tokenizer: Any, folder: Path) -> None:
    """Export a model of open_clip and its tokenizer, which is a byte pair encoding of CLIP or one of transformers."""
    import open_clip

    config = open_clip.get_model_preprocess_cfg(model)
    size = config["size"]
    settings = {
        "mean": list(config["mean"]),
        "std": list(config["std"]),
        "size": list(size) if isinstance(size, list | tuple) else [size, size],
        "fit": "stretch" if config.get("resize_mode") == "squash" else "crop",
        "resample": config.get("interpolation", "bicubic"),
        "text_length": tokenizer.context_length,
    }
    _export_images(Call(model, model.encode_image), "image_embeds", settings, folder)
    _export_texts(Call(model, model.encode_text), tokenizer.context_length, folder)
    inner = getattr(tokenizer, "tokenizer", None)
    saved = clip_tokenizer(tokenizer.encoder, tokenizer.bpe_ranks) if inner is None else inner.backend_tokenizer
    if inner is not None:
        saved.enable_padding(pad_id=inner.pad_token_id, pad_token=inner.pad_token)
    saved.save(str(folder / "tokenizer.json"))


def export_transformers(model: torch.nn.Module, processor: Any, tokenizer: Any, folder: Path) -> None:
    """Export a model of transformers: CLIP or SigLIP with its tokenizer, or a vision transformer with None."""
    edge = getattr(processor, "crop_size", None) if getattr(processor, "do_center_crop", False) else processor.size
    height = edge.get("height") or edge.get("shortest_edge")
    width = edge.get("width") or edge.get("shortest_edge")
    cropped = bool(getattr(processor, "do_center_crop", False)) and "shortest_edge" in processor.size
    settings = {
        "mean": list(processor.image_mean),
        "std": list(processor.image_std),
        "size": [height, width],
        "fit": "crop" if cropped else "stretch",
        "zoom": min(height, width) / processor.size["shortest_edge"] if cropped else 1.0,
        "resample": RESAMPLES[processor.resample],
    }
    if tokenizer is None:
        _export_images(Call(model, lambda x: model(pixel_values=x)[0]), "tokens", settings, folder)
        return
    length = model.config.text_config.max_position_embeddings
    settings["text_length"] = length
    _export_images(
        Call(model, lambda x: _features(model.get_image_features(pixel_values=x))), "image_embeds", settings, folder
    )
    _export_texts(Call(model, lambda x: _features(model.get_text_features(input_ids=x))), length, folder)
    saved = tokenizer.backend_tokenizer
    saved.enable_padding(pad_id=tokenizer.pad_token_id, pad_token=tokenizer.pad_token)
    saved.save(str(folder / "tokenizer.json"))


def _features(output: Any) -> torch.Tensor:
    """Return the vectors, which some versions of transformers wrap."""
    return output if isinstance(output, torch.Tensor) else output.pooler_output


def clip_tokenizer(vocabulary: Mapping[str, int], ranks: Mapping[tuple[str, str], int]) -> Any:
    """Return the tokenizer of CLIP from its vocabulary and the order of its merges."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

    first, last = "<start_of_text>", "<end_of_text>"
    merges = sorted(ranks, key=lambda pair: ranks[pair])
    bpe = models.BPE(dict(vocabulary), merges, end_of_word_suffix="</w>", unk_token=last)
    tokenizer = Tokenizer(bpe)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    pattern = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    ends = [(token, vocabulary[token]) for token in (last, first)]
    tokenizer.post_processor = processors.RobertaProcessing(*ends, add_prefix_space=False, trim_offsets=False)
    return tokenizer


# ---------------------------------------------------------------------------------------------------- ONNX files


def _export_images(network: torch.nn.Module, output: str, settings: Mapping[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    height, width = settings["size"]
    example = torch.rand(2, 3, height, width, generator=torch.Generator().manual_seed(0))
    _export(network, example, "pixel_values", output, folder / IMAGE_FILE)
    values = {"name": folder.name, **settings}
    (folder / "logt.json").write_text(json.dumps(values, indent=1) + "\n")


def _export_texts(network: torch.nn.Module, length: int, folder: Path) -> None:
    example = torch.randint(1, 10, (2, length), generator=torch.Generator().manual_seed(0))
    _export(network, example, "input_ids", "text_embeds", folder / TEXT_FILE)


def _export(network: torch.nn.Module, example: torch.Tensor, input: str, output: str, file: Path) -> None:
    network.eval()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (example,),
            str(file),
            input_names=[input],
            output_names=[output],
            dynamic_axes={input: {0: "N"}, output: {0: "N"}},
            opset_version=17,
            dynamo=False,
        )
        expected = network(example).numpy()
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    given = session.run([output], {input: example.numpy()})[0]
    difference = float(np.abs(given - expected).max() / np.abs(expected).max())
    print(f"{file}: {file.stat().st_size:,} bytes, output {given.shape}, difference from torch {difference:.1e}")
    if difference > 1e-3:
        raise SystemExit(f"{file} differs from the torch model")


# ------------------------------------------------------------------------------------------------------ commands


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", choices=["timm", "open_clip", "transformers"])
    parser.add_argument("model", help="its name in that library; for open_clip NAME:WEIGHTS")
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    {"timm": _from_timm, "open_clip": _from_open_clip, "transformers": _from_transformers}[args.library](
        args.model, args.folder
    )


def _from_timm(name: str, folder: Path) -> None:
    import timm

    export_timm(timm.create_model(name, pretrained=True, num_classes=0), folder)


def _from_open_clip(name: str, folder: Path) -> None:
    import open_clip

    name, _, weights = name.partition(":")
    model, _, _ = open_clip.create_model_and_transforms(name, pretrained=weights or None)
    export_open_clip(model, open_clip.get_tokenizer(name), folder)


def _from_transformers(name: str, folder: Path) -> None:
    import transformers

    model = transformers.AutoModel.from_pretrained(name, attn_implementation="eager")
    processor = transformers.AutoImageProcessor.from_pretrained(name)
    has_text = hasattr(model, "get_text_features")
    tokenizer = transformers.AutoTokenizer.from_pretrained(name) if has_text else None
    export_transformers(model, processor, tokenizer, folder)


if __name__ == "__main__":
    main()

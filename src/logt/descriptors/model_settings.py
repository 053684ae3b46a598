"""Model settings: presets, and the configuration files of transformers, open_clip and timm -> settings of a model."""

from collections.abc import Mapping
from typing import Any

from logt.descriptors.preprocessing import RESAMPLES
from logt.errors import InvalidInputError

INPUT_KEYS = ("layout", "mean", "std", "side", "multiple", "size", "fit", "zoom", "resample")
"""Settings of the preprocessing: the fields of `Preprocessing`."""

OUTPUT_KEYS = ("output", "pooling", "prefix", "scales", "whiten")
"""Settings of the output: which, how tokens are pooled, at which scales, and whether descriptors are whitened."""

TEXT_KEYS = ("text_model", "tokenizer", "text_output", "text_length", "text_padding", "text_lowercase")
"""Settings of the text encoder."""

NOTES = ("name", "source", "license", "weights")

_CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))

PRESETS: dict[str, dict[str, Any]] = {
    "clip": {"mean": _CLIP[0], "std": _CLIP[1], "size": (224, 224), "fit": "crop"},
    "siglip": {"mean": _HALF[0], "std": _HALF[1], "size": (224, 224), "fit": "stretch", "text_length": 64},
    "dinov2": {
        "mean": _IMAGENET[0],
        "std": _IMAGENET[1],
        "size": None,
        "side": 322,
        "multiple": 14,
        "scales": (1.0,),
    },
    "timm": {"mean": _IMAGENET[0], "std": _IMAGENET[1], "size": (224, 224), "fit": "crop", "zoom": 0.875},
}
"""The usual values of families of models. A size is for files that accept any; a fixed size of the file is used."""


def check_settings(settings: Mapping[str, Any], where: object) -> dict[str, Any]:
    """Return the settings; raise for keys that are unknown. where: they come from, such as a file."""
    known = (*INPUT_KEYS, *OUTPUT_KEYS, *TEXT_KEYS, *NOTES)
    for key in settings:
        if key not in known:
            raise InvalidInputError(f"{where} has an unknown setting {key!r}; known: {', '.join(known)}")
    return dict(settings)


def from_transformers(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in a preprocessor_config.json of the library transformers."""
    settings: dict[str, Any] = {}
    size = _size(config.get("size"))
    crop = _size(config.get("crop_size")) if config.get("do_center_crop", "crop_size" in config) else None
    if config.get("do_resize", True) and size:
        edge = min(size)
        settings["size"] = crop or size
        keeps_aspect = "shortest_edge" in config["size"] if isinstance(config["size"], dict) else crop is not None
        settings["fit"] = "crop" if keeps_aspect else "stretch"
        if keeps_aspect and crop:
            settings["zoom"] = min(1.0, min(crop) / edge)
    if isinstance(resample := config.get("resample"), int) and 0 <= resample < len(RESAMPLES):
        settings["resample"] = RESAMPLES[resample]
    # (rgb * factor - mean) / std, as (rgb / 255 - mean) / std
    factor = 255 * float(config.get("rescale_factor", 1 / 255)) if config.get("do_rescale", True) else 255.0
    normalizes = config.get("do_normalize", True)
    mean = config.get("image_mean", _IMAGENET[0]) if normalizes else (0.0, 0.0, 0.0)
    std = config.get("image_std", _IMAGENET[1]) if normalizes else (1.0, 1.0, 1.0)
    factor = 1.0 if abs(factor - 1) < 1e-6 else factor
    return {**settings, "mean": [m / factor for m in mean], "std": [s / factor for s in std]}


def from_open_clip(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in a preprocess_cfg.json or an open_clip_config.json of the library open_clip."""
    config = config.get("preprocess_cfg", config)
    settings = _equal_settings(config)
    if size := _size(config.get("size")):
        settings |= {"size": size, "fit": "stretch" if config.get("resize_mode") == "squash" else "crop"}
    return settings


def from_timm(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in a config.json of the library timm; {} if it is that of another library."""
    config = config.get("pretrained_cfg", {})
    settings = _equal_settings(config)
    if "input_size" in config:
        squash = config.get("crop_mode") == "squash"
        settings |= {"size": config["input_size"][1:], "fit": "stretch" if squash else "crop"}
        settings["zoom"] = 1.0 if squash else config.get("crop_pct", 1.0)
    return settings


def _equal_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that open_clip and timm store alike."""
    settings = {key: config[key] for key in ("mean", "std") if key in config}
    return {**settings, "resample": config["interpolation"]} if config.get("interpolation") in RESAMPLES else settings


def _size(value: Any) -> tuple[int, int] | None:
    """Return (height, width) of a size in the forms that configuration files use."""
    if isinstance(value, int):
        return value, value
    if isinstance(value, list | tuple) and value:
        return int(value[0]), int(value[-1])
    if isinstance(value, dict):
        edge = value.get("shortest_edge")
        height, width = value.get("height", edge), value.get("width", edge)
        return (int(height), int(width)) if height and width else None
    return None

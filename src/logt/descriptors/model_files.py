"""Model files: the name or path of a model -> its ONNX files, and the settings in the JSON files next to them."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logt.descriptors.model_catalog import CATALOG
from logt.descriptors.model_checksums import check_complete, check_unchanged, is_file
from logt.descriptors.model_settings import (
    PRESETS,
    TEXT_KEYS,
    check_settings,
    from_open_clip,
    from_timm,
    from_transformers,
)
from logt.errors import InvalidInputError
from logt.storage.files import read_bytes

BUILT_IN = {
    "dinov2": Path(__file__).with_name("dinov2-vits14.onnx"),
    "lite": Path(__file__).with_name("efficientnet-lite0.onnx"),
}
"""The networks that the package includes, by name."""

DEFAULT_NAME = "dinov2"

SETTINGS = "logt.json"
"""The file with the settings that were chosen for a model."""

_IMAGE_FILES = (
    *("vision_model.onnx", "onnx/vision_model.onnx", "visual.onnx", "visual/model.onnx"),
    *("image_encoder.onnx", "model.onnx", "onnx/model.onnx"),
)
_TEXT_FILES = (
    *("text_model.onnx", "onnx/text_model.onnx", "textual.onnx", "textual/model.onnx"),
    "text_encoder.onnx",
)
_TOKENIZERS = ("tokenizer.json", "textual/tokenizer.json")
_PARTS = {"onnx", "visual", "textual"}  # subfolders of a model
_CONFIGS = {
    "preprocessor_config.json": from_transformers,
    "preprocess_cfg.json": from_open_clip,
    "open_clip_config.json": from_open_clip,
    "config.json": from_timm,
}
_MAX_JSON = 1 << 26


@dataclass(frozen=True)
class TextFiles:
    """The files of the text encoder of a model, None if it has none, and its settings."""

    model: Path | None = None
    tokenizer: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


def find_model(model: str | Path | None) -> Path:
    """Return the ONNX file of the image encoder of a model.

    model: a file, a folder that contains one, the name of an included network or of one that was downloaded, or the
    name of a file or folder in the folder of models. None is the model that the environment variable LOGT_MODEL
    names, or the default network.
    """
    name = os.environ.get("LOGT_MODEL", DEFAULT_NAME) if model is None else str(model)
    if (included := name_of_included(name)) in BUILT_IN:
        return BUILT_IN[included]
    path = Path(name)
    if not path.exists() and len(path.parts) == 1:
        candidates = [models_folder() / name, models_folder() / f"{name}.onnx"]
        path = next((candidate for candidate in candidates if candidate.exists()), path)
    if path.is_dir():
        return _find_in(path, _IMAGE_FILES) or _only_onnx(path)
    if not path.exists() and name in CATALOG:
        raise InvalidInputError(
            f"the model {name!r} is not on this machine yet: logt models get {name} downloads "
            f"{CATALOG[name].bytes / 1e6:,.0f} MB"
        )
    if not path.exists() and path.suffix != ".onnx":
        raise InvalidInputError(
            f"there is no model {name!r}; pass an ONNX file, a folder that contains one, "
            f"one of {', '.join(map(repr, (*BUILT_IN, *CATALOG)))}, or a name in the folder {models_folder()}"
        )
    return path.resolve()


def models_folder() -> Path:
    """Return the folder of models: the one that the environment variable LOGT_MODELS names, or one of this user."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return Path(os.environ.get("LOGT_MODELS") or data / "logt" / "models")


def name_of_included(model: str) -> str:
    """Return the name of an included network, given the stem of its file, which indexes store; others as they are."""
    return next((name for name, path in BUILT_IN.items() if path.stem == model), model)


def find_text_files(image: Path, settings: Mapping[str, Any]) -> TextFiles:
    """Return the text encoder that belongs to an image encoder; the settings may name it."""
    if image in BUILT_IN.values():
        return TextFiles()
    text = _named(image, settings, "text_model") or _find_near(image, _TEXT_FILES)
    tokenizer = _named(image, settings, "tokenizer") or _find_near(image, _TOKENIZERS)
    if not text or not tokenizer or text == image:
        return TextFiles()
    return TextFiles(text, tokenizer, {key: settings[key] for key in TEXT_KEYS if key in settings})


def read_settings(image: Path, preset: str | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings in the files of other libraries, and those that were chosen for this model.

    image: its ONNX file. NAME.json next to NAME.onnx, or logt.json, holds the settings that were chosen for it.
    preset: the usual values of a family of models, which are chosen as well.
    """
    if preset is not None and preset not in PRESETS:
        raise InvalidInputError(f"preset must be one of {', '.join(map(repr, PRESETS))}, got {preset!r}")
    if image in BUILT_IN.values():
        return {}, dict(PRESETS[preset]) if preset else {}
    check_complete(image.parent)
    own: dict[str, Any] = {}
    for file in (image.with_suffix(".json"), *(folder / SETTINGS for folder in _folders(image))):
        if file.is_file() and file.name not in _CONFIGS:
            own = check_settings(read_json(file), file)
            check_unchanged(file, hashlib.sha256(read_bytes(file, _MAX_JSON)).hexdigest())
            break
    return _read_config(image), {**(PRESETS[preset] if preset else {}), **own}


def _read_config(image: Path) -> dict[str, Any]:
    """Return the settings in the configuration files of other tools, {} if there are none."""
    files = [(folder / name, convert) for folder in _folders(image) for name, convert in _CONFIGS.items()]
    for file, convert in files:
        values = read_json(file) if file.is_file() else {}
        try:
            settings = convert(values) if values else {}
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            raise InvalidInputError(f"{file} has an unsupported form: {error!r}") from error
        if settings:
            return settings
    return {}


def _folders(image: Path) -> Iterator[Path]:
    """Yield the folder of a file, and the folder of the model if that is a part of it."""
    yield image.parent
    if image.parent.name in _PARTS:
        yield image.parent.parent


def _find_in(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next(((folder / name).resolve() for name in names if (folder / name).is_file()), None)


def _find_near(image: Path, names: tuple[str, ...]) -> Path | None:
    return next((found for folder in _folders(image) if (found := _find_in(folder, names))), None)


def _named(image: Path, settings: Mapping[str, Any], key: str) -> Path | None:
    """Return a file that the settings name, relative to the image encoder."""
    if key not in settings:
        return None
    path = image.parent / str(settings[key])
    if not is_file(path):
        raise InvalidInputError(f"{key} of the model {image} is {path}, which is not a file")
    return path.resolve()


def _only_onnx(folder: Path) -> Path:
    """Return the only ONNX file of a folder; raise if there are none or several."""
    files = sorted(path for path in folder.glob("*.onnx") if path.name not in _TEXT_FILES)
    if len(files) == 1:
        return files[0].resolve()
    found = f"several ONNX files ({', '.join(path.name for path in files)})" if files else "no image encoder"
    raise InvalidInputError(
        f"the folder {folder} contains {found}; pass the path of the file, or name it as one of "
        f"{', '.join(_IMAGE_FILES)}"
    )


def read_json(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file."""
    try:
        data = read_bytes(file, _MAX_JSON)
    except OSError as error:
        raise InvalidInputError(f"{file} cannot be read as JSON: {error}") from error
    return parse_json(data, file)


def parse_json(data: bytes, file: Path) -> dict[str, Any]:
    """Return the object that the bytes of a JSON file hold. file: its name in errors."""
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{file} cannot be read as JSON: {error}") from error
    if not isinstance(values, dict):
        raise InvalidInputError(f"{file} must contain a JSON object")
    return values

"""Networks: any ONNX model that returns a feature map, tokens or a vector, or one that the package includes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from logt._internal.types import Floats
from logt._internal.validation import check_choice, check_float, check_int
from logt.descriptors.boxes import Box
from logt.descriptors.model_files import ModelFiles, find_files, find_model, read_settings
from logt.descriptors.model_settings import INPUT_KEYS, OUTPUT_KEYS
from logt.descriptors.onnx_session import choose_output, create_session, read_model_file, run_session
from logt.descriptors.pooling import POOLINGS, pool_tokens
from logt.descriptors.preprocessing import Preprocessing
from logt.errors import InvalidInputError

if TYPE_CHECKING:
    from PIL.Image import Image

_METADATA_KEY = "logt"
_INPUT_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
_OUTPUTS = ("image_embeds", "image_features", "pooler_output", "embedding")  # of the usual exports, best first


@dataclass(frozen=True)
class Output:
    """What a network returns, and what becomes of it.

    name: of the output. pooling, prefix: of tokens, see `logt.descriptors.pooling.pool_tokens`. scales: of the images
    that the network processes; empty for the default ones. whiten: whether descriptors are whitened.
    """

    name: str
    pooling: str = "cls"
    prefix: int = 1
    scales: Sequence[float] = ()
    whiten: bool = True

    def __post_init__(self) -> None:
        check_choice("pooling", self.pooling, POOLINGS)
        check_int("prefix", self.prefix, 0)
        if not isinstance(self.scales, list | tuple):
            raise InvalidInputError(f"scales must be a list of numbers, got {self.scales!r}")
        object.__setattr__(self, "scales", tuple(check_float("scale", scale) for scale in self.scales))
        if not isinstance(self.whiten, bool):
            raise InvalidInputError(f"whiten must be true or false, got {self.whiten!r}")


@dataclass(frozen=True)
class Model:
    """A network and its preprocessing, created by `Model.load`; threads may share it.

    path: the ONNX file. name: for reports. sha256: of the file. preprocessing: from an image to the input. output: of
    the network. files: the text encoder that belongs to it, if there is one. session: of onnxruntime.
    """

    path: Path
    name: str
    sha256: str
    preprocessing: Preprocessing
    output: Output
    files: ModelFiles
    session: Any = field(repr=False, compare=False)

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        preset: str | None = None,
        layout: str | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        side: int | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Model:
        """Load an ONNX file, by default the model included in the package.

        Values that are not given are read from NAME.json next to NAME.onnx, then from the preset, from the JSON
        object in the file's metadata under the key "logt", from the files of other libraries, such as
        preprocessor_config.json, and from the shape of its input. The last default is NCHW with the mean and std of
        ImageNet.

        path: the ONNX file, a folder that contains one, or the name of a model: "dinov2" (the default, unless
        the environment variable LOGT_MODEL names another one), "lite", or one in the folder LOGT_MODELS.
        preset: the usual values of a family of models: "clip", "siglip", "dinov2" or "timm".
        layout: "NCHW" or "NHWC".
        mean, std: three numbers each: the input is (rgb / 255 - mean) / std.
        side: the longer side of an image, in pixels, at scale 1.
        settings: other values by name, as in NAME.json; no such file is read then.
        """
        file = find_model(path)
        data = read_model_file(file)
        session = create_session(data, file)
        arguments = {"layout": layout, "mean": mean, "std": std, "side": side}
        given = {name: value for name, value in arguments.items() if value is not None}
        config, chosen = read_settings(file, preset) if settings is None else ({}, dict(settings))
        values = {**config, **_read_metadata(session, file), **chosen, **given}
        model = cls(
            file,
            str(values.get("name", file.stem)),
            hashlib.sha256(data).hexdigest(),
            _preprocessing(session, values, file),
            _output(session, values, file),
            find_files(file, values),
            session,
        )
        model._check_output()
        return model

    @property
    def has_text(self) -> bool:
        """Whether a text encoder belongs to the model."""
        return self.files.text is not None

    @property
    def settings(self) -> dict[str, Any]:
        """All settings except those that are arguments of `load`; `load(settings=…)` gives the same model."""
        fields = {**asdict(self.preprocessing), **asdict(self.output), "output": self.output.name}
        names = [name for name in (*INPUT_KEYS, *OUTPUT_KEYS) if name not in ("layout", "mean", "std", "side")]
        return {**{name: fields[name] for name in names}, **self.files.settings}

    def __call__(self, image: Image, box: Box, scale: float = 1.0) -> Floats:
        """Return the feature map, (C, H, W), or the vector, (D,), of a region of an image, in pixels."""
        return self._run(self.preprocessing(image, box, scale))

    def _run(self, x: Floats) -> Floats:
        first_input = self.session.get_inputs()[0]
        batch = x.astype(_INPUT_TYPES[first_input.type])
        output = np.asarray(run_session(self.session, self.output.name, {first_input.name: batch}, self.path))
        if not output.size:
            raise InvalidInputError(f"the model {self.path} has an empty output")
        features: Floats = output[0].astype(np.float32)
        if features.ndim == 2:
            return pool_tokens(features, self.output.pooling, self.output.prefix)
        is_nhwc_map = features.ndim == 3 and self.preprocessing.layout == "NHWC"
        return features.transpose(2, 0, 1) if is_nhwc_map else features

    def _check_output(self) -> None:
        """Raise if the output for a black image is neither a feature map nor tokens nor a vector."""
        side = max(64, self.preprocessing.multiple)
        side -= side % self.preprocessing.multiple
        height, width = self.preprocessing.size or (side, side)
        shape = (3, height, width) if self.preprocessing.layout == "NCHW" else (height, width, 3)
        output = self._run(np.zeros((1, *shape), np.float32))
        if output.ndim not in (1, 3) or not output.size or np.isnan(output).any():
            raise InvalidInputError(
                f"the model {self.path} has an output of shape {(1, *output.shape)}, "
                "expected a feature map (N, C, H, W), tokens (N, T, D) or a vector (N, D)"
            )


def _read_metadata(session: Any, file: Path) -> Mapping[str, Any]:
    text = session.get_modelmeta().custom_metadata_map.get(_METADATA_KEY, "{}")
    try:
        metadata = json.loads(text)
    except ValueError as error:
        raise InvalidInputError(f"{file}: the metadata under {_METADATA_KEY!r} are not JSON: {error}") from error
    return metadata if isinstance(metadata, dict) else {}


def _preprocessing(session: Any, settings: Mapping[str, Any], file: Path) -> Preprocessing:
    """Return the preprocessing that the settings and the input shape of the model define."""
    inputs = session.get_inputs()
    shape = inputs[0].shape if inputs else []
    if len(inputs) != 1 or len(shape) != 4 or inputs[0].type not in _INPUT_TYPES:
        raise InvalidInputError(
            f"{file} must have one input, a batch of images as floats, (N, 3, H, W) or (N, H, W, 3)"
        )
    values = {name: settings[name] for name in INPUT_KEYS if name in settings}
    values.setdefault("layout", "NHWC" if shape[3] == 3 and shape[1] != 3 else "NCHW")
    height, width = shape[2:] if values["layout"] == "NCHW" else shape[1:3]
    if isinstance(height, int) and isinstance(width, int):
        values["size"] = (height, width)
    return Preprocessing(**values)


def _output(session: Any, settings: Mapping[str, Any], file: Path) -> Output:
    """Return the output that the settings define; descriptors that texts are compared with are not whitened."""
    values = {name: settings[name] for name in ("pooling", "prefix", "scales") if name in settings}
    whiten = settings.get("whiten", not find_files(file, settings).text)
    return Output(choose_output(session, settings.get("output"), _OUTPUTS, file), whiten=whiten, **values)

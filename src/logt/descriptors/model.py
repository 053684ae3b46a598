"""Networks: an image -> one vector of norm 1, from any ONNX model or one that the package includes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from logt._internal.types import Floats
from logt._internal.validation import check_choice, check_float, check_int
from logt.descriptors.boxes import Box, to_pixels
from logt.descriptors.model_files import TextFiles, find_model, find_text_files, read_settings
from logt.descriptors.model_settings import INPUT_KEYS, OUTPUT_KEYS, check_settings
from logt.descriptors.onnx_session import choose_output, load_session, run_session
from logt.descriptors.pooling import POOLINGS, combine_scales, gem, pool_tokens
from logt.descriptors.preprocessing import Preprocessing
from logt.errors import InvalidInputError

if TYPE_CHECKING:
    from PIL.Image import Image

SCALES = (1.0, 1 / math.sqrt(2), 0.5)
"""The three scales of the paper."""

_METADATA_KEY = "logt"
_INPUT_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
_OUTPUTS = ("image_embeds", "image_features", "pooler_output", "embedding")  # of the usual exports, best first


@dataclass(frozen=True)
class Output:
    """What a network returns, and what becomes of it.

    name: of the output. pooling, prefix: of tokens, see `logt.descriptors.pooling.pool_tokens`. scales: of the images
    that the network processes. whiten: whether descriptors are whitened.
    """

    name: str
    pooling: str = "cls"
    prefix: int = 1
    scales: Sequence[float] = SCALES
    whiten: bool = True

    def __post_init__(self) -> None:
        check_choice("pooling", self.pooling, POOLINGS)
        check_int("prefix", self.prefix, 0)
        if not isinstance(self.scales, list | tuple) or not self.scales:
            raise InvalidInputError(f"scales must be a list of numbers, got {self.scales!r}")
        scales = tuple(check_float("scale", scale) for scale in self.scales)
        if not all(0 < scale <= 8 for scale in scales):
            raise InvalidInputError(f"scales must be above 0 and at most 8, got {self.scales!r}")
        object.__setattr__(self, "scales", scales)
        if not isinstance(self.whiten, bool):
            raise InvalidInputError(f"whiten must be true or false, got {self.whiten!r}")


@dataclass(frozen=True)
class Model:
    """A network that computes the descriptors of images, created by `Model.load`; threads may share it.

    path: the ONNX file. name: for reports. sha256: the fingerprint of its files. preprocessing: from an image to the
    input. output: of the network. text: the text encoder that belongs to it, if any. session: of onnxruntime.
    """

    path: Path
    name: str
    sha256: str
    preprocessing: Preprocessing
    output: Output
    text: TextFiles
    session: Any = field(repr=False, compare=False)

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        preset: str | None = None,
        settings: Mapping[str, Any] | None = None,
        **given: Any,
    ) -> Model:
        """Load an ONNX file, by default the model included in the package.

        Values that are not given are read from NAME.json next to NAME.onnx, then from the preset, from the JSON
        object in the file's metadata under the key "logt", from the files of other libraries, such as
        preprocessor_config.json, and from the shape of its input. The last default is NCHW with the mean and std of
        ImageNet.

        path: the ONNX file, a folder that contains one, or the name of a model: "dinov2" (the default, unless
        the environment variable LOGT_MODEL names another one), "lite", one that `logt models get` has downloaded, or
        one in the folder LOGT_MODELS.
        preset: the usual values of a family of models: "clip", "siglip", "dinov2" or "timm".
        settings: values by name, as in NAME.json; no such file is read then.
        given: values by name that come before all others, such as side=224 or mean=(0.5, 0.5, 0.5).
        """
        file = find_model(path)
        session, sha256 = load_session(file)
        config, chosen = read_settings(file, preset) if settings is None else ({}, settings)
        values = {**config, **_read_metadata(session, file), **chosen, **check_settings(given, "Model.load")}
        preprocessing, text = _preprocessing(session, values, file), find_text_files(file, values)
        output = {name: values[name] for name in OUTPUT_KEYS if name in values}
        output["name"] = choose_output(session, output.pop("output", None), _OUTPUTS, file)
        output.setdefault("whiten", not text.model)  # descriptors that texts are compared with are not
        if preprocessing.size is not None:
            output["scales"] = (1.0,)
        name = str(values.get("name", file.stem))
        model = cls(file, name, sha256, preprocessing, Output(**output), text, session)
        model._check_output()
        return model

    @property
    def has_text(self) -> bool:
        """Whether a text encoder belongs to the model."""
        return self.text.model is not None

    @property
    def settings(self) -> dict[str, Any]:
        """All settings: `load(path, settings=…)` gives the same model."""
        fields = {**asdict(self.preprocessing), **asdict(self.output), "output": self.output.name}
        return {**{name: fields[name] for name in (*INPUT_KEYS, *OUTPUT_KEYS)}, **self.text.settings}

    @property
    def side(self) -> int:
        """The longer side, in pixels, of the images that the network needs."""
        preprocessing = self.preprocessing
        longest = max(preprocessing.size or (math.ceil(preprocessing.side * max(self.output.scales)),))
        return 2 * longest if preprocessing.fit == "crop" else longest

    def __call__(self, image: Image, box: Box | None = None) -> Floats:
        """Return the descriptor, not whitened, of an RGB image or of its region in a box."""
        region = to_pixels((0, 0, 1, 1) if box is None else box, image.size)
        outputs = [self._run(self.preprocessing(image, region, scale)) for scale in self.output.scales]
        descriptor = combine_scales([gem(out) if out.ndim == 3 else out for out in outputs])
        if not np.isfinite(descriptor).all() or not descriptor.any():
            raise InvalidInputError(f"the model {self.name} returns zeros, NaN or infinity for this image")
        return descriptor

    def _run(self, x: Floats) -> Floats:
        """Return the feature map, (C, H, W), or the vector, (D,), of an input of the network."""
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
    except (ValueError, RecursionError) as error:
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

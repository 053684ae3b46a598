"""Networks: any ONNX model that returns a feature map or a vector, or the one included in the package."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from logt._types import Floats
from logt.descriptors.preprocessing import Box, Preprocessing
from logt.errors import InvalidInputError, MissingExtraError
from logt.storage.files import read_bytes

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_BYTES = 1 << 31
"""Larger files are refused: an ONNX file has at most so many bytes."""

DEFAULT_MODEL = Path(__file__).with_name("efficientnet-lite0.onnx")
_METADATA_KEY = "logt"
_INPUT_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


@dataclass(frozen=True)
class Model:
    """A network and its preprocessing, created by `Model.load`; threads may share it.

    path: the ONNX file. name: for reports. sha256: of the file. preprocessing: from an image to the input. session:
    of onnxruntime.
    """

    path: Path
    name: str
    sha256: str
    preprocessing: Preprocessing
    session: Any = field(repr=False, compare=False)

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        layout: str | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        side: int | None = None,
    ) -> Model:
        """Load an ONNX file, by default the model included in the package.

        Values that are not given are read from the JSON object in the file's metadata under the key "logt", then
        from the shape of its input; the last default is NCHW with the mean and std of ImageNet.

        path: the ONNX file.
        layout: "NCHW" or "NHWC".
        mean, std: three numbers each: the input is (rgb / 255 - mean) / std.
        side: the longer side of an image, in pixels, at scale 1.
        """
        file = DEFAULT_MODEL if path is None else Path(path).resolve()
        try:
            data = read_bytes(file, MAX_BYTES)
        except OSError as error:
            raise InvalidInputError(f"the model {file} cannot be read: {error.strerror or error}") from error
        session = _create_session(data, file)
        arguments = {"layout": layout, "mean": mean, "std": std, "side": side}
        given = {name: value for name, value in arguments.items() if value is not None}
        metadata = _read_metadata(session, file)
        preprocessing = _preprocessing(session, {**metadata, **given}, file)
        name = str(metadata.get("name", file.stem))
        model = cls(file, name, hashlib.sha256(data).hexdigest(), preprocessing, session)
        model._check_output()
        return model

    def __call__(self, image: Image, box: Box, scale: float = 1.0) -> Floats:
        """Return the feature map, (C, H, W), or the vector, (D,), of the region of an image in the box."""
        return self._run(self.preprocessing(image, box, scale))

    def _run(self, x: Floats) -> Floats:
        first_input, first_output = self.session.get_inputs()[0], self.session.get_outputs()[0]
        batch = x.astype(_INPUT_TYPES[first_input.type])
        try:
            output = np.asarray(self.session.run([first_output.name], {first_input.name: batch})[0])
        except Exception as error:  # onnxruntime has no exception class of its own for failed runs
            raise InvalidInputError(f"the model {self.path} failed on an image: {error}") from error
        features: Floats = output[0].astype(np.float32)
        is_nhwc_map = features.ndim == 3 and self.preprocessing.layout == "NHWC"
        return features.transpose(2, 0, 1) if is_nhwc_map else features

    def _check_output(self) -> None:
        """Raise if the output for a black image is neither a feature map nor a vector."""
        height, width = self.preprocessing.size or (64, 64)
        shape = (3, height, width) if self.preprocessing.layout == "NCHW" else (height, width, 3)
        output = self._run(np.zeros((1, *shape), np.float32))
        if output.ndim not in (1, 3) or not output.size:
            raise InvalidInputError(
                f"the model {self.path} has an output of shape {(1, *output.shape)}, "
                "expected a feature map (N, C, H, W) or a vector (N, D)"
            )


def _create_session(data: bytes, file: Path) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError(
            "computing descriptors needs onnxruntime: pip install 'logt-search[images]'"
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # images are processed in parallel instead
    options.enable_mem_pattern = False  # it needs inputs of equal size
    options.log_severity_level = 4  # errors are raised as exceptions
    try:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has no exception class of its own for invalid files
        raise InvalidInputError(f"{file} cannot be loaded as an ONNX model: {error}") from error


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
    layout = settings.get("layout", "NHWC" if shape[3] == 3 and shape[1] != 3 else "NCHW")
    values = {name: settings[name] for name in ("mean", "std", "side", "multiple") if name in settings}
    height, width = shape[2:] if layout == "NCHW" else shape[1:3]
    size = (height, width) if isinstance(height, int) and isinstance(width, int) else None
    return Preprocessing(layout=layout, size=size, **values)

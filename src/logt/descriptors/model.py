"""The network, picture -> feature map or vector: any ONNX model, or the one inside the package."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from logt._types import Floats
from logt._validation import check_choice, check_float, check_int
from logt.descriptors.image_io import pillow
from logt.errors import InvalidInputError, MissingExtraError

if TYPE_CHECKING:
    from PIL.Image import Image

Box = tuple[float, float, float, float]
"""left, top, right, bottom: pixels of the upright picture."""

BUILT_IN = Path(__file__).with_name("efficientnet-lite0.onnx")
_LEAST = 32  # pixels of the shorter side: networks answer nothing to less
_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


@dataclass(frozen=True)
class Preparation:
    """How a picture becomes the input of a network: (rgb / 255 - mean) / std, in a layout.

    `side` is the longer side at scale 1, `multiple` what sides are rounded to; `size` (height, width) is there
    where the network takes only one.
    """

    layout: str = "NCHW"
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    side: int = 1024
    multiple: int = 1
    size: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        check_choice("layout", self.layout, ("NCHW", "NHWC"))
        for name in ("mean", "std"):
            given = getattr(self, name)
            if not isinstance(given, Sequence) or len(given) != 3:
                raise InvalidInputError(f"{name} must be three numbers, for red, green and blue, got {given!r}")
            object.__setattr__(self, name, tuple(check_float(name, value) for value in given))
        if min(self.std) <= 0:
            raise InvalidInputError(f"std must be above 0, got {self.std}")
        for name in ("side", "multiple"):
            object.__setattr__(self, name, check_int(name, getattr(self, name)))

    def __call__(self, image: Image, box: Box, scale: float) -> Floats:
        """The part of the picture in the box as a batch of one."""
        shown = image.resize(self._size(box, scale)[::-1], pillow().Resampling.BICUBIC, box=box, reducing_gap=2.0)
        x: Floats = np.asarray(shown, np.float32)
        mean, std = (np.array(values, np.float32) for values in (self.mean, self.std))
        ready: Floats = (x / np.float32(255) - mean) / std
        return np.ascontiguousarray(ready.transpose(2, 0, 1) if self.layout == "NCHW" else ready)[None]

    def _size(self, box: Box, scale: float) -> tuple[int, int]:
        if self.size is not None:
            return self.size
        width, height = box[2] - box[0], box[3] - box[1]
        factor = self.side * scale / max(width, height)
        rounded = [max(_LEAST, length * factor) / self.multiple for length in (height, width)]
        return (math.ceil(rounded[0] - 0.5) * self.multiple, math.ceil(rounded[1] - 0.5) * self.multiple)


@dataclass(frozen=True)
class Model:
    """A network and how pictures are prepared for it. `Model.load` makes one; threads may share it."""

    path: Path
    name: str
    sha256: str
    prepare: Preparation
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
        """A model from an ONNX file, by default the one inside the package.

        What is not given is read from the file: from the JSON under "logt" in its metadata, then from the shape of
        its input; else it is NCHW with the normalisation of ImageNet.
        """
        file = BUILT_IN if path is None else Path(path).resolve()
        try:
            data = file.read_bytes()
        except OSError as error:
            raise InvalidInputError(f"the model {file} cannot be read: {error.strerror}") from error
        session = _session(data, file)
        wanted = {"layout": layout, "mean": mean, "std": std, "side": side}
        given = {name: value for name, value in wanted.items() if value is not None}
        about = _about(session, file)
        prepare = _prepared(session, {**about, **given}, file)
        model = cls(file, str(about.get("name", file.stem)), hashlib.sha256(data).hexdigest(), prepare, session)
        model._probe()
        return model

    def __call__(self, image: Image, box: Box, scale: float = 1.0) -> Floats:
        """The feature map, (C, H, W), or the vector, (D,), of the part of a picture in the box."""
        return self._run(self.prepare(image, box, scale))

    def _run(self, x: Floats) -> Floats:
        put, out = self.session.get_inputs()[0], self.session.get_outputs()[0]
        try:
            answer = np.asarray(self.session.run([out.name], {put.name: x.astype(_TYPES[put.type])})[0])
        except Exception as error:  # onnxruntime has no class of its own for what a model cannot do
            raise InvalidInputError(f"the model {self.path} cannot describe a picture: {error}") from error
        first: Floats = answer[0].astype(np.float32)
        return first.transpose(2, 0, 1) if first.ndim == 3 and self.prepare.layout == "NHWC" else first

    def _probe(self) -> None:
        """Refuse a model that does not answer a picture with what can be pooled."""
        height, width = self.prepare.size or (64, 64)
        shape = (3, height, width) if self.prepare.layout == "NCHW" else (height, width, 3)
        out = self._run(np.zeros((1, *shape), np.float32))
        if out.ndim not in (1, 3) or not out.size:
            raise InvalidInputError(
                f"the model {self.path} answers a picture with shape {(1, *out.shape)}: "
                "a feature map (N, C, H, W) or a vector (N, D) is needed"
            )


def _session(data: bytes, file: Path) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("describing pictures needs onnxruntime: pip install 'logt-search[images]'") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # pictures are described side by side instead
    options.enable_mem_pattern = False  # pictures differ in size
    options.log_severity_level = 4  # errors are raised anyway
    try:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has no class of its own for files that are no models
        raise InvalidInputError(f"{file} is no ONNX model that can be used: {error}") from error


def _about(session: Any, file: Path) -> Mapping[str, Any]:
    text = session.get_modelmeta().custom_metadata_map.get("logt", "{}")
    try:
        about = json.loads(text)
    except ValueError as error:
        raise InvalidInputError(f"{file}: the metadata under 'logt' are not JSON: {error}") from error
    return about if isinstance(about, dict) else {}


def _prepared(session: Any, about: Mapping[str, Any], file: Path) -> Preparation:
    inputs = session.get_inputs()
    shape = inputs[0].shape if inputs else []
    if len(inputs) != 1 or len(shape) != 4 or inputs[0].type not in _TYPES:
        raise InvalidInputError(f"{file} must take one batch of pictures as floats, (N, 3, H, W) or (N, H, W, 3)")
    layout = about.get("layout", "NHWC" if shape[3] == 3 and shape[1] != 3 else "NCHW")
    known = {name: about[name] for name in ("mean", "std", "side", "multiple") if name in about}
    height, width = shape[2:] if layout == "NCHW" else shape[1:3]
    fixed = (height, width) if isinstance(height, int) and isinstance(width, int) else None
    return Preparation(layout=layout, size=fixed, **known)

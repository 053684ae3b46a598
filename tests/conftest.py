from __future__ import annotations

import numpy as np
import pytest

from logt import _kernels


@pytest.fixture(params=_kernels.instruction_sets())
def isa(request):
    """Each instruction set that this processor has, the oldest included."""
    before = _kernels.instruction_set()
    _kernels.use_instruction_set(request.param)
    yield request.param
    _kernels.use_instruction_set(before)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def vectors():
    """make(N, d, seed=0): unit vectors with a falling spectrum."""

    def make(N, d, seed=0):
        V = np.random.default_rng(seed).standard_normal((N, d), np.float32) * (np.arange(d) + 4.0) ** -0.3
        V = V.astype(np.float32)
        return V / np.linalg.norm(V, axis=1, keepdims=True)

    return make


@pytest.fixture(scope="session")
def network(tmp_path_factory):
    """make(name, ...) -> path of a small ONNX network that returns a feature map, or a vector."""
    onnx = pytest.importorskip("onnx")

    def make(name, *, layout="NCHW", size=("H", "W"), vector=False, channels=16, about=None, seed=0):
        helper, floats = onnx.helper, onnx.TensorProto.FLOAT
        weights = np.random.default_rng(seed).standard_normal((channels, 3, 8, 8)).astype(np.float32) / 8
        shape = ["N", 3, *size] if layout == "NCHW" else ["N", *size, 3]
        nodes, x = [], "pictures"
        if layout == "NHWC":
            nodes.append(helper.make_node("Transpose", [x], ["turned"], perm=[0, 3, 1, 2]))
            x = "turned"
        nodes.append(helper.make_node("Conv", [x, "weights"], ["map"], strides=[8, 8]))
        nodes.append(helper.make_node("Relu", ["map"], ["positive"]))
        last, rank = "positive", ["N", channels, "h", "w"]
        if vector:
            nodes.append(helper.make_node("ReduceMean", [last], ["mean"], axes=[2, 3], keepdims=0))
            last, rank = "mean", ["N", channels]
        elif layout == "NHWC":
            nodes.append(helper.make_node("Transpose", [last], ["back"], perm=[0, 2, 3, 1]))
            last, rank = "back", ["N", "h", "w", channels]
        graph = helper.make_graph(
            nodes,
            name,
            [helper.make_tensor_value_info("pictures", floats, shape)],
            [helper.make_tensor_value_info(last, floats, rank)],
            [onnx.numpy_helper.from_array(weights, "weights")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        if about is not None:
            model.metadata_props.append(onnx.StringStringEntryProto(key="logt", value=about))
        path = tmp_path_factory.mktemp("networks") / f"{name}.onnx"
        onnx.save(model, path)
        return path

    return make


@pytest.fixture(scope="session")
def small(network):
    """A fast network for small images."""
    return network("small", about='{"side": 64, "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}')

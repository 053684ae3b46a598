"""Models whose weights are in files of their own: where they are found, and that their bytes count."""

import hashlib
import os
import shutil
from io import BytesIO

import numpy as np
import pytest

from logt.descriptors import Model
from logt.descriptors.onnx_files import external_files, fingerprint
from logt.errors import InvalidInputError
from logt.photos import Photos, update

Image = pytest.importorskip("PIL.Image")
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


@pytest.fixture
def model(small, tmp_path):
    """(path, weights) of a model with external data."""
    (tmp_path / "model").mkdir()
    path = tmp_path / "model" / "net.onnx"
    options = {"save_as_external_data": True, "location": "net.onnx.data", "size_threshold": 0}
    onnx.save(onnx.load(small), path, **options)
    return path, path.with_name("net.onnx.data")


def rename_data(path, name):
    """Let a model name another file for its weights."""
    proto = onnx.load(path, load_external_data=False)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = name
    path.write_bytes(proto.SerializeToString())


def change_weights(weights):
    data = np.fromfile(weights, np.float32)
    (data * 2).tofile(weights)


def test_external_data_are_found_beside_the_model_from_any_folder(model, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with_data, whole = Model.load(model[0]), Model.load(small)
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))
    np.testing.assert_array_equal(with_data(image), whole(image))
    (tmp_path / "net.onnx.data").write_bytes(bytes(model[1].stat().st_size))  # of another model
    np.testing.assert_array_equal(Model.load(model[0])(image), whole(image))


def test_the_fingerprint_covers_all_files_of_a_model(model, small):
    path, weights = model
    assert fingerprint(small) == Model.load(small).sha256 == hashlib.sha256(small.read_bytes()).hexdigest()
    before = fingerprint(path)
    assert Model.load(path).sha256 == before
    assert before != hashlib.sha256(path.read_bytes()).hexdigest()
    change_weights(weights)
    assert Model.load(path).sha256 == fingerprint(path) != before


def test_photos_are_not_mixed_with_descriptors_of_replaced_weights(album, model):
    path, weights = model
    update(album, model=path, relearn=True)
    assert Photos.open(album).search(album / "a.png", 1)[0][0] == "a.png"
    change_weights(weights)
    for use in (Photos.open, update):
        with pytest.raises(InvalidInputError, match="is a different model"):
            use(album)


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../net.onnx.data", "a/../../b", "C:\\b", "..\\b", "\\b", "a\0b", "\n"]
)
def test_external_data_outside_of_the_folder_are_refused(model, name):
    shutil.copy(model[1], model[0].parent.parent / "net.onnx.data")
    rename_data(model[0], name)
    for use in (Model.load, fingerprint):
        with pytest.raises(InvalidInputError, match="outside of its folder"):
            use(model[0])


def test_a_link_out_of_the_folder_a_missing_file_and_a_pipe_are_refused(model, tmp_path):
    path, weights = model
    shutil.move(weights, tmp_path / "elsewhere")
    with pytest.raises(InvalidInputError, match=r"'net\.onnx\.data', which is missing; copy it to"):
        Model.load(path)
    weights.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidInputError, match="outside of its folder"):
        Model.load(path)
    weights.unlink()
    os.mkfifo(weights)
    with pytest.raises(InvalidInputError, match="is missing"):
        Model.load(path)


def test_weights_that_are_replaced_while_they_are_loaded_are_noticed(model, monkeypatch):
    real = onnxruntime.InferenceSession

    def replaced(*arguments, **options):
        change_weights(model[1])
        return real(*arguments, **options)

    monkeypatch.setattr(onnxruntime, "InferenceSession", replaced)
    with pytest.raises(InvalidInputError, match="were changed while it was loaded"):
        Model.load(model[0])


def test_tensors_are_found_wherever_a_model_has_them(tmp_path):
    def tensor(name):
        found = onnx.numpy_helper.from_array(np.zeros(300, np.float32), name)
        onnx.external_data_helper.set_external_data(found, location=f"{name}.bin")
        found.ClearField("raw_data")
        (tmp_path / f"{name}.bin").write_bytes(b"")
        return found

    helper = onnx.helper
    inner = helper.make_graph([], "inner", [], [], [tensor("inner")])
    nodes = [
        helper.make_node("Constant", [], ["c"], value=tensor("attribute")),
        helper.make_node("If", ["c"], ["d"], then_branch=inner, else_branch=inner),
    ]
    graph = helper.make_graph(nodes, "outer", [], [], [tensor("initializer")])
    sparse = graph.sparse_initializer.add()
    sparse.values.CopyFrom(tensor("values"))
    sparse.indices.CopyFrom(tensor("indices"))
    opset = [helper.make_opsetid("", 17)]
    function_node = helper.make_node("Constant", [], ["e"], value=tensor("function"))
    function = helper.make_function("own", "f", [], ["e"], [function_node], opset)
    model = helper.make_model(graph, opset_imports=opset, functions=[function])
    names = ["attribute", "function", "indices", "initializer", "inner", "values"]
    found = external_files(tmp_path / "m.onnx", BytesIO(model.SerializeToString()))
    assert found == {f"{name}.bin": tmp_path / f"{name}.bin" for name in names}


def test_bytes_that_are_no_model_are_refused(tmp_path, small, rng):
    data, path = small.read_bytes(), tmp_path / "x.onnx"
    for content in (b"\xff" * 40, b"\x3a\x05", b"\x3a\x80", rng.bytes(1000), data[:-1], data[: len(data) // 2]):
        path.write_bytes(content)
        for use in (fingerprint, Model.load, lambda path: external_files(path, BytesIO(path.read_bytes()))):
            with pytest.raises(InvalidInputError, match="cannot be loaded as an ONNX model"):
                use(path)


GROUP = b"\xa3\x06\x0a\x03abc\xab\x06\xac\x06\xa4\x06"  # of an unknown field, with another one in it


def test_unknown_groups_hide_no_external_data(model):
    path, weights = model
    for content in (path.read_bytes() + GROUP, GROUP + path.read_bytes()):
        path.write_bytes(content)
        assert external_files(path, BytesIO(content)) == {"net.onnx.data": weights}
        Model.load(path)


@pytest.mark.parametrize(
    "field",
    [
        *(GROUP[:-2], GROUP[:2] + b"\xac\x06", GROUP[2:-2] + b"\xa4\x06", b"\xa3\x06" * 200 + b"\xa4\x06" * 200),
        *(b"\xba\x80\x80\x80\x10\x00", b"\x02\x00", b"\x0f", b"\x0d\x00"),
    ],
    ids=["open", "other end", "no beginning", "deep", "large number", "number 0", "kind 7", "too short"],
)
def test_bytes_that_another_reader_may_understand_in_another_way_are_refused(model, field):
    path, _ = model
    path.write_bytes(path.read_bytes() + field)
    with pytest.raises(InvalidInputError, match="cannot be loaded as an ONNX model"):
        Model.load(path)


def test_a_name_that_is_no_text_is_refused_and_other_facts_of_external_data_may_be_anything(model):
    path, weights = model
    content = path.read_bytes()
    path.write_bytes(content.replace(b"net.onnx.data", b"net\xffonnx.data"))
    with pytest.raises(InvalidInputError, match="outside of its folder"):
        Model.load(path)
    proto = onnx.load_from_string(content)
    for key, value in (("checksum", "x" * 100_000), ("x" * 100, "")):
        proto.graph.initializer[0].external_data.add(key=key, value=value)
    assert external_files(path, BytesIO(proto.SerializeToString())) == {"net.onnx.data": weights}


def test_a_model_whose_external_data_are_not_known_reads_none_from_the_current_folder(model, monkeypatch):
    monkeypatch.chdir(model[0].parent)
    monkeypatch.setattr("logt.descriptors.onnx_session.external_files", lambda *_: {})
    with pytest.raises(InvalidInputError, match="cannot be loaded as an ONNX model"):
        Model.load(model[0])

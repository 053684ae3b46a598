"""A device from the command line and in the service: "cpu" runs the same code as a GPU."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from exact_index import built
from typer.testing import CliRunner

import logt
from logt import distributed
from logt.cli.main import app
from logt.descriptors import onnx_session
from logt.errors import InvalidInputError, MissingExtraError
from logt.results import SearchResult
from logt.server.gathering import MOST, GatheredSearches

DIM = 32
X = np.random.default_rng(0).standard_normal((1200, DIM)).astype(np.float32)


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_build_link_and_search_on_a_device(tmp_path):
    np.save(tmp_path / "vectors.npy", X)
    np.save(tmp_path / "queries.npy", X[:5])
    done = run("build", tmp_path / "vectors.npy", tmp_path / "index", "--device", "cpu", "--json")
    assert done.exit_code == 0, done.output
    assert run("link", tmp_path / "index", "-k", 5, "--device", "cpu").exit_code == 0
    found = run("search", tmp_path / "index", tmp_path / "queries.npy", "-k", 1, "--device", "cpu", "--json")
    assert json.loads(found.stdout)["ids"] == [[i] for i in range(5)]
    assert logt.open(tmp_path / "index").report()["linked"] == len(X)
    wrong = run("search", tmp_path / "index", tmp_path / "queries.npy", "--device", "tpu")
    assert wrong.exit_code != 0


def test_workers_build_on_a_device(tmp_path):
    np.save(tmp_path / "vectors.npy", X)
    out = tmp_path / "index"
    distributed.build(tmp_path / "vectors.npy", out, device="cpu", link=5, segment_size=600, workers=1)
    index = logt.open(out)
    np.testing.assert_array_equal(index.search(X[:20], 1, effort=1.0).ids[:, 0], range(20))
    assert index.report()["linked"] == len(X)
    with pytest.raises(logt.InvalidInputError, match="device must be"):
        distributed.build(tmp_path / "vectors.npy", tmp_path / "other", device="tpu")


def test_serving_from_a_device_is_for_reading(tmp_path):
    built(X).save(tmp_path / "index")
    refused = run("serve", tmp_path / "index", "--device", "cpu")
    assert refused.exit_code != 0
    assert "--read-only" in str(refused.exception or refused.output)


def test_a_collection_on_a_device(tmp_path):
    pytest.importorskip("fastapi")
    from logt.server.device_collection import DeviceCollection

    index = built(X)
    index.save(tmp_path / "index")
    collection = DeviceCollection(tmp_path / "index", "cpu")
    assert collection.search(X[3], 2)[0][0].id == 3
    assert [hit.id for hit in collection.search_ids([3], 2)[0]] == index.search(X[3], 3).ids[1:].tolist()
    assert collection.report()["device"] == "cpu"
    with logt.open(tmp_path / "index", "a") as writer:
        writer.add(X[:1] + 9, [5000])
        writer.save()
    collection.refresh()
    assert collection.search(X[:1] + 9, 1)[0][0].id == 5000
    with pytest.raises(logt.ReadOnlyError, match="reading"):
        collection.apply([])


class Counted:
    """A search that takes a while, and counts how often it is called."""

    def __init__(self):
        self.sizes, self.lock = [], threading.Lock()

    def __call__(self, Q, k, on_invalid="raise", **settings):
        with self.lock:
            self.sizes.append(len(Q))
        wrong = np.isnan(Q[:, :k])
        if wrong.any() and on_invalid == "raise":
            raise InvalidInputError("a query holds NaN")
        time.sleep(0.01)
        return SearchResult(np.where(wrong, -np.inf, Q[:, :k]), np.where(wrong, -1, Q[:, :k]).astype(np.int64))


def gathered(queries, wait=0.2):
    """Search for all queries at the same time; return what each found, or the error, and the sizes of the batches."""
    search = Counted()
    together = GatheredSearches(search, wait)
    start = threading.Barrier(len(queries))

    def one(query):
        start.wait()
        try:
            return together.search(query, 2, effort=None)
        except InvalidInputError as error:
            return error

    with ThreadPoolExecutor(len(queries)) as pool:
        return list(pool.map(one, queries)), search.sizes


def test_searches_of_the_same_moment_are_one():
    queries = [np.full((1 + n % 3, 4), n, np.float32) for n in range(20)]
    found, sizes = gathered(queries)
    assert len(sizes) < 20
    assert sum(sizes) == sum(map(len, queries))
    for number, result in enumerate(found):
        np.testing.assert_array_equal(result.ids, np.full((1 + number % 3, 2), number))


def test_a_wrong_query_fails_alone():
    queries = [np.full((1, 4), np.nan if n == 3 else n, np.float32) for n in range(6)]
    found, sizes = gathered(queries)
    assert isinstance(found[3], InvalidInputError)
    assert sum(sizes) == len(queries) + 1  # the wrong one twice
    assert [int(result.ids[0, 0]) for n, result in enumerate(found) if n != 3] == [0, 1, 2, 4, 5]


def test_a_batch_is_not_larger_than_allowed():
    found, sizes = gathered([np.full((MOST // 2, 4), n, np.float32) for n in range(5)], wait=0.05)
    assert max(sizes) <= MOST
    assert [int(result.ids[-1, 0]) for result in found] == [0, 1, 2, 3, 4]


def test_models_on_a_device_need_another_package(monkeypatch):
    monkeypatch.setenv(onnx_session.DEVICE_VARIABLE, "cuda:1")

    class Runtime:
        @staticmethod
        def get_available_providers():
            return ["CPUExecutionProvider"]

    with pytest.raises(MissingExtraError, match="onnxruntime-gpu"):
        onnx_session._providers(Runtime)
    monkeypatch.setattr(Runtime, "get_available_providers", staticmethod(lambda: ["CUDAExecutionProvider"]))
    assert onnx_session._providers(Runtime) == [("CUDAExecutionProvider", {"device_id": 1})]
    monkeypatch.delenv(onnx_session.DEVICE_VARIABLE)
    assert onnx_session._providers(Runtime) == ["CPUExecutionProvider"]

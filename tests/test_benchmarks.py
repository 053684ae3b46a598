"""Each benchmark runs on small data and measures what it promises; `make bench` has tests of its own."""

import csv
import importlib
import json
import subprocess
import sys
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import BROWSER

from benchmarks import recall
from benchmarks.clusters import CHUNK, StructuredClusters, write_vectors
from benchmarks.frontier import HELD_OUT
from benchmarks.growth import near_targets
from logt.datasets import synthetic_benchmark
from logt.photos.synthetic_scenes import draw_scene, write_synthetic_photos


@pytest.fixture
def run(tmp_path):
    """run(name, *options): the rows that a benchmark writes."""

    def run(name, *options):
        importlib.import_module(f"benchmarks.{name}").main([*map(str, options), "--out", str(tmp_path / "out")])
        (path,) = (tmp_path / "out").iterdir()
        assert path.stem == name
        with open(path, newline="") as file:
            return list(csv.DictReader(file))

    return run


def test_updates(run):
    values = {row["what"]: float(row["value"]) for row in run("updates", "--rows", 300)}
    assert all(value > 0 for value in values.values())
    assert values["segments after 3 adds"] >= 1
    assert len(values) == 39


def test_recall(run, monkeypatch):
    every = recall.collections
    monkeypatch.setattr(recall, "collections", lambda *sizes: islice(every(*sizes), 1))
    monkeypatch.setattr(recall, "DIM", 32)
    rows = run("recall", "--rows", 1100, "--queries", 3)
    assert len(rows) == 8 * 2 + 5 + 2  # kinds of queries and a tuned one, on lists and linked; filters on lists
    assert {row["index"] for row in rows} == {"lists", "linked"}
    assert all(float(row["5th percentile"]) <= float(row["found"]) + 0.05 and float(row["ms"]) > 0 for row in rows)


def test_scale(run, tmp_path):
    small = ("--rows", 3000, "--d", 16, "--clusters", 50, "--block", 1500, "--workers", 1, "--folder", tmp_path)
    values = {row["what"]: float(row["value"]) for row in run("scale", *small, "--link", 5)}
    assert values["segments"] == 2
    assert values["peak memory of a worker"] > 0
    assert values["recall of the 10 nearest, effort 0.7"] > 0.8
    assert values["graph, per vector"] > 0


def test_growth(run, tmp_path):
    small = ("--sizes", 1500, 500, "--d", 16, "--dtype", "float16", "--rounds", 1, "--threads", 1)
    (row,) = run("growth", *small, "--only", "exhaustive", "--folder", tmp_path / "vectors")
    assert row["system"] == "exhaustive float32"
    assert row["bytes per vector, 500"] == row["bytes per vector, 1,500"] == "64"
    for kind in ("one query", "batch"):
        before, after = (float(row[f"ms, {kind}, 0.98, {size}"]) for size in ("500", "1,500"))
        assert float(row[f"ms, {kind}, 0.98, × to 1,500"]) == round(after / before, 2)


def test_gpu(run, monkeypatch):
    monkeypatch.setattr("benchmarks.gpu.BLOCK", 1 << 10)
    small = ("--rows", 1300, "--d", 16, "--clusters", 100, "--queries", 70, "--device", "cpu", "--limit", 0.01)
    rows = {row["what"]: row for row in run("gpu", *small, "--place", "drawn", "--link", 5)}
    assert float(rows["build"]["s"]) > 0
    assert float(rows["search, recall 0.95"]["recall"]) >= 0.95
    assert float(rows["filter, 0.01, prepared"]["ms, 1"]) > 0
    assert float(rows["link, k = 5"]["s"]) > 0


class StandInCuvs:
    """cuVS where there is none: it compares all vectors, and its refinement has what it needs."""

    IndexParams = SearchParams = staticmethod(lambda **settings: settings)

    def build(self, params, X):
        assert (X.dtype, params["metric"]) == (np.float16, "inner_product")
        return X

    def search(self, params, X, Q, k):
        assert Q.dtype == np.float16
        scores = Q.astype(np.float32) @ X.T.astype(np.float32)
        ids = np.argsort(-scores, axis=1)[:, :k]
        return np.take_along_axis(scores, ids, axis=1), ids

    def refine(self, X, Q, candidates, k, metric):
        assert (metric, candidates.shape) == ("inner_product", (len(Q), 40))
        return None, candidates[:, :k]


def test_gpu_next_to_cuvs(run, monkeypatch):
    monkeypatch.setattr("benchmarks.gpu.BLOCK", 1 << 10)
    cuvs = StandInCuvs()
    neighbors = SimpleNamespace(ivf_pq=cuvs, cagra=cuvs, refine=cuvs.refine)
    monkeypatch.setitem(sys.modules, "cuvs", SimpleNamespace(neighbors=neighbors))
    monkeypatch.setitem(sys.modules, "cuvs.neighbors", neighbors)
    small = ("--rows", 1300, "--d", 16, "--clusters", 100, "--queries", 20, "--device", "cpu", "--limit", 0.01)
    skipped = ("warm", "exhaustive", "0.95", "0.99", "filters", "cpu")
    rows = {row["what"]: row for row in run("gpu", *small, "--place", "device", "--skip", *skipped)}
    for system in ("cuVS IVF-PQ, 2 lists, refined", "cuVS CAGRA"):
        assert float(rows[f"build, {system}"]["s"]) >= 0
    assert float(rows["cuVS CAGRA, itopk 64"]["recall"]) > 0.95  # the first setting finds all
    assert float(rows["cuVS CAGRA, itopk 64"]["ms, 20"]) > 0


def test_gpu_next_to_the_cpu(run, monkeypatch):
    data = synthetic_benchmark(1500, 24, landmarks=8)
    monkeypatch.setattr("benchmarks.gpu.load_benchmark", lambda path: data)
    monkeypatch.setattr("benchmarks.gpu.QUERIES", 70)
    *rows, cpu, there = run("gpu", "--data", "folder", "--device", "cpu")
    for row in rows:
        assert min(float(row[f"{name}: recall"]) for name in ("CPU", "device")) > float(row["asked"]) - 0.05
        assert abs(float(row["device: mAP"]) - float(row["CPU: mAP"])) < 0.5
    assert abs(float(cpu["mAP"]) - float(there["mAP"])) < 0.5


def test_only_settings_near_the_targets_of_growth_are_timed():
    def kept(*recalls):
        return [row[HELD_OUT] for row in near_targets([{HELD_OUT: recall} for recall in recalls])]

    assert kept(0.5, 0.91, 0.92, 0.96, 0.985, 0.984, 0.999) == [0.91, 0.92, 0.96, 0.985, 0.984]
    assert kept(0.5, 0.8) == [0.8]
    assert kept(0.99, 1.0) == [0.99, 1.0]


def test_structured_clusters_depend_on_the_seed_only_and_a_file_that_is_there_is_kept(tmp_path):
    model, path = StructuredClusters(32, 300), tmp_path / "folder" / "vectors.npy"
    write_vectors(model, path, CHUNK + 5)
    X = np.load(path)
    assert np.allclose(np.linalg.norm(X, axis=1), 1, atol=1e-6)
    assert (X[CHUNK:] == StructuredClusters(32, 300).draw(5, [0, CHUNK])).all()
    assert not (X[:5] == X[CHUNK:]).any()
    write_vectors(model, path, 3)
    assert np.load(path).shape == X.shape
    assert list(path.parent.iterdir()) == [path]


def test_serve(run, tmp_path):
    data = synthetic_benchmark(1000, 16, landmarks=4)
    for name, matrix in (("vectors", data.X), ("queries", data.Q)):
        np.save(tmp_path / f"{name}.npy", matrix)
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(2):
        draw_scene(number).save(photos / f"{number}.jpg")
    load = ("--data", tmp_path, "--photos", photos, "--seconds", 0.2, "--clients", 2)
    rows = run("serve", *load)
    assert len(rows) == 3
    rows += run("serve", *load, "--device", "cpu")
    assert len(rows) == 5
    assert all(float(row["requests/s"]) > 0 for row in rows)


@pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed: apt-get install chromium")
def test_page(tmp_path):
    """In a process of its own: Playwright may be running in this one."""
    pytest.importorskip("playwright.sync_api")
    command = [sys.executable, "-m", "benchmarks.page", "--photos", "60", "--steps", "2", "--out", str(tmp_path)]
    subprocess.run(command, check=True, cwd=Path(__file__).parent.parent)
    with open(tmp_path / "page.csv", newline="") as file:
        values = {row["what"]: float(row["value"]) for row in csv.DictReader(file)}
    assert values["search, median"] > 0
    assert values["memory of the server"] > 10
    assert values["cards in the document, most"] > 0


def test_images(tmp_path, capsys, monkeypatch):
    from benchmarks import images

    relevant = write_synthetic_photos(tmp_path, 2, 2, 1)
    truth = {f"queries/{query}": [f"collection/{name}" for name in names] for query, names in relevant.items()}
    (tmp_path / "relevant.json").write_text(json.dumps(truth))
    monkeypatch.setattr(images, "BUILT_IN", ("lite",))
    images.main(["--data", str(tmp_path), "--count", "2", "--megapixels", "0.1", "--copies", "1"])
    shown = capsys.readouterr().out
    assert "| efficientnet-lite0 | 0.1 megapixels | 1 |" in shown
    assert "| efficientnet-lite0, raw | mirrored | " in shown

"""The comparison with other libraries: what it measures with, what it derives, and each library on small data."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.frontier import HELD_OUT, QUERIES, RAM, TARGETS, compare, interpolated, pareto, time_at
from benchmarks.interface import Collection, UnsupportedError
from benchmarks.libraries import library_systems
from benchmarks.systems import systems
from benchmarks.task import exact_scores, make_task, save_task
from benchmarks.worker import Worker, WorkerError
from logt.datasets import Benchmark, synthetic_benchmark
from logt.datasets.benchmark import NEIGHBORS_PROTOCOL
from logt.evaluation import GroundTruth

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def data():
    return synthetic_benchmark(1500, 64, landmarks=16)


def with_metric(data, metric):
    if metric == "cosine":
        return data
    scale = np.random.default_rng(0).uniform(0.5, 2, (len(data.X), 1)).astype(np.float32)
    return Benchmark("scaled", data.X * scale, data.Q, {}, metric)


def test_vectors_that_are_held_out_are_relevant_to_no_query_and_the_truth_follows_the_rows(data):
    task = make_task(data)
    assert len(task.held.Q) == 150
    assert len(task.X) == 1350
    truth, same = data.truths["known answer"], task.truths["known answer"]
    for before, after in zip(truth.positives, same.positives, strict=True):
        assert (data.X[before] == task.X[after]).all()


def test_rows_and_queries_can_be_limited_and_neighbors_are_computed_again(data):
    task = make_task(data, rows=500, queries=4)
    assert len(task.X) + len(task.held.Q) == 500
    assert len(task.queries.Q) == len(task.truths["known answer"]) == 4
    assert max(rows.max(initial=0) for rows in task.truths["known answer"].positives) < len(task.X)
    neighbors = GroundTruth.from_lists([[0]] * len(data.Q))
    task = make_task(Benchmark("hdf5", data.X, data.Q, {NEIGHBORS_PROTOCOL: neighbors}))
    assert task.truths == {}
    assert len(task.held.Q) == 150


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
def test_exhaustive_search_has_a_recall_of_one(data, metric):
    task = make_task(with_metric(data, metric))
    for queries in (task.queries, task.held):
        ids = np.argsort(-exact_scores(queries.Q, task.X, metric), axis=1)
        assert task.recall(ids[:, :10], queries) == 1
        assert task.recall(ids[:, 10:20], queries) == 0
        assert task.recall(np.full((len(ids), 10), -1), queries) == 0


def test_vectors_at_the_same_distance_count_alike_and_each_once():
    X = np.repeat(np.eye(8, dtype=np.float32), 20, axis=0)
    task = make_task(Benchmark("doubles", X, np.eye(8, dtype=np.float32), {}), k=5)
    same = np.array([np.flatnonzero(task.X[:, q] == 1)[-5:] for q in range(8)])
    assert task.recall(same, task.queries) == 1
    assert task.recall(np.repeat(same[:, :1], 5, axis=1), task.queries) == 0.2


def test_times_are_interpolated_between_the_settings_of_the_frontier_on_both_sides():
    points = [(0.8, 1.0), (0.9, 4.0), (0.84, 4.0), (0.7, 1.5), (0.9, 4.5)]
    assert pareto(points) == points[:2]
    assert time_at(points, 0.8) == 1
    assert time_at(points, 0.85) == pytest.approx(2)
    assert time_at(points, 0.5) == 1
    assert time_at(points, 0.91) is None
    assert time_at([], 0.5) is None


def row(library, system, ram, recall, ms):
    return {
        "library": library,
        "version": "1",
        "system": system,
        "setting": str(ms),
        RAM: ram,
        "bytes on disk": ram,
        "build s": 1,
        HELD_OUT: recall,
        QUERIES: recall,
        "ms, one query": ms,
        "ms, batch": ms / 2,
    }


def test_the_default_index_is_compared_with_the_fastest_library_of_its_size_and_of_all():
    rows = [
        row("logt-search", "logt", 400, 0.96, 0.3),
        row("logt-search", "LO-GT", 100, 0.99, 0.1),
        row("a", "a small", 700, 0.97, 0.4),
        row("b", "b large", 6000, 0.96, 0.2),
        row("c", "c fast and wrong", 400, 0.5, 0.01),
    ]
    compared = compare(interpolated(rows))
    assert len(compared) == 2 * len(TARGETS)
    at_95 = next(row for row in compared if row["target"] == "one query, recall, held out 0.95")
    assert at_95["fastest, at most twice the RAM"] == "a small"
    assert at_95["ratio, at most twice the RAM"] == 0.75
    assert at_95["fastest, all"] == "b large"
    assert at_95["ratio, all"] == 1.5
    at_98 = next(row for row in compared if row["target"] == "batch, recall, held out 0.98")
    assert at_98["logt"] == at_98["fastest, all"] == ""
    assert compare([]) == []


TRIED = [
    *((system, metric) for system in library_systems() for metric in ("cosine", "l2")),
    *(
        (system, "cosine")
        for system in systems()
        if system.name in ("exhaustive float32", "logt smoothed, re-ranked")
    ),
    *((system, "l2") for system in systems() if system.name in ("exhaustive float32", "logt without refinement")),
]
FEW_BITS = ("compact", "2 bit", "RaBitQ")


@pytest.mark.parametrize(("system", "metric"), TRIED, ids=lambda value: getattr(value, "name", value))
def test_the_best_setting_of_each_system_finds_most_neighbors(tmp_path, monkeypatch, data, system, metric):
    for name, value in system.environment.items():
        monkeypatch.setenv(name, value)
    if system.missing():
        pytest.skip(system.missing())
    task = make_task(with_metric(data, metric))
    try:
        built = system.build(Collection(task.X, metric, 1, tmp_path))
    except UnsupportedError as error:
        pytest.skip(str(error))
    best = 0.0
    for setting in system.settings.values():
        ids = np.asarray(built.search(task.queries.Q, 10, **setting)).astype(np.int64)
        best = max(best, task.recall(np.where(ids < len(task.X), ids, -1), task.queries))
        assert np.shape(built.search(np.ascontiguousarray(task.held.Q[:1]), 10, **setting)) == (1, 10)
    assert best > (0.25 if any(word in system.name for word in FEW_BITS) else 0.55)
    assert min(built.sizes()) > 0
    assert system.version()


def test_a_library_that_is_not_installed_is_named_with_what_to_install(capsys, monkeypatch):
    from benchmarks import bench

    monkeypatch.setitem(sys.modules, "turbovec", None)
    assert not any(system.module == "turbovec" for system in bench.select(["turbovec", "exhaustive"]))
    assert "SKIPPED turbovec 2 bit, turbovec 4 bit" in (shown := capsys.readouterr().out)
    assert "pip install turbovec" in shown
    with pytest.raises(SystemExit, match="no system to measure; there are: exhaustive float32, logt"):
        bench.select(["nothing like this"])


def test_a_library_that_crashes_or_fails_is_reported_and_the_run_goes_on(tmp_path, data):
    save_task(make_task(data, rows=200), tmp_path)
    exhaustive = systems()[0]
    worker = Worker(exhaustive, tmp_path, "cosine", 1)
    worker.call("build")
    with pytest.raises(WorkerError, match="KeyError: 'no such setting'"):
        worker.call("measure", "no such setting", 10, 0)
    worker._child.kill()
    with pytest.raises(WorkerError, match="its process ended: SIGKILL"):
        worker.call("build")
    worker.stop()
    worker = Worker(exhaustive, tmp_path, "cosine", 1)
    with pytest.raises(WorkerError, match="build: took more than 0 s"):
        worker.call("build", limit=0)


OPTIONAL = ("faiss", "h5py", "matplotlib", "pyarrow", "rich", "scann", "scipy", "svs", "turbovec", "typer", "usearch")


def run_bench(out, *arguments, path=""):
    command = [sys.executable, "-m", "benchmarks.bench", "--out", str(out), "--rounds", "1", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(path)}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_run_needs_no_optional_package_writes_its_tables_and_resumes(tmp_path, data):
    folder, path = tmp_path / "data", tmp_path / "path"
    folder.mkdir()
    path.mkdir()
    (path / "sitecustomize.py").write_text(f"import sys; sys.modules.update(dict.fromkeys({OPTIONAL}))")
    np.save(folder / "vectors.npy", data.X)
    np.save(folder / "queries.npy", data.Q)
    truth = [{"positives": rows.tolist(), "junk": []} for rows in data.truths["known answer"].positives]
    (folder / "ground_truth.json").write_text(json.dumps({"queries": truth}))
    out = tmp_path / "out"
    only = ("--data", str(folder), "--threads", "1", "--together", "--only", "exhaustive", "logt 1 bit")
    shown = run_bench(out, *only, "faiss IVF,SQ8", path=path)
    assert "logt 1 bit: " in shown
    assert "SKIPPED faiss IVF,SQ8: import of faiss halted" in shown
    assert "no figures: pip install matplotlib" in shown
    with open(out / "bench.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["system"] == "exhaustive float32"
    assert float(rows[0][HELD_OUT]) == float(rows[0][QUERIES]) == 1
    assert {row["system"] for row in rows} == {"exhaustive float32", "logt 1 bit"}
    assert all(float(row[name]) > 0 for row in rows for name in (RAM, "ms, one query", "ms, batch", "mAP@1000"))
    assert "Milliseconds at equal recall" in (out / "bench.md").read_text()
    assert (out / "frontier.csv").read_text().startswith("library,version,system")
    assert not list(out.glob("task-*"))
    first = (out / "bench.csv").read_text()
    assert "built in" not in run_bench(out, *only, "--resume")
    assert (out / "bench.csv").read_text() == first
    assert {path.name for path in out.glob("*.svg")} == {"held-out.svg", "queries.svg", "map.svg", "time.svg"}

"""Each benchmark runs on small data and measures what it promises; `make bench` has tests of its own."""

from __future__ import annotations

import csv
import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import BROWSER

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
    values = {row["what"]: float(row["value"]) for row in run("updates", "--rows", 1000)}
    assert all(value > 0 for value in values.values())
    assert values["segments after 10 adds"] >= 1
    assert len(values) == 25


def test_scale(run, tmp_path):
    small = ("--rows", 3000, "--d", 16, "--clusters", 50, "--block", 1500, "--workers", 1, "--folder", tmp_path)
    values = {row["what"]: float(row["value"]) for row in run("scale", *small, "--link", 5)}
    assert values["segments"] == 2
    assert values["peak memory of a worker"] > 0
    assert values["recall of the 10 nearest, effort 0.7"] > 0.8
    assert values["graph, per vector"] > 0


def test_serve(run, tmp_path):
    data = synthetic_benchmark(1000, 16, landmarks=4)
    for name, matrix in (("vectors", data.X), ("queries", data.Q)):
        np.save(tmp_path / f"{name}.npy", matrix)
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(2):
        draw_scene(number).save(photos / f"{number}.jpg")
    rows = run("serve", "--data", tmp_path, "--photos", photos, "--seconds", 0.2, "--clients", 2)
    assert len(rows) == 3
    assert all(float(row["requests/s"]) > 0 for row in rows)


@pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed: apt-get install chromium")
def test_page(tmp_path):
    """In a process of its own: Playwright may be running in this one."""
    pytest.importorskip("playwright.sync_api")
    command = [sys.executable, "-m", "benchmarks.page", "--photos", "120", "--steps", "5", "--out", str(tmp_path)]
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

"""The commands as a user runs them, each in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import logt


def run(*words, ok=True):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "from logt.cli.main import main; main()", *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100"},
    )
    assert (done.returncode == 0) == ok, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def files(tmp_path_factory, vectors):
    folder = tmp_path_factory.mktemp("cli")
    np.save(folder / "x.npy", vectors(300, 32))
    np.save(folder / "q.npy", vectors(300, 32)[:25])
    run("build", folder / "x.npy", folder / "index", "-L", 20, "--n", 10)
    return folder


def test_build_search_and_info(files):
    found = json.loads(run("search", files / "index", files / "q.npy", "-k", 3, "--json").stdout)
    assert [row[0] for row in found["ids"]] == list(range(25))
    assert len(found["scores"][0]) == 3
    report = json.loads(run("info", files / "index", "--json").stdout)
    assert (report["vectors"], report["dim"]) == (300, 32)


def test_output_as_tables(files):
    shown = run("search", files / "index", files / "q.npy", "--save", files / "out.npz").stdout
    assert "query" in shown
    assert "5 more queries" in shown
    assert np.load(files / "out.npz")["ids"].shape == (25, 10)
    assert "bytes per vector" in run("info", files / "index").stdout


def test_padding_has_no_score_in_json(files):
    found = json.loads(run("search", files / "index", files / "q.npy", "-k", 301, "--json").stdout)
    assert found["ids"][0][-1] == -1
    assert found["scores"][0][-1] is None


@pytest.mark.parametrize("method", ["lo-gt*", "rnd", "rnd*"])
def test_methods_by_name(files, method):
    words = ("--method", method, "-L", 8, "--n", 10, "--metric", "l2", "--float32", "--json")
    report = json.loads(run("build", files / "x.npy", files / method, *words).stdout)
    assert report["metric"] == "l2"
    assert ("Suppress" in report["method"]) == method.endswith("*")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("build", "none.npy", "out"), "file not found: none.npy"),
        (("build", "{files}/x.npy", "{files}/index"), "--overwrite"),
        (("build", "{files}/x.npy", "out", "--method", "magic"), "--method must be one of sketched, lo-gt"),
        (("build", "{files}/x.npy", "out", "--metric", "magic"), "metric must be one of"),
        (("search", "nowhere", "{files}/q.npy"), "nowhere holds no index"),
        (("search", "{files}/index", "{files}/x.csv"), "file not found"),
        (("search", "{files}/index", "{files}/q.npy", "--effort", "7"), "effort must be from 0 to 1"),
        (("info", "{files}"), "holds no index"),
    ],
)
def test_errors_are_one_line_with_a_way_to_fix_them(files, words, message):
    done = run(*(word.format(files=files) for word in words), ok=False)
    assert done.returncode == 1
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_string_ids_and_paths_that_look_like_markup(files, vectors):
    index = logt.Index(32, method=logt.methods.rnd(n=10, m=2, L=8))
    index.add(vectors(20, 32), ids=[f"[red]{i}[/x].jpg" for i in range(20)])
    index.save(files / "odd[/x]")
    shown = run("search", files / "odd[/x]", files / "q.npy", "--save", files / "text.npz").stdout
    assert "[red]3[/x].jpg" in shown
    assert np.load(files / "text.npz")["ids"].shape == (25, 10)
    assert "OK" in run("verify", files / "odd[/x]").stdout
    assert "holds no index" in run("verify", files / "no[/red]ne", ok=False).stderr.replace("\n", " ")


def test_overwrite(files):
    run("build", files / "x.npy", files / "again", "-L", 5)
    run("build", files / "x.npy", files / "again", "-L", 5, "--overwrite")


def test_demo_compares_with_exhaustive_search():
    rows = json.loads(run("demo", "--vectors", 3000, "--dim", 64, "--json").stdout)
    assert rows[0]["system"] == "exhaustive"
    assert all(row["mAP"] > 5 for row in rows)
    assert all(row["bytes"] > 0 for row in rows)
    assert "exhaustive" in run("demo", "--vectors", 2000, "--dim", 32).stdout


def test_version_and_python_m_logt():
    for words in (["--version"], ["info", "--help"]):
        done = subprocess.run([sys.executable, "-m", "logt", *words], capture_output=True, text=True)
        assert done.returncode == 0
    assert run("--version").stdout.strip() == logt.__version__


def test_link_rerank_duplicates_and_pairs(tmp_path, vectors):
    X = vectors(200, 32)
    X[50] = X[49] = X[20]
    np.save(tmp_path / "q.npy", X[:3])
    index = logt.Index(32)
    index.add(X, ids=[f"{i}.jpg" for i in range(200)])
    index.save(tmp_path / "index")
    path = tmp_path / "index"
    refused = run("search", path, tmp_path / "q.npy", "--rerank", "diffusion", ok=False).stderr
    assert "logt link" in refused
    assert "--rerank must be" in run("search", path, tmp_path / "q.npy", "--rerank", "magic", ok=False).stderr
    assert json.loads(run("link", path, "-k", 10, "--json").stdout)["linked"] == 200
    found = json.loads(run("search", path, tmp_path / "q.npy", "--rerank", "diffusion", "--json").stdout)
    assert [row[0] for row in found["ids"]] == ["0.jpg", "1.jpg", "2.jpg"]
    groups = json.loads(run("duplicates", path, "--threshold", 0.98, "--json").stdout)
    assert [sorted(group) for group in groups] == [["20.jpg", "49.jpg", "50.jpg"]]
    assert "1 groups of 3 vectors" in run("duplicates", path, "--threshold", 0.98).stdout
    assert len(run("duplicates", path, "--threshold", 0.98, "--pairs").stdout.splitlines()) == 3
    run("pairs", path, tmp_path / "pairs.txt", "--per-image", 5)
    lines = [line.split(" ") for line in (tmp_path / "pairs.txt").read_text().splitlines()]
    assert all(len(line) == 2 and line[0] != line[1] for line in lines)
    assert 500 <= len({frozenset(line) for line in lines}) == len(lines) <= 1000
    assert "--overwrite" in run("pairs", path, tmp_path / "pairs.txt", ok=False).stderr

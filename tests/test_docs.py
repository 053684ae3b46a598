"""The documents: their code runs, their links lead to files, the site builds without warnings and works offline."""

import json
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
import yaml
from test_project import ROOT, blocks

import logt

sys.path.insert(0, str(ROOT / "docs" / "_extensions"))
import plain_docstrings

DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]
WITH_SERVICE = ROOT / "docs" / "how-to" / "json-api.md"  # tests/test_server_client.py runs it
WITH_RAY = ROOT / "docs" / "how-to" / "cluster.md"  # tests/test_distributed_ray.py runs it
RUNNABLE = [path for path in DOCUMENTS if blocks(path, "python") and path not in (WITH_SERVICE, WITH_RAY)]

# Documents show how to use these.
NOT_OURS = {"annoy", "cleanlab", "fast_hdbscan", "hnswlib", "openTSNE", "scanpy", "umap", "voyager"}


def test_the_page_of_the_format_names_the_arrays_of_the_default_index(tmp_path):
    page = (ROOT / "docs" / "reference" / "format.md").read_text(encoding="utf-8")
    section = page.split("## Segments of the default index")[1].split("\n## ")[0]
    named = {n for row in re.findall(r"(?m)^\|([^|]*)\|", section) for n in re.findall("`([^`]+)`", row)}
    index = logt.Index(32)
    index.add(np.random.default_rng(0).standard_normal((3000, 32)))
    index.save(tmp_path / "index")
    stored = set()
    for path in (tmp_path / "index").glob("*.safetensors"):
        content = path.read_bytes()
        stored |= set(json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])) - {"__metadata__"}
    assert stored == named


def name_of(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("document", RUNNABLE, ids=name_of)
def test_the_code_of_a_document_runs(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, count in (("vectors.npy", 500), ("queries.npy", 100)):
        np.save(name, rng.standard_normal((count, 64)).astype(np.float32))
    if document.name == "photos.md":
        Image = pytest.importorskip("PIL.Image")
        (tmp_path / "photos").mkdir()
        for name in ("photos/one.jpg", "photos/two.jpg", "photos/three.jpg", "query.jpg"):
            Image.fromarray(rng.integers(0, 256, (64, 80, 3), np.uint8)).save(name)
    if document.name == "models.md":
        from text_encoders import example

        for folder in ("photos", "clip"):
            (tmp_path / folder).mkdir()
        example.write_encoders(tmp_path / "clip")
        example.draw("red", "dots", rng).save("photos/one.png")
    names: dict[str, object] = {}
    missing = []
    for block in blocks(document, "python"):
        if document.name == "gpu.md":  # the same code runs without a GPU
            block = block.replace('"cuda"', '"cpu"')
        block = block.replace("TSNE(metric", "TSNE(max_iter=250, metric")  # takes seconds otherwise
        try:
            with warnings.catch_warnings(action="ignore" if document.name == "neighbor-graph.md" else "error"):
                exec(compile(block, name_of(document), "exec"), names)
        except ModuleNotFoundError as error:
            if error.name not in NOT_OURS:
                raise
            missing.append(error.name)
    if missing:
        pytest.skip(f"ran without the modules {', '.join(missing)}")


def test_links_between_documents_lead_to_files():
    for path in DOCUMENTS:
        text = path.read_text()
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text) + re.findall(r'src="(?!https?:)([^"]+)"', text):
            assert (path.parent / target).exists(), f"{name_of(path)} links to {target}"


def test_the_guarantees_name_tests_that_exist():
    text = (ROOT / "docs" / "reference" / "guarantees.md").read_text()
    listed = re.findall(r"`(test_\w+\.py)`: ((?:`\w+`(?:, )?)+)", text)
    assert len(listed) > 25
    for file, names in listed:
        tests = (ROOT / "tests" / file).read_text()
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"(def |^){name}\b", tests, re.MULTILINE), f"{file} has no {name}"


def test_the_layout_names_every_module():
    text = (ROOT / "docs" / "contributing" / "architecture.md").read_text()
    package = ROOT / "src" / "logt"
    inside = [
        path
        for folder in ("group_testing", "lists", "graph", "engine", "storage")
        for path in (package / folder).glob("*.py")
    ]
    modules = {path.stem for path in [*package.glob("*.py"), *inside]} - {"__init__", "__main__"}
    folders = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    assert modules | folders <= set(re.findall(r"`([\w/]+)`", text))


def test_the_site_builds_without_warnings_and_loads_nothing_from_elsewhere(tmp_path):
    command = [sys.executable, str(ROOT / "scripts" / "build_docs.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    reference = tmp_path / "reference" / "generated"
    assert "logt.Index.search" in (reference / "logt.Index.html").read_text()
    assert "LogtNeighbors.kneighbors" in (reference / "logt.sklearn.LogtNeighbors.html").read_text()
    assert "logt.descriptors.SCALES" in (reference / "logt.descriptors.html").read_text()
    unreadable = ("TypeAliasForwardRef", "_SupportsArray", "filename2", "strerror")
    assert not any(word in page.read_text() for page in reference.iterdir() for word in unreadable)
    loading = r"""<(?:script|link|img|iframe|source)\b[^>]*(?:src|href)=["'](?:https?:)?//[^"']+"""
    for page in tmp_path.rglob("*.html"):
        assert not re.search(loading, page.read_text()), page
    for style in tmp_path.rglob("*.css"):
        assert not re.search(r"""(?:url\(|@import)\s*["']?(?:https?:)?//""", style.read_text()), style


def test_parameters_in_plain_docstrings_become_fields():
    text = "Return the k best.\n\nQ: queries, (nq, d). p, R: of\nthe cascade: see `Cascade`. Not a parameter: this."
    lines = plain_docstrings.convert(text, ["Q", "p", "R"])
    assert lines[0] == "Return the k best."
    assert ":param Q: queries, (nq, d)." in lines
    cascade = "of the cascade: see ``Cascade``. Not a parameter: this."
    assert f":param p: {cascade}" in lines
    assert f":param R: {cascade}" in lines


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.y*ml")), ids=name_of)
def test_github_files_are_valid_yaml(path):
    content = yaml.safe_load(path.read_text())
    assert isinstance(content, dict)
    if path.parent.name == "workflows":
        assert {"name", True, "jobs"} <= set(content)  # YAML 1.1 reads "on" as true
        assert all("runs-on" in job and "steps" in job for job in content["jobs"].values())

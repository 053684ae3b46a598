"""The backend for txtai, with the real package."""

from __future__ import annotations

import subprocess
import sys

import pytest
from word_vectors import TEXTS, vector

import logt


def best(embeddings, text):
    return embeddings.search(vector(text), 1)[0][0]


@pytest.mark.filterwarnings("ignore")
def test_txtai_indexes_searches_updates_deletes_and_saves(tmp_path):
    txtai = pytest.importorskip("txtai")
    backend = "logt.integrations.txtai.Logt"
    embeddings = txtai.Embeddings(method="external", backend=backend, logt={"bits": 4}, content=False)
    embeddings.index([(name, vector(text), None) for name, text in zip("abcde", TEXTS, strict=True)])
    assert best(embeddings, "red bus") == "a"
    embeddings.upsert([("f", vector("green bus"), None), ("a", vector("old river"), None)])
    assert best(embeddings, "green bus") == "f"
    assert embeddings.count() == 6
    embeddings.delete(["e"])
    assert best(embeddings, "big tree") == "c"
    for saved in (tmp_path / "folder", tmp_path / "archive.tar.gz"):
        embeddings.save(str(saved))
        loaded = txtai.Embeddings()
        loaded.load(str(saved))
        assert loaded.count() == 5
        assert type(loaded.ann).__module__ == "logt.integrations.txtai"
        loaded.upsert([("g", vector("big tree"), None)])
        assert best(loaded, "big tree") == "g"
    loaded.save(str(tmp_path / "folder"))
    again = txtai.Embeddings()
    again.load(str(tmp_path / "folder"))
    assert again.count() == 6


@pytest.mark.filterwarnings("ignore")
def test_a_misspelt_setting_is_refused():
    txtai = pytest.importorskip("txtai")
    settings = {"backend": "logt.integrations.txtai.Logt", "logt": {"bitz": 4}}
    embeddings = txtai.Embeddings(method="external", content=False, **settings)
    with pytest.raises(logt.InvalidInputError, match="no setting 'bitz' in txtai; it has: bits, effort"):
        embeddings.index([("a", vector("red bus"), None)])


def test_without_txtai_the_error_names_the_package():
    code = "import sys; sys.modules['txtai'] = None\nimport logt.integrations.txtai"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingExtraError" in done.stderr
    assert "pip install 'logt-search[txtai]'" in done.stderr

"""The backend for txtai, with the real package."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from word_vectors import TEXTS, vector


@pytest.mark.filterwarnings("ignore")
def test_txtai_indexes_searches_updates_deletes_and_saves(tmp_path):
    txtai = pytest.importorskip("txtai")

    def transform(texts):
        return np.stack([vector(text) for text in texts])

    backend = "logt.integrations.txtai.Logt"
    config = {"method": "external", "transform": transform, "backend": backend, "logt": {"bits": 4}, "content": False}
    embeddings = txtai.Embeddings(config)
    embeddings.index(list(zip("abcde", TEXTS, [None] * 5, strict=True)))
    assert embeddings.search("red bus", 1)[0][0] == "a"
    embeddings.upsert([("f", "green bus", None), ("a", "old river", None)])
    assert embeddings.search("green bus", 1)[0][0] == "f"
    assert embeddings.count() == 6
    embeddings.delete(["e"])
    assert embeddings.search("big tree", 1)[0][0] == "c"
    embeddings.save(str(tmp_path / "saved"))
    loaded = txtai.Embeddings({"method": "external", "transform": transform})
    loaded.load(str(tmp_path / "saved"))
    loaded.config["transform"] = transform
    assert loaded.count() == 5
    assert type(loaded.ann).__name__ == "Logt"
    loaded.upsert([("g", "big tree", None)])
    assert loaded.search("big tree", 1)[0][0] == "g"


def test_without_txtai_the_error_names_the_package():
    code = "import sys; sys.modules['txtai'] = None\nimport logt.integrations.txtai"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingExtraError" in done.stderr
    assert "pip install txtai" in done.stderr

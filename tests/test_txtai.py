"""The backend for txtai, with the real package."""

import pytest
from word_vectors import TEXTS, vector

import logt

txtai = pytest.importorskip("txtai")
pytestmark = pytest.mark.filterwarnings("ignore")
SETTINGS = {"method": "external", "backend": "logt.integrations.txtai.Logt", "content": False}


def best(embeddings, text):
    return embeddings.search(vector(text), 1)[0][0]


def test_txtai_indexes_searches_updates_deletes_and_saves(tmp_path):
    embeddings = txtai.Embeddings(**SETTINGS, logt={"bits": 4})
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
    loaded.load(str(tmp_path / "folder"))
    loaded.save(str(tmp_path / "folder"))  # where it comes from
    again = txtai.Embeddings()
    again.load(str(tmp_path / "folder"))
    assert again.count() == 5


def test_a_misspelt_setting_is_refused():
    embeddings = txtai.Embeddings(**SETTINGS, logt={"bitz": 4})
    with pytest.raises(logt.InvalidInputError, match="no setting 'bitz' in txtai; it has: bits, effort"):
        embeddings.index([("a", vector("red bus"), None)])

"""Each script in examples runs and prints what it promises."""

import runpy
from importlib.util import find_spec

import pytest
from test_project import ROOT

PRINTS = {
    "fiftyone_similarity": "duplicates: 10",
    "first_index": "effort 1.0: recall@10 1.00",
    "from_faiss": "same first neighbor: 1.00",
    "image_pairs": "% of the pairs have names that start alike",
    "langchain_store": "after page 1: Boats in the harbour",
    "paper_methods": "LO-GT*, cascade",
    "sklearn_pipeline": "accuracy 0.9",
    "text_search": "blue dots 2.png",
    "txtai_backend": "after a removal: Boats in the harbour",
}
NEEDS = {"fiftyone_similarity": "fiftyone", "txtai_backend": "txtai"}  # the others are in the extra "all"


@pytest.mark.parametrize("example", PRINTS)
def test_an_example_runs(example, tmp_path, monkeypatch, capfd):
    needed = NEEDS.get(example)
    if needed and find_spec(needed) is None:
        pytest.skip(f"needs {needed}: pip install {needed}")
    path = str(ROOT / "examples" / f"{example}.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [path])
    runpy.run_path(path, run_name="__main__")
    assert PRINTS[example] in capfd.readouterr().out


def test_every_example_is_tested():
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(PRINTS)

"""Each script in examples runs and prints what it promises."""

import subprocess
import sys
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
def test_an_example_runs(example, tmp_path):
    needed = NEEDS.get(example)
    if needed and find_spec(needed) is None:
        pytest.skip(f"needs {needed}: pip install {needed}")
    command = [sys.executable, str(ROOT / "examples" / f"{example}.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert PRINTS[example] in done.stdout


def test_every_example_is_tested():
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(PRINTS)

"""The fuzzer: kept inputs and some mutated ones end in a result or a typed error; and it notices what does not."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from faults import TORTURE
from fuzz import KEPT, explore
from fuzz_inputs import read_corpus
from fuzz_targets import TARGETS

NAMES = [name for name, target in TARGETS.items() if target.is_default]
MUTATED = 4000 if TORTURE else 12


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")
def test_loaders_return_or_raise_a_typed_error(name):
    target = TARGETS[name]
    try:
        inputs = [*target.seeds(), *read_corpus(KEPT / name)]
    except ImportError as error:
        pytest.skip(f"needs {error.name}: pip install {error.name}")
    most = len(inputs) + MUTATED
    found = [finding for _, finding in explore(target, inputs, random.Random(0), lambda count: count >= most)]
    wrong = [text for kind, text in filter(None, found) if kind != "slow"]
    assert not wrong, wrong[0]


def test_each_folder_of_kept_inputs_belongs_to_a_target():
    assert {path.name for path in KEPT.iterdir()} <= set(NAMES)
    assert sum(path.stat().st_size for path in KEPT.rglob("*.zip")) < 300_000


def test_the_fuzzer_notices_errors_crashes_and_large_allocations(tmp_path):
    fuzzer = Path(__file__).with_name("fuzz.py")
    words = ["--target", "self-test", "--runs", "6", "--seconds", "60", "--corpus", str(tmp_path)]
    done = subprocess.run([sys.executable, fuzzer, *words], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    kinds = {path.stem.split("-")[2] for path in (tmp_path / "findings").glob("*.zip")}
    assert kinds == {"KeyError", "memory", "signal6"}

"""The word check finds words to avoid, also across lines, and can be told to allow a line."""  # words: allow

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from test_project import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import check_words

# words: allow is needed on each line with a sample
SAMPLES = {
    "a made collection": "made collection",  # words: allow
    "def made_vectors(n):": "made_vectors",  # words: allow
    "a whole\n    # number": "whole # number",  # words: allow
    "as asked": "asked",  # words: allow
    "self._told(x)": "told",  # words: allow
    "Rivals are faster": "Rivals",  # words: allow
    "build it anew": "anew",  # words: allow
    "the rest is sketched": "the rest",  # words: allow
    "the 5 opened\nunits": "opened units",  # words: allow
    "of no known kind": "of no known kind",  # words: allow
    "def test_it_stands_for_all():": "stands_for",  # words: allow
    "the k nearest neighbours": "neighbours",  # words: allow
    "showNeighbour(1)": "showNeighbour",  # words: allow
}
FINE = [
    "the rest of the page",
    "masks and tasks",
    "besides, a retold story",
    "vectors are made once",
    "the whole list",
    "its neighbors",
    "as asked  <!-- words: allow -->",
    "x = asked()  # words: allow",
]


@pytest.mark.parametrize("text", SAMPLES)
def test_words_to_avoid_are_found(text):
    assert [finding.found for finding in check_words.check_text(text)] == [SAMPLES[text]]


@pytest.mark.parametrize("text", FINE)
def test_other_words_and_allowed_lines_are_fine(text):
    assert not list(check_words.check_text(text))


def test_findings_name_file_line_and_what_to_write():
    (finding,) = check_words.check_text("one\ntwo anew", Path("a.py"))  # words: allow
    assert str(finding) == "a.py:2: 'anew': write again"  # words: allow


def test_the_command_fails_if_there_are_findings_and_skips_folders(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "a.md").write_text("A dear friend")  # words: allow
    (tmp_path / "b.py").write_text("# plain words\n")
    command = [sys.executable, str(ROOT / "scripts" / "check_words.py"), str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert "a.md:1: 'dear'" in found.stdout  # words: allow
    skipped = subprocess.run(
        [*command, "--skip", str(tmp_path / "kept")], capture_output=True, text=True, check=False
    )
    assert (skipped.returncode, skipped.stdout) == (0, "")

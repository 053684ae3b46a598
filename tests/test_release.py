"""`make release`: what would make a wrong release is found."""

import importlib.util
import os
import shutil
import subprocess

import pytest
from test_project import ROOT


@pytest.fixture
def release(tmp_path, monkeypatch):
    """The script, with ROOT a repository that is ready for the release of 1.2.3."""
    if not shutil.which("git"):
        pytest.skip("needs git")
    spec = importlib.util.spec_from_file_location("release_script", ROOT / "scripts" / "release.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "ROOT", tmp_path)
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n## 1.2.3\n\n- New.\n")
    (tmp_path / "CITATION.cff").write_text("title: logt\nversion: 1.2.3\n")
    (tmp_path / ".gitignore").write_text("dist/\nbuild/\n")
    runner = tmp_path / "benchmarks" / "runners" / "vibe" / "image.def"
    runner.parent.mkdir(parents=True)
    runner.write_text("pip install logt-search==1.2.3\n")
    commit(tmp_path)
    for name in ("dist/logt_search-1.2.3-x.whl", "dist/logt_search-1.2.3.tar.gz", "build/docs/index.html"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return script


def commit(folder):
    person = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q"), ("add", "-A"), (*person, "commit", "-q", "-m", "A release")):
        subprocess.run(["git", *words], cwd=folder, check=True)


def test_a_version_that_is_ready_has_no_problems(release):
    assert list(release.problems("1.2.3")) == []


def test_a_version_of_the_development_is_refused(release):
    found = "\n".join(release.problems("1.2.4.dev0"))
    for part in (
        "__init__.py has the version",
        "CHANGELOG.md has no section",
        "CITATION.cff",
        "installs 1.2.3",
        "dist has no",
    ):
        assert part in found


@pytest.mark.parametrize(
    ("path", "text", "problem"),
    [
        ("CHANGELOG.md", "## Unreleased\n\n- More.\n\n## 1.2.3\n", "has entries under"),
        ("CITATION.cff", "version: 1.2.2\n", "CITATION.cff does not have"),
        ("benchmarks/runners/vibe/image.def", "pip install logt-search==1.0.0\n", "image.def installs 1.0.0"),
    ],
)
def test_each_file_has_to_agree(release, path, text, problem):
    (release.ROOT / path).write_text(text)
    assert any(problem in found for found in release.problems("1.2.3"))
    assert "there are changes that are not committed" in list(release.problems("1.2.3"))


def test_a_wheel_that_is_older_than_the_last_commit_is_refused(release):
    for name in ("logt_search-1.2.3-x.whl", "logt_search-1.2.3.tar.gz"):
        os.utime(release.ROOT / "dist" / name, (1, 1))
    assert list(release.problems("1.2.3")) == ["dist has no logt_search-1.2.3* that is newer than the last commit"]

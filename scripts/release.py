"""Check that a version can be released, and print what is left to do: `make release`."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import logt

ROOT = Path(__file__).parent.parent


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def problems(version: str) -> Iterator[str]:
    """Yield what is wrong with the version, the changelog, the wheels and the documentation."""
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        yield f"src/logt/__init__.py has the version {version}; a release has one such as 1.0.0 or 1.0.0rc1"
    changelog = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## (\S+)", changelog, re.MULTILINE)
    if headings[:2] != ["Unreleased", version]:
        yield f'CHANGELOG.md has no section "## {version}" after an empty "## Unreleased"'
    elif re.search(r"^## Unreleased\s+[^\s#]", changelog, re.MULTILINE):
        yield 'CHANGELOG.md has entries under "## Unreleased"'
    if not re.search(rf"^version: \"?{re.escape(version)}\"?$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE):
        yield f"CITATION.cff does not have the version {version}"
    for path in sorted((ROOT / "benchmarks" / "runners").glob("*/*")):
        if (pins := re.findall(r"logt-search==(\S+)", path.read_text())) and pins != [version]:
            yield f"{path.relative_to(ROOT)} installs {pins[0]}"
    if git("status", "--porcelain"):
        yield "there are changes that are not committed"
    if git("tag", "--list", f"v{version}"):
        yield f"the tag v{version} exists already"
    committed = int(git("log", "-1", "--format=%ct"))
    built = {"dist": f"logt_search-{version}*", "build/docs": "index.html"}
    for folder, pattern in built.items():
        newest = [path for path in (ROOT / folder).glob(pattern) if path.stat().st_mtime >= committed]
        missing = {".whl", ".gz"} - {path.suffix for path in newest} if folder == "dist" else not newest
        if missing:
            yield f"{folder} has no {pattern} that is newer than the last commit"


LEFT = """
Left for a person:

1. Read the section of {version} in CHANGELOG.md, and README.md, as a stranger would.
2. The tests of the last commit have passed on GitHub, on x86-64 and arm64; so have `make torture` and
   `make sanitize`.
3. A release with a new format has its golden files: python tests/make_golden.py.
4. git tag --sign v{version} && git push origin v{version}
5. The workflow "wheels" builds, tests, attests and publishes. Its environment "release" waits for an approval, and
   needs a trusted publisher on the Python Package Index (project logt-search, workflow wheels.yml).
6. On another machine: pip install logt-search=={version} && logt demo
   gh attestation verify WHEEL --repo logt-search/logt
7. Set the next version, with ".dev0".
"""


def main() -> int:
    version = logt.__version__
    found = list(problems(version))
    for problem in found:
        print(f"- {problem}")
    print(f"{version} cannot be released yet" if found else f"{version} can be released")
    print(LEFT.format(version=version))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())

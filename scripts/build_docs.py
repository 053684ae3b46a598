"""Build the documentation site: `python scripts/build_docs.py FOLDER`, or `make docs`. Warnings are errors."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def main(folder: str) -> int:
    shutil.rmtree(DOCS / "reference" / "generated", ignore_errors=True)  # pages of modules that no longer exist
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", str(DOCS), folder]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

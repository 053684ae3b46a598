"""Build the documentation site: `python scripts/build_docs.py FOLDER`, or `make docs`. Warnings are errors."""

import gc
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import main as build

DOCS = Path(__file__).parent.parent / "docs"


def main(folder: str) -> int:
    shutil.rmtree(DOCS / "reference" / "generated", ignore_errors=True)  # pages of modules that no longer exist
    gc.disable()  # the trees of all pages are kept until the end: looking for garbage takes a sixth of the time
    return build(["--fail-on-warning", "--keep-going", "--quiet", str(DOCS), folder])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

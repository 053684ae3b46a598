"""Check that the public API is typed: `python scripts/check_public_types.py`, or `make types`. Needs pyright.

pyright --verifytypes looks at every module. This keeps what it says about the names in `__all__` of the modules that
docs/reference/stability.md lists, and about the classes they are made of.
"""

import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from logt.server.client import Client

ROOT = Path(__file__).parent.parent
STABILITY = ROOT / "docs" / "reference" / "stability.md"
CLIENT = "logt.server.client.AsyncClient."
BY_ASSIGNMENT = {"logt.open"}  # Index.open, which is typed
BASES = ("Type of base class", "Type of metaclass")  # of packages without types; those of logt are checked themselves


def stable_modules() -> list[str]:
    """Return the modules whose names are stable."""
    return re.findall(r"^\| `(logt[\w.]*)` \|", STABILITY.read_text(), re.MULTILINE)


def public_names(module: str) -> Iterator[str]:
    """Yield the names of a module as pyright knows them: where they are exported, and where they are defined."""
    content = importlib.import_module(module)
    for name in content.__all__:
        yield f"{module}.{name}"
        value = getattr(content, name)
        for part in inspect.getmro(value) if inspect.isclass(value) else [value]:
            if getattr(part, "__module__", "").startswith("logt") and hasattr(part, "__qualname__"):
                yield f"{part.__module__}.{part.__qualname__}"


def main() -> int:
    names = {name for module in stable_modules() for name in public_names(module)} - BY_ASSIGNMENT
    in_threads = {f"{CLIENT}{name}" for name in vars(Client)}  # typed as the methods of Client that they are made of
    python = Path(sys.executable).parent  # pyright looks for packages of the first Python in PATH
    paths = {"PATH": f"{python}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "pyright", "--verifytypes", "logt", "--ignoreexternal", "--outputjson"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **paths}, check=False)
    symbols = json.loads(done.stdout)["typeCompleteness"]["symbols"]
    wrong = [
        f"{symbol['name']}: {' '.join(problem['message'].split())}"
        for symbol in symbols
        if not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]
        if any(symbol["name"] == name or symbol["name"].startswith(f"{name}.") for name in names)
        for problem in symbol["diagnostics"]
        if symbol["name"] not in BY_ASSIGNMENT | in_threads and not problem["message"].startswith(BASES)
    ]
    print("\n".join(wrong) or f"{len(names)} public names are typed")
    return bool(wrong) or not symbols


if __name__ == "__main__":
    sys.exit(main())

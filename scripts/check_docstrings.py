"""Report parameters of public functions and classes that no docstring mentions; `make check` runs it.

    python scripts/check_docstrings.py MODULE...

A parameter of a method may be described in the docstring of its class.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def public_objects(module: ModuleType) -> Iterator[tuple[str, Any, str]]:
    """Yield (name, object, docstrings) of what a module exports, and of the public methods of its classes."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    for name in getattr(module, "__all__", None) or [name for name in own if not name.startswith("_")]:
        value = getattr(module, name)
        if inspect.isclass(value):
            yield name, value, value.__doc__ or ""
            for method in vars(value):
                bound = getattr(value, method)
                if not method.startswith("_") and inspect.isroutine(bound):
                    yield f"{name}.{method}", bound, f"{bound.__doc__}\n{value.__doc__}"
        elif inspect.isroutine(value):
            yield name, value, value.__doc__ or ""


def parameters(value: Any) -> list[str]:
    """Return the names of the parameters that a caller passes."""
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value) if not field.name.startswith("_")]
    try:
        found = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in found if p.name not in ("self", "cls") and p.kind not in _VARIADIC]


def undescribed(module: ModuleType) -> list[str]:
    """Return "name: parameter" for each parameter that is missing from the docstrings."""
    return [
        f"{module.__name__}.{name}: {parameter}"
        for name, value, text in public_objects(module)
        for parameter in parameters(value)
        if not re.search(rf"(?<!\w){re.escape(parameter)}(?!\w)", text)
    ]


def main(names: list[str]) -> int:
    missing = [line for name in names for line in undescribed(importlib.import_module(name))]
    print(*missing, sep="\n", end="\n" if missing else "")
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

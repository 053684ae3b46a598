"""Report parameters of public functions and classes that no docstring mentions; `make check` runs it.

    python scripts/check_docstrings.py MODULE...

A parameter may be described in the docstring of its function or class, in one that these inherit, or, for a field of
a dataclass, in a string after the field. A method of a dataclass may take a field as it is described there.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from types import ModuleType
from typing import Any

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def public_objects(module: ModuleType) -> Iterator[tuple[str, Any, str]]:
    """Yield (name, object, docstrings) of what a module exports, and of the public methods of its classes."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    for name in getattr(module, "__all__", None) or [name for name in own if not name.startswith("_")]:
        value = getattr(module, name)
        if inspect.isclass(value):
            about = class_text(value)
            yield name, value, about
            package = module.__name__.split(".")[0]
            inherited = [base for base in value.__mro__ if base.__module__.split(".")[0] == package]
            for method in dict.fromkeys(name for base in inherited for name in vars(base)):
                bound = getattr(value, method)
                if not method.startswith("_") and inspect.isroutine(bound):
                    fields = about if dataclasses.is_dataclass(value) else ""
                    yield f"{name}.{method}", bound, f"{method_text(value, method)}\n{fields}"
        elif inspect.isroutine(value):
            yield name, value, value.__doc__ or ""


def class_text(cls: type) -> str:
    """Return the docstrings of a class, of its fields, and of the classes that it is derived from."""
    texts = []
    for base in cls.__mro__:
        if base.__module__ != "builtins":
            written = base.__dict__.get("__doc__") or ""
            texts.append("" if written.startswith(f"{base.__name__}(") else written)  # a dataclass without docstring
            if "__init__" in base.__dict__:
                texts.append(base.__dict__["__init__"].__doc__ or "")
            texts += field_texts(base)
    return "\n".join(texts)


def method_text(cls: type, name: str) -> str:
    """Return the docstrings of a method and of those that it overrides."""
    found = [getattr(base, name) for base in cls.__mro__ if name in base.__dict__]
    return "\n".join(method.__doc__ or "" for method in found)


def field_texts(cls: type) -> list[str]:
    """Return "field: text" for each field of a class that is followed by a string."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    except (OSError, TypeError):  # the source is not in a file
        return []
    statements = body.body if isinstance(body, ast.ClassDef) else []
    return [
        f"{field.target.id}: {text.value.value}"
        for field, text in pairwise(statements)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    ]


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

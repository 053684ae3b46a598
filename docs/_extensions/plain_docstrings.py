"""Read docstrings of plain text: `code` in single backticks, parameters as "name: text", nothing else is markup.

The docstrings of this project are written to be read in an editor. This turns them into what Sphinx reads.
"""

import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

from sphinx.util.inspect import TypeAliasForwardRef


def setup(app: Any) -> dict[str, bool]:
    app.setup_extension("sphinx.ext.autodoc")
    TypeAliasForwardRef.__repr__ = lambda alias: alias.name  # types as in the code, not as Sphinx holds them
    app.connect("autodoc-process-docstring", process)
    app.connect("autodoc-process-signature", process_signature)
    return {"parallel_read_safe": True}


def process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Replace the lines of a docstring by reStructuredText; called by autodoc."""
    lines[:] = convert("\n".join(lines), parameter_names(obj))


def process_signature(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Replace types in a signature by the names that the code uses; called by autodoc."""
    return shorten_types(signature), shorten_types(returns)


def shorten_types(signature: str | None) -> str | None:
    """Return a signature with array types as NumPy users write them."""
    if signature is None:
        return None
    array = r"[\w.~]*ndarray\[tuple\[[\w.~]*Any, \.\.\.\], [\w.~]*dtype\[([\w.~]+)\]\]"
    return re.sub(array, r"NDArray[\1]", signature)


def data_names(module: str) -> list[str]:
    """Return the public names of a module that are neither classes nor functions nor modules."""
    content = importlib.import_module(module)
    values = {name: getattr(content, name) for name in getattr(content, "__all__", ())}
    others = (inspect.isclass, inspect.isroutine, inspect.ismodule)
    return [name for name, value in values.items() if not any(is_other(value) for is_other in others)]


def parameter_names(obj: Any) -> list[str]:
    """Return the names of the parameters of a function, or of those that make an object of a class."""
    if dataclasses.is_dataclass(obj):
        return [field.name for field in dataclasses.fields(obj)]
    try:
        return [name for name in inspect.signature(obj).parameters if name not in ("self", "cls")]
    except (TypeError, ValueError):
        return []


def convert(text: str, names: list[str]) -> list[str]:
    """Return the lines of a docstring as reStructuredText, with a field for each parameter that it describes."""
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        if all(line.startswith("    ") for line in paragraph.split("\n")):
            lines += ["::", "", *paragraph.split("\n"), ""]
            continue
        start, described = split_parameters(paragraph, names)
        lines += [*escape(start).split("\n"), ""] if start else []
        lines += [f":param {name}: {escape(description)}" for name, description in described]
        lines += [""] if described else []
    return lines


def split_parameters(paragraph: str, names: list[str]) -> tuple[str, list[tuple[str, str]]]:
    """Split a paragraph such as "k: how many. p, R: the cascade." into (what comes before, [(name, text)])."""
    if not names:
        return paragraph, []
    name = "|".join(map(re.escape, names))
    starts = list(re.finditer(rf"(?:^|(?<=[.;)] )|(?<=\n))((?:{name})(?:, (?:{name}))*):\s", paragraph))
    if not starts:
        return paragraph, []
    return paragraph[: starts[0].start()].rstrip(), list(_entries(paragraph, starts))


def _entries(paragraph: str, starts: list[re.Match[str]]) -> Iterator[tuple[str, str]]:
    ends = [match.start() for match in starts[1:]] + [len(paragraph)]
    for match, end in zip(starts, ends, strict=True):
        text = " ".join(paragraph[match.end() : end].split())
        for name in match[1].split(", "):
            yield name, text


def escape(text: str) -> str:
    """Return text in which only `code` is markup."""
    parts = re.split(r"`+([^`]+)`+", text)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"_(?=\W|$)", r"\_", re.sub(r"([\\*|])", r"\\\1", parts[i]))
    for i in range(1, len(parts), 2):
        before = "\\ " if re.search(r"\w$", parts[i - 1]) else ""
        after = "\\ " if re.match(r"\w", parts[i + 1]) else ""
        parts[i] = f"{before}``{parts[i]}``{after}"
    return "".join(parts)

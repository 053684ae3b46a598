"""The OpenAPI description -> what the reference page shows, without anything from the internet."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Field:
    name: str
    kind: str
    required: bool
    about: str


@dataclass(frozen=True)
class Operation:
    """One thing that can be asked of the service."""

    method: str
    path: str
    about: str
    fields: tuple[Field, ...]
    errors: tuple[tuple[str, str], ...]
    example: str


def grouped(description: dict[str, Any], start: str) -> dict[str, list[Operation]]:
    """All operations by group, in the order of the description; `start` is how a call of them begins."""
    groups: dict[str, list[Operation]] = {}
    for path, methods in description["paths"].items():
        for method, about in methods.items():
            operation = _operation(description, method.upper(), path, about, start)
            groups.setdefault(about["tags"][0], []).append(operation)
    return groups


def _operation(description: dict[str, Any], method: str, path: str, about: dict[str, Any], start: str) -> Operation:
    content = about.get("requestBody", {}).get("content", {})
    kind = next(iter(content), "")
    body = _resolved(description, content[kind]["schema"]) if kind else {}
    fields = [
        Field(given["name"], _kind(description, given["schema"]), given.get("required", False), _about(given))
        for given in about.get("parameters", ())
    ]
    required = body.get("required", ())
    for name, schema in body.get("properties", {}).items():
        fields.append(Field(name, _kind(description, schema), name in required, _about(schema)))
    errors = [(code, given["description"]) for code, given in about["responses"].items() if code >= "400"]
    return Operation(
        method,
        path,
        about.get("description", ""),
        tuple(fields),
        tuple(errors),
        _example(start + path, kind, fields),
    )


def _about(given: dict[str, Any]) -> str:
    return str(given.get("description", given.get("schema", {}).get("description", "")))


def _resolved(description: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").removeprefix("#/components/schemas/")
    resolved: dict[str, Any] = description["components"]["schemas"][name] if name else schema
    return resolved


def _kind(description: dict[str, Any], schema: dict[str, Any]) -> str:
    """A type in a few words."""
    schema = _resolved(description, schema)
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(description, part) for part in schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(map(json.dumps, schema["enum"]))
    if schema.get("type") == "array":
        parts = schema.get("prefixItems") or [schema.get("items", {})]
        count = f"{len(parts)} of " if "prefixItems" in schema else "list of "
        return count + _kind(description, parts[0])
    if schema.get("contentMediaType") or schema.get("format") == "binary":
        return "file"
    return str(schema.get("type", "any"))


_VALUES = {
    "vectors": [[0.1, 0.2, 0.3]],
    "ids": ["a.jpg"],
    "id": "a.jpg",
    "k": 10,
    "box": [0.1, 0.2, 0.5, 0.9],
}


def _example(call: str, kind: str, fields: list[Field]) -> str:
    """The call as a line for a shell."""
    shown = [field for field in fields if field.required or field.name == "k"]
    if kind == "multipart/form-data":
        return " ".join([call, *("-F photo=@photo.jpg" if f.kind == "file" else f"-F {f.name}=10" for f in shown)])
    if kind:
        body = json.dumps({field.name: _VALUES[field.name] for field in shown})
        return f"{call} -H 'Content-Type: application/json' -d '{body}'"
    return " ".join([call, *(f"-G -d {field.name}={_VALUES[field.name]}" for field in shown)])

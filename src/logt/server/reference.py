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
    group: str
    about: str
    fields: tuple[Field, ...]
    errors: tuple[tuple[str, str], ...]
    example: str


def operations(description: dict[str, Any]) -> list[Operation]:
    """All operations, in the order of the description."""
    return [
        _operation(description, method.upper(), path, about)
        for path, methods in description["paths"].items()
        for method, about in methods.items()
    ]


def _operation(description: dict[str, Any], method: str, path: str, about: dict[str, Any]) -> Operation:
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
        about.get("tags", [""])[0],
        about.get("description", ""),
        tuple(fields),
        tuple(errors),
        _example(method, path, kind, fields),
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


def _example(method: str, path: str, kind: str, fields: list[Field]) -> str:
    """The call as a line for a shell."""
    start = "curl" if method == "GET" else f"curl -X {method}"
    shown = [field for field in fields if field.required or field.name == "k"]
    if kind == "multipart/form-data":
        form = " ".join("-F photo=@photo.jpg" if field.kind == "file" else f"-F {field.name}=10" for field in shown)
        return f"curl {form} $URL{path}"
    if kind:
        body = json.dumps({field.name: _VALUES.get(field.name) for field in shown})
        return f"{start} -H 'Content-Type: application/json' -d '{body}' $URL{path}"
    query = "&".join(f"{field.name}={_VALUES[field.name]}" for field in shown)
    return f"{start} '$URL{path}?{query}'" if query else f"{start} $URL{path}"

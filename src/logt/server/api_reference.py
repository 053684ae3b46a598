"""The API reference page, generated from the OpenAPI description.

FastAPI's Swagger UI and ReDoc pages are not used: they load scripts from a CDN and contain inline scripts and styles,
which the Content-Security-Policy of the server forbids.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

OpenAPI = dict[str, Any]
Schema = dict[str, Any]


@dataclass(frozen=True)
class Parameter:
    """A query parameter, form field or JSON field."""

    name: str
    type: str
    required: bool
    description: str


@dataclass(frozen=True)
class Operation:
    """One operation of the API, with an example as a curl command."""

    method: str
    path: str
    description: str
    parameters: tuple[Parameter, ...]
    errors: tuple[tuple[str, str], ...]
    example: str


def group_operations(openapi: OpenAPI, command: str) -> dict[str, list[Operation]]:
    """Return the operations by tag; `command` is the start of each example: curl, its options and the base URL."""
    groups: dict[str, list[Operation]] = {}
    for path, methods in openapi["paths"].items():
        for method, spec in methods.items():
            operation = _read_operation(openapi, method.upper(), path, spec, command)
            groups.setdefault(spec["tags"][0], []).append(operation)
    return groups


def _read_operation(openapi: OpenAPI, method: str, path: str, spec: Schema, command: str) -> Operation:
    content = spec.get("requestBody", {}).get("content", {})
    content_type = next(iter(content), "")
    parameters = [
        Parameter(given["name"], _type_name(openapi, given["schema"]), given.get("required", False), _describe(given))
        for given in spec.get("parameters", ())
    ]
    if content_type:
        parameters += _body_parameters(openapi, content[content_type]["schema"])
    return Operation(
        method,
        path,
        spec.get("description", ""),
        tuple(parameters),
        tuple((code, given["description"]) for code, given in spec["responses"].items() if code >= "400"),
        _example(command + path, content_type, parameters),
    )


def _body_parameters(openapi: OpenAPI, schema: Schema) -> list[Parameter]:
    body = _resolve(openapi, schema)
    required = body.get("required", ())
    return [
        Parameter(name, _type_name(openapi, field), name in required, _describe(field))
        for name, field in body.get("properties", {}).items()
    ]


def _describe(spec: Schema) -> str:
    return str(spec.get("description", spec.get("schema", {}).get("description", "")))


def _resolve(openapi: OpenAPI, schema: Schema) -> Schema:
    """Return the schema that a reference names, or the schema itself."""
    name = schema.get("$ref", "").removeprefix("#/components/schemas/")
    resolved: Schema = openapi["components"]["schemas"][name] if name else schema
    return resolved


def _type_name(openapi: OpenAPI, schema: Schema) -> str:
    """Return a short name of a type, such as "list of integer or null"."""
    schema = _resolve(openapi, schema)
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type_name(openapi, option) for option in schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(map(json.dumps, schema["enum"]))
    if schema.get("type") == "array":
        items = schema.get("prefixItems") or [schema.get("items", {})]
        count = f"{len(items)} " if "prefixItems" in schema else ""
        return f"list of {count}{_type_name(openapi, items[0])}"
    if schema.get("contentMediaType") or schema.get("format") == "binary":
        return "file"
    return str(schema.get("type", "any"))


_EXAMPLE_VALUES = {
    "vectors": [[0.1, 0.2, 0.3]],
    "ids": ["a.jpg"],
    "id": "a.jpg",
    "text": "a red bus",
    "k": 10,
    "box": [0.1, 0.2, 0.5, 0.9],
}


def _example(call: str, content_type: str, parameters: list[Parameter]) -> str:
    """Return the operation as a shell command."""
    shown = [parameter for parameter in parameters if parameter.required or parameter.name == "k"]
    shown = [parameter for parameter in shown if f"{{{parameter.name}}}" not in call]
    call = call.replace("{id}", "ID")
    if content_type == "multipart/form-data":
        return " ".join([call, *("-F photo=@photo.jpg" if p.type == "file" else f"-F {p.name}=10" for p in shown)])
    if content_type:
        body = json.dumps({parameter.name: _EXAMPLE_VALUES[parameter.name] for parameter in shown})
        return f"{call} -H 'Content-Type: application/json' -d '{body}'"
    return " ".join([call, *(f"-G -d {parameter.name}={_EXAMPLE_VALUES[parameter.name]}" for parameter in shown)])

"""The page about the routes of the service: requests, parameters, bodies and answers, from its OpenAPI document."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import markdown_text

import windvane
from windvane import records, service_records
from windvane.service.http.app import create_app
from windvane.service.store import SqliteStore

TAGS = {"decisions": "Decisions and rewards", "streams": "Streams", "service": "The service"}
Schema = Mapping[str, Any]


@functools.cache
def read_openapi() -> dict[str, Any]:
    """Return the OpenAPI document of the service."""
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(SqliteStore(Path(folder, "x.db"))) as store:
        return create_app(store).app.openapi()  # type: ignore[attr-defined, no-any-return]


def write_routes() -> str:
    """Return a section for each kind of routes: a table, then every route."""
    return "\n".join(_write_tags(read_openapi()))


def write_schemas() -> str:
    """Return a section for each body and answer."""
    schemas = read_openapi()["components"]["schemas"]
    return "\n".join(line for name in sorted(schemas) for line in _write_schema(name, schemas[name]))


def _write_tags(document: Schema) -> Iterator[str]:
    operations = [
        (f"{method.upper()} {path}", operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    for tag, title in TAGS.items():
        part = [(request, operation) for request, operation in operations if operation["tags"] == [tag]]
        yield f"## {title}\n"
        yield markdown_text.table(
            ("request", "what it does"),
            [(f"[`{request}`](#{_anchor(operation)})", _summarise(operation)) for request, operation in part],
        )
        for request, operation in part:
            yield from _write_route(request, operation)


def _anchor(operation: Schema) -> str:
    return "route-" + re.sub(r"(?=[A-Z])", "-", operation["operationId"]).lower()


def _summarise(operation: Schema) -> str:
    return markdown_text.read_docstring(operation["description"]).partition("\n\n")[0].replace("\n", " ")


def _write_route(request: str, operation: Schema) -> Iterator[str]:
    yield f"({_anchor(operation)})=\n### {request}\n"
    yield f"{markdown_text.read_docstring(operation['description'])}\n"
    if operation.get("parameters"):
        rows = []
        for parameter in operation["parameters"]:
            schema = parameter["schema"]
            text = markdown_text.read_docstring(parameter.get("description", ""))
            rows.append((f"`{parameter['name']}`", parameter["in"], describe_type(schema), text + _default(schema)))
        yield markdown_text.table(("parameter", "in", "type", "meaning"), rows)
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        yield f"Body: {describe_type(schema)}\n"
    yield "Answers:\n"
    yield from (f"- {line}" for line in _describe_answers(operation["responses"]))
    yield ""


def _describe_answers(responses: Schema) -> Iterator[str]:
    """Yield a line for each success, and one for all problems."""
    problems = []
    for status, response in responses.items():
        content = response.get("content", {})
        if "application/problem+json" in content:
            problems.append(status)
            continue
        kinds = [
            describe_type(body["schema"]) if media == "application/json" else f"`{media}`"
            for media, body in content.items()
        ]
        headers = "".join(f", with the header `{name}`" for name in response.get("headers", {}))
        yield f"**{status}** {' or '.join(dict.fromkeys(kinds)) or 'without a body'}{headers}"
    if problems:
        yield f"[Problems](errors.md#problems-of-the-service): {', '.join(problems)}"


def _write_schema(name: str, schema: Schema) -> Iterator[str]:
    yield f"({_schema_anchor(name)})=\n### {name}\n"
    described = markdown_text.read_entries(schema.get("description", ""), "Attributes")
    described = _describe_settings(name) | markdown_text.read_entries(_find_docstring(name), "Attributes") | described
    yield markdown_text.read_docstring(schema.get("description", "")) + "\n"
    required = schema.get("required", [])
    rows = []
    for field, of_field in schema.get("properties", {}).items():
        text = markdown_text.read_docstring(of_field.get("description", "") or described.get(field, ""))
        is_optional = field not in required and "default" not in of_field
        note = " Optional." if is_optional and schema.get("additionalProperties") is False else ""
        rows.append((f"`{field}`", describe_type(of_field), text.replace("\n", " ") + note + _default(of_field)))
    yield markdown_text.table(("field", "type", "meaning"), rows)
    for example in schema.get("examples", []):
        yield f"```json\n{json.dumps(example)}\n```\n"


def _find_docstring(name: str) -> str:
    """Return the docstring of a record, with those of its base classes."""
    record = getattr(records, name, None) or getattr(service_records, name, None)
    bases = reversed(inspect.getmro(record)[:-1]) if record else ()
    return "\n\n".join(inspect.getdoc(base) or "" for base in bases)


def _describe_settings(name: str) -> dict[str, str]:
    """Return what the arguments of an agent mean, for the schemas that have them as fields."""
    is_about_streams = name in ("NewStream", "StreamSettings", "StreamChanges", "RefitRequest")
    return markdown_text.read_entries(inspect.getdoc(windvane.Agent) or "", "Parameters") if is_about_streams else {}


def _schema_anchor(name: str) -> str:
    return "schema-" + re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


def _default(schema: Schema) -> str:
    return f" Default: `{json.dumps(schema['default'])}`." if schema.get("default") is not None else ""


def describe_type(schema: Schema) -> str:
    """Return a type in words, with links to the schemas of the page."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{_schema_anchor(name)})"
    if "anyOf" in schema:
        kinds = [describe_type(option) for option in schema["anyOf"]]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in schema or "const" in schema:
        return " or ".join(f"`{json.dumps(value)}`" for value in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type")
    if kind == "array":
        limit = f", {_range(schema, 'Items')}" if _range(schema, "Items") else ""
        return f"list of ({describe_type(schema['items'])}){limit}" if schema.get("items") else "list"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"object of ({describe_type(values)})" if isinstance(values, Mapping) else "object"
    if kind == "string":
        length = _range(schema, "Length")
        pattern = f", matches `{schema['pattern']}`" if "pattern" in schema else ""
        text = "time" if schema.get("format") == "date-time" else "string"
        return text + (f", {length} characters" if length else "") + pattern.replace("|", "\\|")
    if kind in ("integer", "number"):
        limits = [f"at least {schema['minimum']:g}"] if schema.get("minimum") is not None else []
        limits += [f"at most {schema['maximum']:,.0f}"] if schema.get("maximum") is not None else []
        return ", ".join(["whole number" if kind == "integer" else "number", *limits])
    return {"boolean": "true or false", "null": "null"}.get(str(kind), "any")


def _range(schema: Schema, what: str) -> str:
    least, most = schema.get(f"min{what}"), schema.get(f"max{what}")
    if least == most:
        return "" if most is None else f"{most:,}"
    if most is None:
        return f"at least {least:,}"
    return f"{least:,} to {most:,}" if least else f"at most {most:,}"

"""The page about the routes has every route, parameter, body, answer and field of the OpenAPI document."""

from __future__ import annotations

import re
from typing import Any

import markdown_text
import pytest
import route_reference


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return route_reference.read_openapi()


def split_sections(text: str) -> dict[str, str]:
    parts = re.split(r"^### (.+)\n", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_route_has_its_section(document: dict[str, Any]) -> None:
    sections = split_sections(route_reference.write_routes())
    operations = {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert sections.keys() == operations.keys()
    for request, operation in operations.items():
        names = [parameter["name"] for parameter in operation.get("parameters", [])]
        assert re.findall(r"^\| `([^`]+)` \|", sections[request].partition("\n## ")[0], re.M) == names
        assert ("Body: " in sections[request]) == ("requestBody" in operation)
        for status, answer in operation["responses"].items():
            is_problem = "application/problem+json" in answer.get("content", {})
            assert re.search(rf"Problems\].*\b{status}\b" if is_problem else rf"\*\*{status}\*\*", sections[request])


def test_every_schema_has_its_fields(document: dict[str, Any]) -> None:
    sections = split_sections(route_reference.write_schemas())
    schemas = document["components"]["schemas"]
    assert sections.keys() == schemas.keys()
    for name, schema in schemas.items():
        fields = re.findall(r"^\| `([^`]+)` \|", sections[name], re.M)
        assert fields == list(schema.get("properties", {})), name


def test_every_link_leads_to_a_section() -> None:
    text = route_reference.write_routes() + route_reference.write_schemas()
    targets = set(re.findall(r"^\(([a-z-]+)\)=$", text, re.M))
    assert set(re.findall(r"\]\(#([a-z-]+)\)", text)) <= targets


def test_settings_are_described_as_those_of_the_agent() -> None:
    section = split_sections(route_reference.write_schemas())["NewStream"]
    assert "| `default_reward` | number or null | The reward of a decision whose timeout passes without one." in section


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"$ref": "#/components/schemas/HalfLife"}, "[HalfLife](#schema-half-life)"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string or null"),
        ({"type": "integer", "minimum": 1, "maximum": 1000.0}, "whole number, at least 1, at most 1,000"),
        ({"type": "string", "maxLength": 200}, "string, at most 200 characters"),
        ({"type": "string", "format": "date-time"}, "time"),
        ({"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}, "list of (number), 2"),
        ({"type": "object", "additionalProperties": {"type": "boolean"}}, "object of (true or false)"),
        ({"enum": ["ndjson", "parquet"]}, '`"ndjson"` or `"parquet"`'),
        ({}, "any"),
    ],
)
def test_types_are_words(schema: dict[str, Any], text: str) -> None:
    assert route_reference.describe_type(schema) == text


def test_docstrings_become_markdown() -> None:
    text = "Return ``x`` of :class:`~windvane.records.Decision`, <x, theta_hat>.\n\nNotes\n-----\nMore."
    assert markdown_text.read_docstring(text) == r"Return `x` of `Decision`, \<x, theta\_hat\>."


def test_entries_are_read_by_name() -> None:
    section = "Attributes\n----------\nid : str\n    The id,\n    unique.\nlow, high\n    Both."
    text = f"Summary.\n\n{section}\n\nNotes\n-----\nlow : of something else"
    assert markdown_text.read_entries(text, "Attributes") == {"id": "The id, unique.", "low": "Both.", "high": "Both."}


def test_tables_leave_out_empty_columns() -> None:
    assert markdown_text.table(("a", "b"), [("1", ""), ("2", "")]) == "| a |\n| --- |\n| 1 |\n| 2 |\n"
    assert markdown_text.table(("a",), []) == ""

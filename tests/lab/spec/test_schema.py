"""The JSON schema accepts what specs accept, and editors find every key in it."""

from __future__ import annotations

import json
import tomllib

import jsonschema_rs
import pytest

from support.spec_objects import BASE
from windvane.lab.spec.example import write_example
from windvane.lab.spec.field_types import PARTS
from windvane.lab.spec.schema import build_schema
from windvane.policies.registry import POLICIES

SCHEMA = json.loads(json.dumps(build_schema()))
VALIDATOR = jsonschema_rs.Draft202012Validator(SCHEMA)

EXAMPLE = write_example()


def refuse(old: str, new: str) -> list[str]:
    """The paths of the errors in BASE after an edit."""
    assert old in BASE
    return ["/".join(map(str, e.instance_path)) for e in VALIDATOR.iter_errors(tomllib.loads(BASE.replace(old, new)))]


def test_the_schema_is_a_schema() -> None:
    assert jsonschema_rs.meta.is_valid(SCHEMA)


@pytest.mark.parametrize("text", [BASE, EXAMPLE], ids=["base", "example"])
def test_valid_specs_are_accepted(text: str) -> None:
    VALIDATOR.validate(tomllib.loads(text))


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("runs = 50", "runs = 0", "runs"),
        ("runs = 50", "runz = 50", ""),
        ('"sinusoid"', '"sinusiod"', "environments/1"),
        ("period = 100", "perid = 100", "environments/1"),
        ('"D-LinUCB"', '"D-LinUBC"', "policies/1/policy"),
        ("settings.lam", "settings.lamda", "policies/1/settings"),
        ("sweep.gamma", "sweep.window", "policies/1/sweep"),
        ('link = "logistic"', 'kind = "labelled"', "environments/0"),
    ],
)
def test_mistakes_are_refused_where_they_are(old: str, new: str, place: str) -> None:
    assert refuse(old, new) == [place]


def test_every_kind_and_policy_is_in_the_schema() -> None:
    kinds = {d["properties"]["kind"]["const"] for d in SCHEMA["$defs"].values() if "kind" in d.get("properties", {})}
    assert {kind for part in PARTS.values() for kind in part} <= kinds
    assert SCHEMA["$defs"]["PolicySpec"]["properties"]["policy"]["anyOf"][0]["enum"] == list(POLICIES)


def test_fields_are_described() -> None:
    rotation = SCHEMA["$defs"]["Rotation"]["properties"]
    assert rotation["angle"]["description"] == "The angle of the turn."
    assert rotation["begin"]["default"] == pytest.approx(1 / 3)

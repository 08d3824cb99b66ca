"""The JSON schema of spec files, from which editors complete and check TOML."""

from __future__ import annotations

import inspect
from typing import Any

from windvane.lab.run.build import FILLED_ALWAYS
from windvane.lab.spec.experiment_spec import ADAPTER
from windvane.policies.registry import POLICIES, Signature


def build_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a spec, with the settings of every registered policy.

    Examples
    --------
    >>> schema = build_schema()
    >>> sorted(schema["required"])
    ['environments', 'policies']
    """
    schema = ADAPTER.json_schema()
    policy = schema["$defs"]["PolicySpec"]
    own = {"type": "string", "pattern": ".+:.+", "description": 'A class of yours: "module:Class".'}
    policy["properties"]["policy"] = {"anyOf": [{"enum": list(POLICIES)}, own]}
    policy["allOf"] = [_describe_settings(name) for name in POLICIES]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _describe_settings(name: str) -> dict[str, Any]:
    """Return the rule that a registered policy has these settings and no others."""
    signature = Signature(POLICIES[name])
    names = [each for each in signature.names if each not in FILLED_ALWAYS]
    described = {each: _describe_setting(signature, each) for each in names}
    settings = {"properties": described, "additionalProperties": False}
    sweep = {"properties": {each: {"type": "array"} for each in names}, "additionalProperties": False}
    return {
        "if": {"properties": {"policy": {"const": name}}, "required": ["policy"]},
        "then": {"properties": {"settings": settings, "sweep": sweep}},
    }


def _describe_setting(signature: Signature, name: str) -> dict[str, Any]:
    default = inspect.signature(signature.cls).parameters[name].default
    return {"default": default} if isinstance(default, bool | int | float | str) else {}

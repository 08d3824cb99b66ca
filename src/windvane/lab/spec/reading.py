"""From the tables of a TOML document to the parts of a spec; every error names the field."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from windvane.environments import ARM_LAWS, DELAYS, DRIFTS, REWARD_LAWS
from windvane.lab.spec.environment_spec import FIELDS, EnvironmentSpec
from windvane.lab.spec.policy_spec import RESERVED, PolicySpec
from windvane.lab.spec.spec_errors import NOT_A_FLAG, SpecError, field_errors, refuse_unknown, suggestion, with_hint
from windvane.lab.spec.stream_spec import FIELDS as STREAM_FIELDS
from windvane.lab.spec.stream_spec import StreamSpec

KINDS: dict[str, Mapping[str, type]] = {"drift": DRIFTS, "arms": ARM_LAWS, "rewards": REWARD_LAWS, "delay": DELAYS}


def entries(document: dict[str, Any], name: str, read: Callable[[dict[str, Any]], Any]) -> list[Any]:
    """Every table of the list ``name`` of the document, read."""
    tables = _needed(document, name, f"a spec has one or more tables [[{name}]]")
    if not isinstance(tables, list):
        raise SpecError.of((name,), tables, f"a list of tables: write [[{name}]]")
    found = []
    for index, table in enumerate(tables):
        with field_errors(name, index):
            found.append(read(_table(table)))
    return found


def environment(table: dict[str, Any]) -> EnvironmentSpec | StreamSpec:
    """A simulated environment, or a labelled data stream if the table has the key ``stream``."""
    if "stream" in table:
        refuse_unknown(table, STREAM_FIELDS)
        _needed(table, "name")
        return StreamSpec(**table)
    refuse_unknown(table, (*FIELDS, "stream"))
    for name in ("name", "drift", "arms"):
        _needed(table, name)
    values = dict(table)
    for name, kinds in KINDS.items():
        if name in table:
            with field_errors(name):
                values[name] = _part(_table(table[name]), kinds)
    return EnvironmentSpec(**values)


def policy(table: dict[str, Any]) -> PolicySpec:
    _needed(table, "policy")
    settings = {name: value for name, value in table.items() if name not in RESERVED}
    return PolicySpec(settings=settings, **{name: table[name] for name in RESERVED if name in table})


def _part(table: dict[str, Any], kinds: Mapping[str, type]) -> Any:
    """A drift, an arm law, a reward law or a delay from its table."""
    kind = _needed(table, "kind", f"allowed: {', '.join(kinds)}")
    if not isinstance(kind, str) or kind not in kinds:
        raise SpecError.of(("kind",), kind, "a known kind", suggestion(str(kind), kinds))
    cls: Any = kinds[kind]
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    refuse_unknown(table, ("kind", *fields))
    given = {name: value for name, value in table.items() if name != "kind"}
    for name, field in fields.items():
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            _needed(given, name, f'the kind "{kind}" needs it')
    for name, value in given.items():
        with field_errors(name):
            _refuse_flags(value)
    with field_errors(known=tuple(fields)):
        return cls(**given)


def _refuse_flags(value: Any) -> None:
    """Raise if ``value`` is true or false, or a list that holds one: no field of a part is a flag."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            with field_errors(index):
                _refuse_flags(item)
    elif isinstance(value, bool):
        raise SpecError.of((), value, NOT_A_FLAG)


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SpecError.of((), value, "a table")
    return value


def _needed(table: dict[str, Any], name: str, hint: str = "") -> Any:
    if name not in table:
        raise SpecError((name,), with_hint("missing", hint))
    return table[name]

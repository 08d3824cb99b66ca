"""Write a spec as TOML."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import tomlkit
import tomlkit.exceptions

from windvane.errors import format_value
from windvane.lab.spec.field_types import MODELS, PARTS

if TYPE_CHECKING:
    from windvane.lab.spec.environment_spec import AnyEnvironmentSpec
    from windvane.lab.spec.experiment_spec import Spec

_WIDEST_LINE = 110


def write(spec: Spec) -> str:
    """Return ``spec`` as a TOML document."""
    sections = [_write_fields({"title": spec.title, **list_sizes(spec)})]
    for environment in spec.environments:
        sections.append("[[environments]]\n" + _write_fields(describe_environment(environment)))
    for policy in spec.policies:
        fields = {field.name: getattr(policy, field.name) for field in dataclasses.fields(policy)}
        empty = {name for name, value in fields.items() if value is None or value == {}}
        sections.append("[[policies]]\n" + _write_fields({k: v for k, v in fields.items() if k not in empty}))
    return "\n".join(sections)


def list_sizes(spec: Spec) -> dict[str, Any]:
    """Return the fields that are neither the title nor a list of parts."""
    others = ("title", "environments", "policies")
    return {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec) if field.name not in others}


def describe_environment(environment: AnyEnvironmentSpec) -> dict[str, Any]:
    """Return the fields that are not None, parts as tables and last. A part of a class without a kind stays itself."""
    fields: dict[str, Any] = {name: getattr(environment, name) for name in MODELS[environment.kind]}
    if environment.kind == "simulated":
        del fields["kind"]
        fields |= {name: _describe_part(name, fields.pop(name)) for name in PARTS}
    return {name: value for name, value in fields.items() if value is not None}


def _describe_part(name: str, part: Any) -> Any:
    known: type[Any] | None = PARTS[name].get(getattr(part, "kind", ""))
    if known is not type(part):
        return part
    fields = {field.name: getattr(part, field.name) for field in dataclasses.fields(part) if field.init}
    return {"kind": part.kind, **{key: value for key, value in fields.items() if value is not None}}


def _write_fields(fields: Mapping[str, Any]) -> str:
    return "".join(_write_field(name, value) for name, value in fields.items())


def _write_field(name: str, value: Any) -> str:
    """Return the line of a field; settings that have no form in TOML are left out of their table."""
    if name == "settings":
        omitted = {key: item for key, item in value.items() if not _is_writable(item)}
        kept = {key: item for key, item in value.items() if key not in omitted}
        comments = "".join(_explain(f"settings.{key}", item) for key, item in omitted.items())
        return (tomlkit.dumps({name: _to_item(kept)}) if kept else "") + comments
    return tomlkit.dumps({name: _to_item(value)}) if _is_writable(value) else _explain(name, value)


def _is_writable(value: Any) -> bool:
    try:
        _to_item(value)
    except (TypeError, tomlkit.exceptions.ConvertError):
        return False
    return True


def _explain(name: str, value: Any) -> str:
    return f"# {name}: {format_value(value)} cannot be written as TOML; omitted\n"


def _to_item(value: Any) -> Any:
    """Return ``value`` as tomlkit writes it: tables inline, and long lists of lists with a line for each."""
    if isinstance(value, Mapping):
        table = tomlkit.inline_table()
        for key, entry in value.items():
            table.append(key, _to_item(entry))
        return table
    if isinstance(value, tuple | list):
        array = tomlkit.array()
        array.extend([_to_item(entry) for entry in value])
        is_nested = any(isinstance(entry, tuple | list) for entry in value)
        return array.multiline(is_nested and len(array.as_string()) > _WIDEST_LINE)
    return tomlkit.item(value)

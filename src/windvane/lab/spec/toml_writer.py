"""Write a spec as TOML.

Python objects that have no name to be imported by have no form in TOML. They are left out, with a comment in their
place, and the key ``incomplete`` lists them: such a text is no spec, since it would be another experiment.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import tomlkit
import tomlkit.exceptions

from windvane.errors import format_value
from windvane.lab.spec.field_types import MODELS, PARTS
from windvane.lab.spec.python_objects import NONE
from windvane.lab.spec.spec_errors import format_path

if TYPE_CHECKING:
    from windvane.lab.spec.environment_spec import AnyEnvironmentSpec
    from windvane.lab.spec.experiment_spec import Spec

INCOMPLETE = "incomplete"  # the key that lists what could not be written
_WIDEST_LINE = 110


def write(spec: Spec) -> str:
    """Return ``spec`` as a TOML document."""
    head = {"title": spec.title, **list_sizes(spec)}
    if unwritable := list_unwritable(spec):
        head = {INCOMPLETE: unwritable, **head}
    sections = [_write_fields(head)]
    sections += ["[[environments]]\n" + _write_fields(fields) for fields in _list_environments(spec)]
    sections += ["[[policies]]\n" + _write_fields(fields) for fields in _list_policies(spec)]
    return "\n".join(sections)


def list_unwritable(spec: Spec) -> list[str]:
    """Return the fields of ``spec`` that have no form in TOML, such as ``policies[0].settings.link``."""
    unwritable = []
    for part, several in (("environments", _list_environments(spec)), ("policies", _list_policies(spec))):
        for index, fields in enumerate(several):
            settings = {("settings", key): value for key, value in fields.get("settings", {}).items()}
            others = {(name,): value for name, value in fields.items() if name != "settings"}
            bad = [path for path, value in (others | settings).items() if not _is_writable(value)]
            unwritable += [format_path((part, index, *path)) for path in bad]
    return unwritable


def _list_environments(spec: Spec) -> list[dict[str, Any]]:
    return [describe_environment(environment) for environment in spec.environments]


def _list_policies(spec: Spec) -> list[dict[str, Any]]:
    """Return the fields of each policy that are not empty."""
    names = [field.name for field in dataclasses.fields(spec.policies[0])]
    every = [{name: getattr(policy, name) for name in names} for policy in spec.policies]
    return [{name: value for name, value in fields.items() if value is not None and value != {}} for fields in every]


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
    """Return ``value`` as tomlkit writes it: None as text, tables inline, long lists of lists with a line for each."""
    if value is None:
        return tomlkit.item(NONE)
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

"""In which fields two specs differ, for the message about a folder that holds another experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windvane.errors import format_value
from windvane.lab.spec.spec_errors import FieldPath, format_path
from windvane.lab.spec.toml_writer import INCOMPLETE

Differences = dict[str, str]
"""What is different, in words, by the field."""


def list_differences(stored: Mapping[str, Any], current: Mapping[str, Any]) -> Differences:
    """Return the differences between two specs, given as TOML documents; titles do not count.

    Parts are compared by their place if they have the same names in the same order. A file counts by its content.
    """
    differences: Differences = {}
    for name in dict.fromkeys([*stored, *current]):
        old, new = stored.get(name), current.get(name)
        if name in ("environments", "policies"):
            _compare_parts(name, old or [], new or [], differences)
        elif name not in ("title", INCOMPLETE):
            _compare((name,), old, new, differences)
    return differences


def _compare_parts(name: str, old: list[Any], new: list[Any], differences: Differences) -> None:
    old_names, new_names = ([_name_part(part) for part in parts] for parts in (old, new))
    if old_names != new_names:
        differences[name] = _describe(name, old_names, new_names)
        return
    for index, (old_part, new_part) in enumerate(zip(old, new, strict=True)):
        _compare((name, index), old_part, new_part, differences)


def _name_part(part: Mapping[str, Any]) -> str:
    return str(part.get("label") or part.get("name") or part.get("policy"))


def _compare(path: FieldPath, old: Any, new: Any, differences: Differences) -> None:
    """Add the differences of two values; those of tables field by field."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        if old != new:
            field = format_path(path)
            differences[field] = _describe(field, old, new)
        return
    keys = dict.fromkeys([*old, *new])
    if old.get("kind") != new.get("kind"):  # the other fields belong to it
        keys = {"kind": None}
    if "sha256" in keys:
        file = format_path((*path, "file"))
        if old.get("sha256") != new.get("sha256"):
            differences[file] = f"{file} with another content than {new.get('file')!r} has now"
        keys = dict.fromkeys(key for key in keys if key not in ("file", "sha256"))
    for key in keys:
        _compare((*path, key), old.get(key), new.get(key), differences)


def _describe(field: str, old: Any, new: Any) -> str:
    before, now = ("not set" if value is None else format_value(value) for value in (old, new))
    return f"{field} {before} (now {now})"

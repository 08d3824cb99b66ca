"""Fields of contexts and arms: their declarations, and their values as numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from windvane.agent.names import check_sequence, find_repeated, list_values
from windvane.arguments import LARGEST, check_between, check_number, is_missing
from windvane.errors import ArgumentError, Path

PLAIN_NUMBERS = (float, int)  # compared and scaled as they are
MISSING_CATEGORY = 'declare a value for what is missing, such as "unknown", and pass that'
MISSING_NUMBER = "for a missing number pass any other, and declare a second field that says whether it is known"

Fields = Sequence[str] | Mapping[str, Any]
"""Names of numbers; or by name a range (low, high), a list of strings, or {"low": , "high": } or {"values": [...]}."""


@dataclass(frozen=True)
class Field:
    """One field: a number with a range, a number without one, or a category."""

    name: str
    low: float | None = None
    high: float | None = None
    values: tuple[str, ...] | None = None

    @property
    def columns(self) -> list[str]:
        """The names of its coordinates."""
        return [self.name] if self.values is None else [f"{self.name} = {value}" for value in self.values]

    def encode_unscaled(self, owner: Path, value: Any, clip: bool) -> list[float]:
        """Return a category, or a number without a range, as numbers; ``owner`` is the path of the mapping of it."""
        if self.values is None:
            return [self.check_number(owner, value, clip)]
        if not isinstance(value, str) or value not in self.values:
            raise ArgumentError(
                (*owner, self.name), value, f"one of {list_values(self.values)}", hint=self.hint_for_missing(value)
            )
        return [float(value == each) for each in self.values]

    def check_number(self, owner: Path, value: Any, clip: bool) -> float:
        """Return a number, within its range if the field has one."""
        where, low, high = (*owner, self.name), self.low, self.high
        number = check_number(where, value, "that is finite", math.isfinite, hint=self.hint_for_missing(value))
        if low is None or high is None:
            return number
        if not clip and not low <= number <= high:
            hint = "declare a wider range, or clip=True"
            raise ArgumentError(where, value, f"in the declared range [{low:g}, {high:g}]", hint=hint)
        return min(max(number, low), high)

    def hint_for_missing(self, value: Any) -> str:
        """Return what to do about a missing value; nothing for any other."""
        return "" if not is_missing(value) else MISSING_NUMBER if self.values is None else MISSING_CATEGORY

    def declaration(self) -> dict[str, Any]:
        """Return the field as JSON-compatible data."""
        if self.values is not None:
            return {"values": list(self.values)}
        return {} if self.low is None else {"low": self.low, "high": self.high}


def encode_fields(
    fields: Mapping[str, Field], owner: Path, values: Mapping[str, Any], clip: bool, unit: float = 1.0
) -> list[float]:
    """Return the ``values`` of ``fields`` as numbers times ``unit``; ``owner`` is the path of ``values``."""
    if type(values) is not dict or values.keys() != fields.keys():  # the usual case needs no closer check
        check_keys(owner, values, fields)
    numbers: list[float] = []
    for name, field in fields.items():
        value, low, high = values[name], field.low, field.high
        if low is None or high is None:
            numbers += [unit * number for number in field.encode_unscaled(owner, value, clip)]
        else:
            if not (isinstance(value, PLAIN_NUMBERS) and low <= value <= high):  # the usual case needs no closer check
                value = field.check_number(owner, value, clip)
            numbers.append(unit * (2.0 * (value - low) / (high - low) - 1.0))
    return numbers


def encode_past_fields(fields: Mapping[str, Field], owner: Path, values: Any, unit: float = 1.0) -> list[float]:
    """Return values from before the fields were declared, as numbers times ``unit``; zeros for those that cannot be
    encoded."""
    numbers: list[float] = []
    for name, field in fields.items():
        value = values.get(name) if isinstance(values, Mapping) else None
        try:
            numbers += encode_fields({name: field}, owner, {name: value}, clip=True, unit=unit)
        except ArgumentError:
            numbers += [0.0] * len(field.columns)
    return numbers


def parse_fields(kind: str, declaration: Any) -> tuple[Field, ...]:
    """Return the fields of a declaration; ``kind`` is the argument that it was given as."""
    if isinstance(declaration, Mapping):
        return tuple(_parse_field((kind, name), name, entry) for name, entry in declaration.items())
    if isinstance(declaration, str) or not isinstance(declaration, Sequence):
        raise ArgumentError(kind, declaration, "a list of field names, or a mapping from names to ranges or values")
    fields = tuple(_parse_field((kind, name), name, None) for name in declaration)
    if repeated := find_repeated(fields):
        raise ArgumentError((kind, repeated[0].name), declaration, "declared once", got="twice")
    return fields


def _parse_field(path: Path, name: Any, declaration: Any) -> Field:
    if not isinstance(name, str) or not name:
        raise ArgumentError(path, name, "named by a string")
    name = str.__str__(name)
    if isinstance(declaration, Mapping):
        if set(declaration) == {"values"}:
            declaration = check_sequence(path, declaration["values"]) or ()
        elif set(declaration) == {"low", "high"}:
            declaration = (declaration["low"], declaration["high"])
        elif declaration:
            raise ArgumentError(path, dict(declaration), "a mapping with `low` and `high`, or with `values`")
        else:
            declaration = None
    if declaration is None:
        return Field(name)
    if isinstance(declaration, list | tuple):
        if declaration and all(isinstance(value, str) for value in declaration):
            if len(set(declaration)) < len(declaration):
                raise ArgumentError(path, declaration, "a list of distinct strings")
            return Field(name, values=tuple(str.__str__(value) for value in declaration))
        if any(isinstance(value, str) for value in declaration):
            hint = MISSING_CATEGORY if any(map(is_missing, declaration)) else ""
            expected = "a list of strings only, or a range (low, high) of numbers"
            raise ArgumentError(path, declaration, expected, hint=hint)
        if len(declaration) == 2:
            low, high = (check_between(path, end, -LARGEST, LARGEST) for end in declaration)
            if low < high:
                return Field(name, low, high)
    raise ArgumentError(path, declaration, "a range (low, high) with low < high, or a list of strings")


def check_keys(owner: Path, values: Mapping[str, Any], fields: Mapping[str, Field]) -> None:
    """Check that ``values`` has a value for each of ``fields`` and no others; ``owner`` is its path."""
    if not isinstance(values, Mapping):
        raise ArgumentError(owner, values, "a mapping from the names of its fields to values")
    if values.keys() == fields.keys():
        return
    for name in (name for name in fields if name not in values):
        raise ArgumentError((*owner, name), None, "given", got="nothing", hint=fields[name].hint_for_missing(None))
    for name in (name for name in values if name not in fields):
        close = get_close_matches(str(name), list(fields), 1)
        hint = f"did you mean {close[0]!r}?" if close else ""
        raise ArgumentError((*owner, name), values[name], "a declared field", hint=hint)

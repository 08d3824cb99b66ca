"""From what users have, contexts and arms with named fields, to the vectors that policies want.

A vector is made of, in this order:

    1 (``intercept``) | ``shared`` fields of the context | ``per_arm`` fields of the arm | one block per declared arm

An arm's own block holds 1 and the ``by_arm`` fields of the context, so that each arm has coefficients of its own for
them (context x arm); the blocks of the other arms are zero. A number with a range (low, high) becomes its place in it,
from -1 to 1; a category becomes as many zeros and ones as it has values. All is divided by the root of the number of
fields, so that no vector is longer than 1. A number without a range is taken as it is, and nothing holds it in bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from windvane._validation import Array, number, shown

Name = str | int
"""What an arm may be called."""
FIT_SPREAD = 4.0  # standard deviations to each side that a fitted range covers


@dataclass(frozen=True)
class Field:
    """One field: a number with a range, a number without one, or a category."""

    name: str
    low: float | None = None
    high: float | None = None
    values: tuple[str, ...] | None = None

    @property
    def width(self) -> int:
        return 1 if self.values is None else len(self.values)

    @property
    def bounded(self) -> bool:
        return self.values is not None or self.low is not None

    def encode(self, where: str, value: Any, clip: bool) -> list[float]:
        """``value`` as numbers; ``where`` is what an error calls it."""
        if self.values is not None:
            if value not in self.values:
                raise ValueError(f"{where}={shown(value)}: must be one of {', '.join(map(repr, self.values))}")
            return [float(value == one) for one in self.values]
        found = number(where, value, "that is finite", math.isfinite)
        if self.low is None or self.high is None:
            return [found]
        if not self.low <= found <= self.high:
            if not clip:
                allowed = f"in [{self.low:g}, {self.high:g}], as declared; declare a wider range, or clip=True"
                raise ValueError(f"{where}={shown(value)}: must be {allowed}")
            found = min(max(found, self.low), self.high)
        return [2.0 * (found - self.low) / (self.high - self.low) - 1.0]

    def declared(self) -> dict[str, Any]:
        """As plain data, such as JSON holds."""
        if self.values is not None:
            return {"values": list(self.values)}
        return {} if self.low is None else {"low": self.low, "high": self.high}


Fields = Sequence[str] | Mapping[str, Any]
"""Names of numbers; or by name a range (low, high), a list of texts, or {"low": , "high": } or {"values": [...]}."""


class Features:
    """Declared features: see the module. ``clip``: numbers outside their range are moved to its end, not refused."""

    def __init__(
        self,
        *,
        shared: Fields = (),
        per_arm: Fields = (),
        by_arm: Fields = (),
        arms: Sequence[Name] = (),
        intercept: bool = True,
        clip: bool = False,
    ) -> None:
        self.shared, self.per_arm, self.by_arm = (
            _fields(name, given) for name, given in (("shared", shared), ("per_arm", per_arm), ("by_arm", by_arm))
        )
        self.arms = tuple(named("arms", arms))
        self.intercept, self.clip = bool(intercept), bool(clip)
        if self.by_arm and not self.arms:
            raise ValueError("by_arm: needs arms, the names of all arms that there can be")
        both = {field.name: field for field in self.shared}
        for field in self.by_arm:
            if field.name in both and replace(both[field.name]) != field:
                raise ValueError(f"by_arm[{field.name!r}]: is declared otherwise in shared")
        self._context_fields = {field.name: field for field in (*self.shared, *self.by_arm)}
        self._place = {arm: i for i, arm in enumerate(self.arms)}
        self._block = bool(self.arms) * (1 + sum(field.width for field in self.by_arm))
        self._head = self.intercept + sum(field.width for field in (*self.shared, *self.per_arm))
        self.dim = self._head + len(self.arms) * self._block
        active = self.intercept + len(self.shared) + len(self.per_arm) + bool(self.arms) * (1 + len(self.by_arm))
        if not self.dim:
            raise ValueError("features: declare at least one field, arms, or intercept=True")
        self._scale = active**-0.5

    @property
    def open_fields(self) -> list[str]:
        """Numbers without a range."""
        return list(dict.fromkeys(f.name for f in (*self.shared, *self.per_arm, *self.by_arm) if not f.bounded))

    @property
    def names(self) -> list[str]:
        """What each coordinate of a vector is."""
        blocks = [[f"{arm}: 1", *_columns(self.by_arm, f"{arm}: ")] for arm in self.arms]
        head = [*["1"] * self.intercept, *_columns(self.shared), *_columns(self.per_arm)]
        return head + [name for block in blocks for name in block]

    def vectors(self, context: Mapping[str, Any] | None, arms: Sequence[Name] | Mapping[Name, Any]) -> Array:
        """A row for each of ``arms``: their names, or by name their own fields."""
        context = {} if context is None else context
        _check_keys("context", context, self._context_fields)
        known = {
            name: field.encode(f"context[{name!r}]", context[name], self.clip)
            for name, field in self._context_fields.items()
        }
        shared = [*[1.0] * self.intercept, *(value for field in self.shared for value in known[field.name])]
        block = [1.0, *(value for field in self.by_arm for value in known[field.name])]
        rows = np.zeros((len(arms), self.dim))
        own = arms if isinstance(arms, Mapping) else {arm: {} for arm in arms}
        own_fields = {field.name: field for field in self.per_arm}
        for row, (arm, values) in zip(rows, own.items(), strict=True):
            where = f"arms[{arm!r}]"
            if not isinstance(values, Mapping):
                raise ValueError(f"{where}={shown(values)}: must map the names of its fields to values")
            _check_keys(where, values, own_fields)
            head = shared + [
                v for n, f in own_fields.items() for v in f.encode(f"{where}[{n!r}]", values[n], self.clip)
            ]
            row[: self._head] = head
            if self.arms:
                if arm not in self._place:
                    raise ValueError(f"{where}: is not one of the declared arms {', '.join(map(repr, self.arms))}")
                start = self._head + self._place[arm] * self._block
                row[start : start + self._block] = block
        return np.asarray(rows * self._scale)

    def fitted(self, contexts: Sequence[Mapping[str, Any]], arms: Sequence[Mapping[str, Any]]) -> Features:
        """The same with a range for every number that had none: mean and :data:`FIT_SPREAD` standard deviations."""
        ranges = {}
        for name in self.open_fields:
            rows = contexts if name in self._context_fields else arms
            values = np.array([number(name, row[name], "that is finite", math.isfinite) for row in rows if name in row])
            if len(values) < 2 or not values.std() > 0.0:
                raise ValueError(f"{name}: its history holds {len(values)} values that do not vary; declare a range")
            half = FIT_SPREAD * float(values.std())
            ranges[name] = (float(values.mean()) - half, float(values.mean()) + half)
        given = self.declared()
        for kind in ("shared", "per_arm", "by_arm"):
            given[kind] = {name: ranges.get(name, declared) for name, declared in given[kind].items()}
        return Features(**given)

    def declared(self) -> dict[str, Any]:
        """As plain data, such as JSON holds; ``Features(**data)`` is the same again."""
        return {
            **{kind: {f.name: f.declared() for f in getattr(self, kind)} for kind in ("shared", "per_arm", "by_arm")},
            "arms": list(self.arms),
            "intercept": self.intercept,
            "clip": self.clip,
        }


def named(argument: str, names: Iterable[Any]) -> list[Name]:
    """Names of arms: texts or whole numbers, all different."""
    found: list[Name] = []
    for name in names:
        plain = name.item() if isinstance(name, np.generic) else name
        if isinstance(plain, bool) or not isinstance(plain, str | int):
            raise ValueError(
                f"{argument}: {shown(name)} cannot be the name of an arm; it must be a text or a whole number"
            )
        found.append(plain)
    if len(set(found)) < len(found):
        twice = next(name for name in found if found.count(name) > 1)
        raise ValueError(f"{argument}: {twice!r} is there twice")
    return found


def _columns(fields: Iterable[Field], before: str = "") -> list[str]:
    return [
        before + (field.name if field.values is None else f"{field.name} = {value}")
        for field in fields
        for value in (field.values or (None,))
    ]


def _fields(kind: str, given: Any) -> tuple[Field, ...]:
    if isinstance(given, str) or not isinstance(given, Mapping | Sequence):
        raise ValueError(f"{kind}={shown(given)}: must be names of fields, or map them to what they may be")
    declared = given if isinstance(given, Mapping) else dict.fromkeys(given)
    return tuple(_field(kind, name, one) for name, one in declared.items())


def _field(kind: str, name: Any, given: Any) -> Field:
    where = f"{kind}[{name!r}]"
    if not isinstance(name, str) or not name:
        raise ValueError(f"{where}: the name of a field must be a text")
    if isinstance(given, Mapping):
        if set(given) == {"values"}:
            given = list(given["values"])
        elif set(given) == {"low", "high"}:
            given = (given["low"], given["high"])
        elif given:
            raise ValueError(f"{where}={shown(dict(given))}: must have low and high, or values")
    if given is None or (isinstance(given, Mapping) and not given):
        return Field(name)
    if isinstance(given, list | tuple) and given and all(isinstance(value, str) for value in given):
        if len(set(given)) < len(given):
            raise ValueError(f"{where}={shown(given)}: a value is there twice")
        return Field(name, values=tuple(given))
    if isinstance(given, list | tuple) and len(given) == 2:
        low, high = (number(where, end, "that is finite", math.isfinite) for end in given)
        if low < high:
            return Field(name, low, high)
    raise ValueError(f"{where}={shown(given)}: must be a range (low, high) with low < high, or a list of texts")


def _check_keys(where: str, given: Mapping[str, Any], fields: Mapping[str, Field]) -> None:
    if not isinstance(given, Mapping):
        raise ValueError(f"{where}={shown(given)}: must map the names of its fields to values")
    for name in fields:
        if name not in given:
            raise ValueError(f"{where}[{name!r}]: missing")
    for name in given:
        if name not in fields:
            close = get_close_matches(str(name), list(fields), 1)
            raise ValueError(f"{where}[{name!r}]: is not declared" + (f"; did you mean {close[0]!r}?" if close else ""))

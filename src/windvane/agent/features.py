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
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np

from windvane.arguments import Array, check_number
from windvane.errors import ArgumentError, format_value

Name = str | int
"""What an arm may be called."""
LARGEST_NAME = 2**63  # of whole numbers: what every reader of JSON can hold
FIT_SPREAD = 4.0  # standard deviations to each side that a fitted range covers, and all of the history
CONSTANT = 1e-12  # a standard deviation below this part of the largest value is rounding
KINDS = ("shared", "per_arm", "by_arm")
PLAIN_NUMBERS = (float, int)


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

    def encode(self, owner: str, value: Any, clip: bool) -> list[float]:
        """``value`` as numbers; ``owner`` is what an error calls the mapping that it comes from."""
        if self.values is not None:
            if not isinstance(value, str) or value not in self.values:
                raise ArgumentError(f"{owner}[{self.name!r}]", value, f"one of {_listed(self.values)}")
            return [float(value == one) for one in self.values]
        low, high = self.low, self.high
        if low is None or high is None:
            return [self._check(f"{owner}[{self.name!r}]", value, clip)]
        if not isinstance(value, PLAIN_NUMBERS) or not low <= value <= high:  # the usual case needs no closer check
            value = self._check(f"{owner}[{self.name!r}]", value, clip)
        return [2.0 * (value - low) / (high - low) - 1.0]

    def _check(self, where: str, value: Any, clip: bool) -> float:
        """``value`` as a number, within the range if there is one; ``where`` is what an error calls it."""
        number = check_number(where, value, "that is finite", math.isfinite)
        if self.low is None or self.high is None or self.low <= number <= self.high:
            return number
        if not clip:
            hint = "declare a wider range, or clip=True"
            raise ArgumentError(where, value, f"in the declared range [{self.low:g}, {self.high:g}]", hint=hint)
        return min(max(number, self.low), self.high)

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
            _fields(kind, given) for kind, given in zip(KINDS, (shared, per_arm, by_arm), strict=True)
        )
        self.arms = tuple(named("arms", arms))
        self.intercept, self.clip = flag("intercept", intercept), flag("clip", clip)
        if self.by_arm and not self.arms:
            raise ArgumentError("by_arm", by_arm, "given with `arms`, the names of all possible arms")
        both = {field.name: field for field in self.shared}
        for field in self.by_arm:
            if both.get(field.name, field) != field:
                declared = both[field.name].declared()
                raise ArgumentError(f"by_arm[{field.name!r}]", field.declared(), f"{declared}, as in `shared`")
        self._context_fields = {field.name: field for field in (*self.shared, *self.by_arm)}
        self._arm_fields = {field.name: field for field in self.per_arm}
        # A context is encoded once, as 1 and its fields; these are the places there of what vectors are made of.
        places = _places(self._context_fields.values())
        self._shared = slice(1 - self.intercept, 1 + sum(field.width for field in self.shared))
        self._block = np.array([0, *(place for field in self.by_arm for place in places[field.name])])
        self._head = self.intercept + sum(field.width for field in (*self.shared, *self.per_arm))
        starts = [self._head + i * len(self._block) for i in range(len(self.arms))]
        self._own_block = {arm: slice(i, i + len(self._block)) for arm, i in zip(self.arms, starts, strict=True)}
        self.dim = self._head + len(self.arms) * len(self._block)
        active = self.intercept + len(self.shared) + len(self.per_arm) + bool(self.arms) * (1 + len(self.by_arm))
        if not self.dim:
            raise ArgumentError("features", self.declared(), "at least one field, arms, or intercept=True", got="none")
        for name, times in Counter(self.names).items():
            if times > 1:
                got, hint = f"{name!r} {times} times", "rename a field or an arm"
                raise ArgumentError("features", self.declared(), "coordinates with different names", got=got, hint=hint)
        self._scale = active**-0.5
        self.longest = math.inf if self.open_fields else 1.0  # the norm of a vector is at most this, up to rounding

    @classmethod
    def of(cls, given: Features | Mapping[str, Any] | None) -> Features | None:
        """Features, or their declaration as plain data."""
        if given is None or isinstance(given, Features):
            return given
        known = (*KINDS, "arms", "intercept", "clip")
        if not isinstance(given, Mapping) or not set(given) <= set(known):
            raise ArgumentError("features", given, f"Features, or a mapping with some of {_listed(known)}")
        return cls(**given)

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
        numbers = self._encode("context", {} if context is None else context, self._context_fields)
        shared, block = numbers[self._shared], numbers[self._block]
        rows = np.zeros((len(arms), self.dim))
        rows[:, : len(shared)] = shared
        own_fields = arms if isinstance(arms, Mapping) else None
        for row, arm in zip(rows, arms, strict=True):
            if own_fields is not None or self._arm_fields:
                own = {} if own_fields is None else own_fields[arm]
                row[len(shared) : self._head] = self._encode(f"arms[{arm!r}]", own, self._arm_fields)[1:]
            if self.arms:
                if arm not in self._own_block:
                    raise ArgumentError(f"arms[{arm!r}]", arm, f"one of the declared arms {_listed(self.arms)}")
                row[self._own_block[arm]] = block
        return rows

    def _encode(self, owner: str, values: Mapping[str, Any], fields: Mapping[str, Field]) -> Array:
        """1 and the ``values`` of ``fields`` as numbers, all scaled; ``owner`` is what an error calls ``values``."""
        _check_keys(owner, values, fields)
        numbers = [1.0]
        for name, field in fields.items():
            numbers += field.encode(owner, values[name], self.clip)
        scaled: Array = np.array(numbers)
        scaled *= self._scale
        return scaled

    def fitted(self, contexts: Sequence[Mapping[str, Any]], arms: Sequence[Mapping[str, Any]]) -> Features:
        """The same with a range for every number that had none, which covers the history given and the mean with
        :data:`FIT_SPREAD` standard deviations to each side."""
        for i, (context, own) in enumerate(zip(contexts, arms, strict=True)):
            _check_keys(f"contexts[{i}]", context, self._context_fields)
            _check_keys(f"arms[{i}]", own, self._arm_fields)
        ranges = {}
        for name in self.open_fields:
            kind, rows = ("contexts", contexts) if name in self._context_fields else ("arms", arms)
            values = np.array(
                [
                    check_number(f"{kind}[{i}][{name!r}]", row[name], "in [-1e100, 1e100]", lambda v: abs(v) <= 1e100)
                    for i, row in enumerate(rows)
                ]
            )
            if len(values) < 2 or values.std() <= CONSTANT * np.abs(values).max():
                got, hint = f"{len(values)} values that do not vary", "declare a range"
                raise ArgumentError(kind, values.tolist(), f"rows whose {name!r} varies", got=got, hint=hint)
            half = FIT_SPREAD * float(values.std())
            ranges[name] = (
                min(float(values.mean()) - half, float(values.min())),
                max(float(values.mean()) + half, float(values.max())),
            )
        given = self.declared()
        for kind in KINDS:
            given[kind] = {name: ranges.get(name, declared) for name, declared in given[kind].items()}
        return Features(**given)

    def declared(self) -> dict[str, Any]:
        """As plain data, such as JSON holds; ``Features(**data)`` is the same again."""
        return {
            **{kind: {f.name: f.declared() for f in getattr(self, kind)} for kind in KINDS},
            "arms": list(self.arms),
            "intercept": self.intercept,
            "clip": self.clip,
        }


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ArgumentError(name, value, "True or False")
    return bool(value)


def sequence(argument: str, given: Any) -> list[Any]:
    """What is in ``given``, in an order that is the same every time."""
    unordered = isinstance(given, str | bytes | Mapping | set | frozenset)
    if unordered or not hasattr(given, "__iter__") or getattr(given, "ndim", 1) == 0:
        raise ArgumentError(argument, given, "a list")
    return list(given)


def named(argument: str, names: Any) -> list[Name]:
    """Names of arms: texts or whole numbers, all different."""
    found = [plain_name(argument, name) for name in sequence(argument, names)]
    if len(set(found)) < len(found):
        twice = next(name for name, times in Counter(found).items() if times > 1)
        raise ArgumentError(argument, names, "names that are all different", got=f"{twice!r} twice")
    return found


def plain_name(argument: str, name: Any) -> Name:
    """A text or a whole number, whatever library or enumeration it comes from."""
    if isinstance(name, str):
        return str.__str__(name)
    if isinstance(name, int | np.integer) and not isinstance(name, bool) and -LARGEST_NAME <= name < LARGEST_NAME:
        return int(name)
    raise ArgumentError(argument, name, "the name of an arm: a text, or a whole number below 2**63")


def _listed(values: Iterable[Any], most: int = 12) -> str:
    """For an error message: not too many of them."""
    found = [repr(value) for value in values]
    return ", ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "")


def _columns(fields: Iterable[Field], before: str = "") -> list[str]:
    return [
        before + (field.name if field.values is None else f"{field.name} = {value}")
        for field in fields
        for value in (field.values or (None,))
    ]


def _fields(kind: str, given: Any) -> tuple[Field, ...]:
    if isinstance(given, Mapping):
        return tuple(_field(kind, name, one) for name, one in given.items())
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ArgumentError(kind, given, "a list of field names, or a mapping from names to ranges or values")
    found = tuple(_field(kind, name, None) for name in given)
    for name, times in Counter(field.name for field in found).items():
        if times > 1:
            raise ArgumentError(f"{kind}[{name!r}]", given, "declared once", got=f"{times} times")
    return found


def _field(kind: str, name: Any, given: Any) -> Field:
    where = f"{kind}[{format_value(name)}]"
    if not isinstance(name, str) or not name:
        raise ArgumentError(where, name, "named by a text")
    name = str.__str__(name)
    if isinstance(given, Mapping):
        if set(given) == {"values"}:
            given = sequence(where, given["values"]) or ()
        elif set(given) == {"low", "high"}:
            given = (given["low"], given["high"])
        elif given:
            raise ArgumentError(where, dict(given), "a mapping with `low` and `high`, or with `values`")
    if given is None or (isinstance(given, Mapping) and not given):
        return Field(name)
    if isinstance(given, list | tuple) and given and all(isinstance(value, str) for value in given):
        if len(set(given)) < len(given):
            raise ArgumentError(where, given, "a list of texts that are all different")
        return Field(name, values=tuple(str.__str__(value) for value in given))
    if isinstance(given, list | tuple) and len(given) == 2:
        low, high = (check_number(where, end, "in [-1e100, 1e100]", lambda v: abs(v) <= 1e100) for end in given)
        if low < high:
            return Field(name, low, high)
    raise ArgumentError(where, given, "a range (low, high) with low < high, or a list of texts")


def _places(fields: Iterable[Field]) -> dict[str, range]:
    """The places of each field after a first number."""
    places, start = {}, 1
    for field in fields:
        places[field.name] = range(start, start + field.width)
        start += field.width
    return places


def _check_keys(where: str, given: Mapping[str, Any], fields: Mapping[str, Field]) -> None:
    if not isinstance(given, Mapping):
        raise ArgumentError(where, given, "a mapping from the names of its fields to values")
    if given.keys() == fields.keys():
        return
    for name in fields:
        if name not in given:
            raise ArgumentError(f"{where}[{name!r}]", None, "given", got="nothing")
    for name in given:
        if name not in fields:
            close = get_close_matches(str(name), list(fields), 1)
            hint = f"did you mean {close[0]!r}?" if close else ""
            raise ArgumentError(f"{where}[{name!r}]", given[name], "a declared field", hint=hint)

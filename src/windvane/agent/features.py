"""Encode contexts and arms with named fields as the vectors that policies use.

A vector consists of, in this order:

    1 (``intercept``) | ``shared`` fields of the context | ``per_arm`` fields of the arm | one block per declared arm

An arm's own block holds 1 and the ``by_arm`` fields of the context, so that each arm has its own coefficients for them
(context x arm); the blocks of the other arms are zero. A number with a range (low, high) is scaled to [-1, 1]; a
category is one-hot encoded. The vector is divided by the square root of the number of fields, so its norm is at most 1.
A number without a range is used unscaled and is not bounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from windvane.agent.feature_fields import Field, Fields, check_keys, encode_fields, encode_past_fields, parse_fields
from windvane.agent.names import check_flag, check_names, find_repeated, list_values
from windvane.arguments import LARGEST, Array, check_between
from windvane.errors import ArgumentError, Path
from windvane.records import Name

FIT_SPREAD = 4.0  # standard deviations to each side that a fitted range covers, and all of the history
CONSTANT = 1e-12  # a standard deviation below this part of the largest value is rounding
KINDS = ("shared", "per_arm", "by_arm")


class Features:
    """Declared features: see the module. ``clip``: numbers outside their range are clipped, not rejected."""

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
            parse_fields(kind, fields) for kind, fields in zip(KINDS, (shared, per_arm, by_arm), strict=True)
        )
        self.arms = tuple(check_names("arms", arms))
        self.intercept, self.clip = check_flag("intercept", intercept), check_flag("clip", clip)
        if self.by_arm and not self.arms:
            raise ArgumentError("by_arm", by_arm, "given with `arms`, the names of all possible arms")
        both = {field.name: field for field in self.shared}
        for field in self.by_arm:
            if both.get(field.name, field) != field:
                declared = both[field.name].declaration()
                raise ArgumentError(("by_arm", field.name), field.declaration(), f"{declared}, as in `shared`")
        self._context_fields = {field.name: field for field in (*self.shared, *self.by_arm)}
        self._arm_fields = {field.name: field for field in self.per_arm}
        # A context is encoded once, as 0, 1 and its fields. A vector takes its coordinates from there: ``_row`` has the
        # index of each in that encoding without any arm's block, ``_rows`` with the block of each declared arm.
        owners = ["", "", *(name for name, field in self._context_fields.items() for _ in field.columns)]
        block = [1, *(i for field in self.by_arm for i, owner in enumerate(owners) if owner == field.name)]
        coordinates = range(2 - self.intercept, 2 + sum(len(field.columns) for field in self.shared))
        head = len(coordinates) + sum(len(field.columns) for field in self.per_arm)
        self._own = slice(len(coordinates), head)  # the coordinates of an arm's own fields
        self.dim = head + len(self.arms) * len(block)
        self._row = np.array([*coordinates, *[0] * (self.dim - len(coordinates))], dtype=np.int64)
        self._rows = np.tile(self._row, (len(self.arms), 1))
        for i, row in enumerate(self._rows):
            row[head + i * len(block) :][: len(block)] = block
        self._row_of = dict(zip(self.arms, self._rows, strict=True))
        active = self.intercept + len(self.shared) + len(self.per_arm) + bool(self.arms) * (1 + len(self.by_arm))
        if not self.dim:
            raise ArgumentError("features", self.declaration(), "at least one field, arms, or an intercept", got="none")
        if repeated := find_repeated(self.names):
            expected, got = "coordinates with different names", f"{repeated[0]!r} twice"
            raise ArgumentError("features", self.declaration(), expected, got=got, hint="rename a field or an arm")
        self.scale = active**-0.5
        self.longest = math.inf if self.open_fields else 1.0  # the norm of a vector is at most this, up to rounding

    @classmethod
    def parse(cls, value: Features | Mapping[str, Any] | None) -> Features | None:
        """Return features from their declaration as plain data; return ``Features`` and None unchanged."""
        if value is None or isinstance(value, Features):
            return value
        known = (*KINDS, "arms", "intercept", "clip")
        if not isinstance(value, Mapping) or not set(value) <= set(known):
            raise ArgumentError("features", value, f"Features, or a mapping with some of {list_values(known)}")
        try:
            return cls(**value)
        except ArgumentError as error:
            path = error.path if error.path[0] == "features" else ("features", *error.path)
            raise error.rename(path) from None

    @property
    def open_fields(self) -> list[str]:
        """Numbers without a range."""
        fields = (*self.shared, *self.per_arm, *self.by_arm)
        return list(dict.fromkeys(field.name for field in fields if field.values is None and field.low is None))

    @property
    def coordinates(self) -> list[tuple[str, Field | None]]:
        """The name and the field of each coordinate of a vector; the field of a constant 1 is None."""
        head = [(column, field) for field in (*self.shared, *self.per_arm) for column in field.columns]
        own = [(column, field) for field in self.by_arm for column in field.columns]
        constant: list[tuple[str, Field | None]] = [("1", None)]
        blocks = [(f"{arm}: {column}", field) for arm in self.arms for column, field in (*constant, *own)]
        return [*constant * self.intercept, *head, *blocks]

    @property
    def names(self) -> list[str]:
        """The names of a vector's coordinates."""
        return [name for name, _ in self.coordinates]

    def vectors(
        self, context: Mapping[str, Any] | None, arms: Sequence[Name] | Mapping[Name, Any], *, lenient: bool = False
    ) -> Array:
        """A row for each of ``arms``: their names, or by name their own fields.

        ``lenient``: the rows are from the past, when other fields and arms may have been declared; values that cannot
        be encoded are 0 in their coordinates.
        """
        encoded = self._encode(("context",), {} if context is None else context, self._context_fields, lenient)
        if arms is self.arms and not self._arm_fields:  # all declared arms
            return encoded[self._rows]
        own_fields, rows = arms if isinstance(arms, Mapping) else None, np.empty((len(arms), self.dim))
        for row, arm in zip(rows, arms, strict=True):
            own = encoded[:0]
            if own_fields is not None or self._arm_fields:
                values = {} if own_fields is None else own_fields[arm]
                own = self._encode(("arms", arm), values, self._arm_fields, lenient)[2:]
            if self.arms and not lenient and arm not in self._row_of:
                raise ArgumentError(("arms", arm), arm, f"one of the declared arms {list_values(self.arms)}")
            row[:] = encoded[self._row_of.get(arm, self._row)]
            row[self._own] = own
        return rows

    def _encode(self, owner: Path, values: Any, fields: Mapping[str, Field], lenient: bool) -> Array:
        """Return 0, 1 and the ``values`` of ``fields`` as numbers, all scaled; ``owner`` is the path of ``values``."""
        if lenient:
            numbers = encode_past_fields(fields, owner, values, self.scale)
        else:
            numbers = encode_fields(fields, owner, values, self.clip, self.scale)
        return np.array([0.0, self.scale, *numbers])

    def fit(self, contexts: Sequence[Mapping[str, Any]], arms: Sequence[Mapping[str, Any]]) -> Features:
        """Return a copy with a fitted range for every number that had none. The range covers the history, and the mean
        with :data:`~windvane.agent.features.FIT_SPREAD` standard deviations on each side."""
        for i, (context, own) in enumerate(zip(contexts, arms, strict=True)):
            check_keys(("contexts", i), context, self._context_fields)
            check_keys(("arms", i), own, self._arm_fields)
        ranges = {}
        for name in self.open_fields:
            kind, rows = ("contexts", contexts) if name in self._context_fields else ("arms", arms)
            values = np.array(
                [check_between((kind, i, name), row[name], -LARGEST, LARGEST) for i, row in enumerate(rows)]
            )
            if len(values) < 2 or values.std() <= CONSTANT * np.abs(values).max():
                got, hint = f"{len(values)} values that do not vary", "declare a range"
                raise ArgumentError(kind, values.tolist(), f"rows whose {name!r} varies", got=got, hint=hint)
            middle, half = float(values.mean()), FIT_SPREAD * float(values.std())
            ranges[name] = min(middle - half, float(values.min())), max(middle + half, float(values.max()))
        given = self.declaration()
        for kind in KINDS:
            given[kind] = {name: ranges.get(name, declared) for name, declared in given[kind].items()}
        return Features(**given)

    def declaration(self) -> dict[str, Any]:
        """Return JSON-compatible data; ``Features(**data)`` gives equal features."""
        return {
            **{kind: {f.name: f.declaration() for f in getattr(self, kind)} for kind in KINDS},
            "arms": list(self.arms),
            "intercept": self.intercept,
            "clip": self.clip,
        }

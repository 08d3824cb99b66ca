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
from windvane.arguments import LARGEST, Array, Index, check_between
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
        # A context is encoded once, as 1 and its fields; these are the indices in that encoding of a vector's parts.
        owners = ["", *(name for name, field in self._context_fields.items() for _ in field.columns)]
        block = [0, *(i for field in self.by_arm for i, owner in enumerate(owners) if owner == field.name)]
        self._shared = slice(1 - self.intercept, 1 + sum(len(field.columns) for field in self.shared))
        self._block, self._steps = np.array(block), np.arange(len(block))
        self._head = self.intercept + sum(len(field.columns) for field in (*self.shared, *self.per_arm))
        self._block_starts = {arm: self._head + i * len(block) for i, arm in enumerate(self.arms)}
        self.dim = self._head + len(self.arms) * len(block)
        self._declared_places = self._places(
            [i * self.dim + start for i, start in enumerate(self._block_starts.values())]
        )
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
        shared = encoded[self._shared]
        rows = np.zeros((len(arms), self.dim))
        rows[:, : len(shared)] = shared
        if arms is self.arms and not self._arm_fields:  # all declared arms, whose places are known
            places = self._declared_places
        else:
            places = self._places(self._read_arms(arms, rows[:, len(shared) : self._head], lenient))
        rows.put(places, encoded[self._block])  # repeats the block for every arm
        return rows

    def _read_arms(self, arms: Sequence[Name] | Mapping[Name, Any], own: Array, lenient: bool) -> list[int]:
        """Write the arms' own fields to the rows of ``own``. Return where their blocks start in all rows together."""
        own_fields, starts = arms if isinstance(arms, Mapping) else None, []
        for row, arm in enumerate(arms):
            if own_fields is not None or self._arm_fields:
                values = {} if own_fields is None else own_fields[arm]
                own[row] = self._encode(("arms", arm), values, self._arm_fields, lenient)[1:]
            if arm in self._block_starts:
                starts.append(row * self.dim + self._block_starts[arm])
            elif self.arms and not lenient:
                raise ArgumentError(("arms", arm), arm, f"one of the declared arms {list_values(self.arms)}")
        return starts

    def _places(self, starts: list[int]) -> Index:
        """Return the places of all coordinates of the blocks that start at ``starts``."""
        return np.array(starts, dtype=np.int64)[:, None] + self._steps

    def _encode(self, owner: Path, values: Any, fields: Mapping[str, Field], lenient: bool) -> Array:
        """Return 1 and the ``values`` of ``fields`` as numbers, all scaled; ``owner`` is the path of ``values``."""
        if lenient:
            numbers = encode_past_fields(fields, owner, values)
        else:
            numbers = encode_fields(fields, owner, values, self.clip)
        encoded: Array = np.array([1.0, *numbers]) * self.scale
        return encoded

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

"""Sums of 1{a_t = a} / p_t of each arm, by the values of the fields of the context, in one pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from windvane.arguments import Array, Index
from windvane.logs.raw import FieldColumn, format_number

MOST_VALUES = 50  # of a field: if it has more, they are rare, or it is a number
MOST_FIELDS = 100  # which bounds the time


class ArmInContext(NamedTuple):
    """An arm and a value of the context: how many rows with the value offer the arm, and means over these rows."""

    name: str
    offered: float
    mean: float
    square: float


class ContextWeights:
    """Sums of 1 / p and its square by field, value and arm, and the numbers of rows that offer the arm."""

    def __init__(self) -> None:
        # By field and value, [3, 1 + arms]: sums, sums of squares, and offers. The first entry of the offers counts
        # rows that offer all arms of the log, also those that are not known yet. None: a field with too many values.
        self._fields: dict[str, dict[str, Array] | None] = {}

    def add(
        self, fields: Mapping[str, FieldColumn], arm: Index, inverse: Array, offers: tuple[Index, Index] | None
    ) -> None:
        """Add rows.

        Parameters
        ----------
        fields
            The fields of the context.
        arm, inverse
            The index of the arm that was played in each row, and 1 / p; NaN without a propensity.
        offers
            Row and arm of each arm on offer. None: all arms of the log, in every row.
        """
        is_usable = ~np.isnan(inverse) & (arm >= 0)
        width = 2 + int(max(arm.max(initial=-1), -1 if offers is None else offers[1].max(initial=-1)))
        weight = np.where(is_usable, inverse, 0.0)
        for name, column in fields.items():
            if name not in self._fields and len(self._fields) >= MOST_FIELDS:
                continue
            totals = self._fields.setdefault(name, {})
            values, code = _encode(column, len(arm))
            if totals is None or len({*totals, *values}) > MOST_VALUES:
                self._fields[name] = None
                continue
            code = np.where(is_usable, code, -1)
            kept = np.flatnonzero(code >= 0)
            cell, shape = code[kept] * width + arm[kept] + 1, (len(values), width)
            sums = [np.bincount(cell, weight[kept] ** k, len(values) * width) for k in (1, 2)]
            row, on_offer = (kept, np.full(len(kept), -1)) if offers is None else offers
            is_kept = code[row] >= 0
            offered = np.bincount(code[row[is_kept]] * width + on_offer[is_kept] + 1, minlength=len(values) * width)
            for value, new in zip(values, np.stack([*sums, offered]).reshape(3, *shape).swapaxes(0, 1), strict=True):
                totals[value] = _add(totals.get(value), new)

    def list_arms(self, arms: Sequence[str]) -> Iterator[ArmInContext]:
        """Yield every arm in every value that offers it; ``arms`` are their names."""
        for field, totals in self._fields.items():
            for value, each in (totals or {}).items():
                sums, squares, offered = np.pad(each, [(0, 0), (0, len(arms) + 1 - each.shape[1])])
                for i, arm in enumerate(arms, start=1):
                    if n := float(offered[0] + offered[i]):
                        name = f"{arm} where {field} = {value}"
                        yield ArmInContext(name, n, float(sums[i]) / n, float(squares[i]) / n)


def _add(old: Array | None, new: Array) -> Array:
    if old is None:
        return new
    width = max(old.shape[1], new.shape[1])
    return np.asarray(sum(np.pad(each, [(0, 0), (0, width - each.shape[1])]) for each in (old, new)))


def _encode(column: FieldColumn, n: int) -> tuple[list[str], Index]:
    """Return the values of a field, and the index of that of each row; -1: none."""
    data = column.fill(n)
    used, code = np.unique(data, return_inverse=True)  # -1 comes first, and NaN last
    if column.values is None:
        texts = [format_number(number) for number in used[~np.isnan(used)].tolist()]
        return texts, np.where(np.isnan(data), -1, code)
    return [column.values[i] for i in used.tolist() if i >= 0], np.asarray(code - int((used < 0).sum()))

"""Collect the rows of formats with one record per line, and convert them to columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from windvane.arguments import LARGEST
from windvane.logs.raw import NAN, FieldColumn, RawOffers, RawRows, encode_texts, format_number
from windvane.logs.row_problems import Problems

FEATURE = "a number within [-1e100, 1e100], or a string"
MOST_TEXT = 1000  # characters of a string that are kept: longer strings are not categories


@dataclass(slots=True)
class RowOffer:
    """An arm on offer: its name, its probability (NaN: unknown), and its features or its vector."""

    name: str
    probability: float = NAN
    fields: Mapping[str, Any] = field(default_factory=dict)
    vector: Sequence[float] | None = None


@dataclass(slots=True)
class Row:
    """A row of a log. See :class:`windvane.logs.raw.RawRows`."""

    place: int
    arm: str | None
    reward: float = NAN
    probability: float = NAN
    id: str | None = None
    time: float = NAN
    reward_time: float = NAN
    weight: float = 1.0
    is_learned: bool = True
    is_bad: bool = False
    context: Mapping[str, Any] = field(default_factory=dict)
    offers: Sequence[RowOffer] | None = None


class RowBuilder:
    """Collect rows, and return them as columns.

    Parameters
    ----------
    texts, arm_texts
        The fields of contexts and of arms that hold strings, even where all values look like numbers.
    problems
        Collects the values that are neither numbers nor strings.
    """

    def __init__(self, texts: Iterable[str], arm_texts: Iterable[str], problems: Problems) -> None:
        self._texts, self._arm_texts, self._problems = set(texts), set(arm_texts), problems
        self._rows: list[Row] = []

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, row: Row) -> None:
        """Add a row."""
        self._rows.append(row)

    def take(self) -> RawRows:
        """Return the rows since the last call as columns."""
        rows, self._rows = self._rows, []
        context = _FieldLists(self._problems)
        for i, row in enumerate(rows):
            context.add(i, row.context, row.place)
        return RawRows(
            place=np.array([row.place for row in rows], dtype=np.int64),
            is_bad=np.array([row.is_bad for row in rows], dtype=bool),
            id=np.array([row.id for row in rows], dtype=object),
            time=np.array([row.time for row in rows], dtype=float),
            arm=encode_texts(row.arm for row in rows),
            probability=np.array([row.probability for row in rows], dtype=float),
            reward=np.array([row.reward for row in rows], dtype=float),
            reward_time=np.array([row.reward_time for row in rows], dtype=float),
            weight=np.array([row.weight for row in rows], dtype=float),
            is_learned=np.array([row.is_learned for row in rows], dtype=bool),
            context=context.build(self._texts, len(rows)),
            offers=self._build_offers(rows),
        )

    def _build_offers(self, rows: Sequence[Row]) -> RawOffers | None:
        if all(row.offers is None for row in rows):
            return None
        flat = [(row.place, offer) for row in rows for offer in row.offers or ()]
        fields = _FieldLists(self._problems)
        for i, (place, offer) in enumerate(flat):
            if offer.fields:
                fields.add(i, offer.fields, place)
        chances = np.array([offer.probability for _, offer in flat], dtype=float)
        dim = next((len(offer.vector) for _, offer in flat if offer.vector is not None), None)
        none = [NAN] * (dim or 0)
        vectors = None if dim is None else [none if offer.vector is None else offer.vector for _, offer in flat]
        return RawOffers(
            start=np.cumsum([0, *(len(row.offers or ()) for row in rows)]),
            arm=encode_texts(offer.name for _, offer in flat),
            probability=None if np.isnan(chances).all() else chances,
            fields=fields.build(self._arm_texts, len(flat)),
            vectors=None if vectors is None else np.array(vectors, dtype=float),
        )


class _FieldLists:
    """The values of fields, with their rows."""

    def __init__(self, problems: Problems) -> None:
        self._lists: dict[str, tuple[list[int], list[float | str]]] = {}
        self._problems = problems

    def add(self, row: int, fields: Mapping[str, Any], place: int) -> None:
        """Add the fields of a row. None is a missing value."""
        for name, value in fields.items():
            cleaned = value
            if type(value) is not float and type(value) is not str:
                cleaned = self._clean(value)
            if cleaned is None and value is None:
                continue
            is_wrong = cleaned is None or (type(cleaned) is float and not abs(cleaned) <= LARGEST)
            if is_wrong or not name:
                self._problems.add("invalid feature", place, name, value, FEATURE, is_dropped=False)
                continue
            if type(cleaned) is str and len(cleaned) > MOST_TEXT:
                cleaned = cleaned[:MOST_TEXT]
            if name not in self._lists:
                self._lists[name] = [], []
            rows, values = self._lists[name]
            rows.append(row)
            values.append(cleaned)

    @staticmethod
    def _clean(value: Any) -> float | None:
        if not isinstance(value, int | float):
            return None
        try:
            return float(value)
        except OverflowError:
            return math.inf

    def build(self, texts: set[str], n: int) -> dict[str, FieldColumn]:
        """Return a column for each field. A field with any string becomes a column of strings."""
        columns = {}
        for name, (rows, values) in self._lists.items():
            index = None if len(rows) == n else np.array(rows, dtype=np.int64)
            if name in texts or any(type(value) is str for value in values):
                each = (value if isinstance(value, str) else format_number(value) for value in values)
                columns[name] = encode_texts(each, index)
            else:
                columns[name] = FieldColumn(np.array(values, dtype=float), None, index)
        return columns

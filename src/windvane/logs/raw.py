"""Rows of a log in file order, before they are encoded: columns of numbers and strings.

Readers (:mod:`windvane.logs.formats`) produce them. Readers of tables return whole columns. Readers of formats with
one record per line append rows to a :class:`RowBuilder`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index, Mask

NAN = float("nan")


@dataclass(frozen=True)
class FieldColumn:
    """Values of one field.

    Attributes
    ----------
    data : array
        Numbers (missing: NaN), or codes of strings (missing: -1).
    values : tuple of str or None
        The strings by code. None: the field holds numbers.
    rows : array or None
        The rows that have the field; ``data`` has one entry for each of them. None: all rows.
    """

    data: npt.NDArray[Any]
    values: tuple[str, ...] | None = None
    rows: Index | None = None

    @property
    def missing(self) -> Mask:
        """True for the entries without a value."""
        return np.isnan(self.data) if self.values is None else self.data < 0

    def select(self, index: Index, n: int) -> FieldColumn:
        """Return the rows ``index`` of ``n``, in this order."""
        if self.rows is None:
            return replace(self, data=self.data[index])
        new = np.full(n, -1, dtype=np.int64)
        new[index] = np.arange(len(index))
        moved = new[self.rows]
        kept = moved >= 0
        return FieldColumn(self.data[kept], self.values, moved[kept])

    def fill(self, n: int) -> npt.NDArray[Any]:
        """Return the data of all ``n`` rows, missing where a row does not have the field."""
        if self.rows is None:
            return self.data
        full = np.full(n, NAN if self.values is None else -1, dtype=self.data.dtype)
        full[self.rows] = self.data
        return full


Fields = Mapping[str, FieldColumn]


@dataclass(frozen=True, kw_only=True)
class RawOffers:
    """The arms on offer in each row. The offers of row i are the entries ``start[i]`` to ``start[i + 1] - 1``.

    Attributes
    ----------
    start : [n + 1]
        See above.
    arm : FieldColumn
        The names of the arms, [m].
    probability : [m] or None
        The probability of each arm. NaN: unknown.
    fields : mapping from str to FieldColumn
        The features of each arm, by name, [m].
    vectors : [m, d] or None
        Its feature vector, if the log has vectors. NaN: none.
    """

    start: Index
    arm: FieldColumn
    probability: Array | None
    fields: Fields
    vectors: Array | None = None

    @property
    def row(self) -> Index:
        """The row of each entry, [m]."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))

    @property
    def position(self) -> Index:
        """The position of each entry among the offers of its row, [m]."""
        return np.arange(self.start[-1]) - np.repeat(self.start[:-1], np.diff(self.start))

    def select(self, index: Index) -> RawOffers:
        """Return the offers of the rows ``index``, in this order."""
        sizes = np.diff(self.start)[index]
        start = np.concatenate(([0], np.cumsum(sizes)))
        flat = np.arange(start[-1]) + np.repeat(self.start[:-1][index] - start[:-1], sizes)
        m = int(self.start[-1])
        return RawOffers(
            start=start,
            arm=self.arm.select(flat, m),
            probability=None if self.probability is None else self.probability[flat],
            fields={name: column.select(flat, m) for name, column in self.fields.items()},
            vectors=None if self.vectors is None else self.vectors[flat],
        )


@dataclass(frozen=True, kw_only=True)
class RawRows:
    """Consecutive rows of a log in file order. Arrays have one entry per row.

    Attributes
    ----------
    place : [n]
        Line or row of the file, counted from 1.
    is_bad : [n]
        Rows with a value that could not be read. The reader has reported them.
    id : [n] or None
        Ids of decisions. None if the log has no ids. An entry None or NaN means no id.
    time, reward_time : [n]
        Seconds since 1970. NaN: not known.
    arm : FieldColumn
        The name of the arm that was played.
    probability : [n]
        Its probability. NaN: not known.
    reward : [n]
        The reward in the unit of the log. NaN: not known.
    weight, is_learned : [n]
        As in :class:`windvane.logs.log.LogBatch`.
    context : mapping from str to FieldColumn
        The fields of the context.
    offers : RawOffers or None
        The arms on offer. None: all arms of the log, in every row.
    """

    place: Index
    is_bad: Mask
    id: npt.NDArray[Any] | None
    time: Array
    arm: FieldColumn
    probability: Array
    reward: Array
    reward_time: Array
    weight: Array
    is_learned: Mask
    context: Fields
    offers: RawOffers | None = None

    def __len__(self) -> int:
        return len(self.place)

    def replace(self, **arrays: Array) -> RawRows:
        """Return the same rows with some arrays replaced."""
        return replace(self, **arrays)  # type: ignore[arg-type]

    def select(self, rows: slice | Index | Mask) -> RawRows:
        """Return some of the rows, in the order of ``rows``."""
        n = len(self)
        index = np.arange(n)[rows]
        arrays: dict[str, Any] = {name: getattr(self, name) for name in ARRAYS}
        chosen: dict[str, Any] = {name: None if array is None else array[index] for name, array in arrays.items()}
        return RawRows(
            **chosen,
            arm=self.arm.select(index, n),
            context={name: column.select(index, n) for name, column in self.context.items()},
            offers=None if self.offers is None else self.offers.select(index),
        )


ARRAYS = ("place", "is_bad", "id", "time", "probability", "reward", "reward_time", "weight", "is_learned")


def format_number(number: float) -> str:
    """Return the string that represents a number in a field of strings.

    Examples
    --------
    >>> format_number(3.0), format_number(0.5)
    ('3', '0.5')
    """
    return str(int(number)) if number == int(number) and abs(number) < 2**53 else repr(float(number))


def encode_texts(texts: Iterable[str | None], rows: Index | None = None) -> FieldColumn:
    """Return a column of strings. None is a missing value."""
    codes: dict[str | None, int] = {None: -1}
    data = np.array([codes.setdefault(text, len(codes) - 1) for text in texts], dtype=np.int64)
    return FieldColumn(data, tuple(text for text in codes if text is not None), rows)


def to_texts(column: FieldColumn) -> FieldColumn:
    """Return a column of numbers as strings; a column of strings unchanged."""
    if column.values is not None:
        return column
    present = ~np.isnan(column.data)
    numbers, codes = np.unique(column.data[present], return_inverse=True)
    data = np.full(len(column.data), -1, dtype=np.int64)
    data[present] = codes
    return FieldColumn(data, tuple(format_number(number) for number in numbers.tolist()), column.rows)


def concatenate(parts: Sequence[RawRows]) -> RawRows:
    """Concatenate the rows of all ``parts``."""
    if len(parts) == 1:
        return parts[0]
    sizes = [len(part) for part in parts]
    arrays = {name: [getattr(part, name) for part in parts] for name in ARRAYS}
    joined: dict[str, Any] = {name: None if each[0] is None else np.concatenate(each) for name, each in arrays.items()}
    offers = [part.offers for part in parts if part.offers is not None]
    return RawRows(
        **joined,
        arm=_join_columns([part.arm for part in parts], sizes),
        context=_join_fields([part.context for part in parts], sizes),
        offers=_join_offers(offers) if offers else None,
    )


def _join_offers(parts: Sequence[RawOffers]) -> RawOffers:
    sizes = [int(part.start[-1]) for part in parts]
    steps = np.concatenate([np.diff(part.start) for part in parts])
    chances = [np.full(m, NAN) if p.probability is None else p.probability for p, m in zip(parts, sizes, strict=True)]
    dim = max((part.vectors.shape[1] for part in parts if part.vectors is not None), default=None)
    none = [np.full((m, dim or 0), NAN) for m in sizes]
    vectors = [each if part.vectors is None else part.vectors for part, each in zip(parts, none, strict=True)]
    return RawOffers(
        start=np.concatenate(([0], np.cumsum(steps))),
        arm=_join_columns([part.arm for part in parts], sizes),
        probability=None if all(part.probability is None for part in parts) else np.concatenate(chances),
        fields=_join_fields([part.fields for part in parts], sizes),
        vectors=None if dim is None else np.concatenate(vectors),
    )


def _join_fields(parts: Sequence[Fields], sizes: Sequence[int]) -> dict[str, FieldColumn]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: _join_columns([part.get(name) for part in parts], sizes) for name in names}


def _join_columns(parts: Sequence[FieldColumn | None], sizes: Sequence[int]) -> FieldColumn:
    """Concatenate columns; a part that is None does not have the field."""
    present = [part for part in parts if part is not None]
    is_text = any(part.values is not None for part in present)
    if is_text:
        parts = [None if part is None else to_texts(part) for part in parts]
    codes: dict[str, int] = {}
    data, rows, before = [], [], 0
    for part, size in zip(parts, sizes, strict=True):
        if part is not None:
            values = part.data
            if part.values is not None:
                table = np.array([*(codes.setdefault(text, len(codes)) for text in part.values), -1], dtype=np.int64)
                values = table[values]
            data.append(values)
            rows.append(before + (np.arange(size) if part.rows is None else part.rows))
        before += size
    is_full = len(present) == len(parts) and all(part.rows is None for part in present)
    return FieldColumn(
        np.concatenate(data), tuple(codes) if is_text else None, None if is_full else np.concatenate(rows)
    )

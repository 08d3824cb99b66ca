"""Encode rows of a log as arrays, with the vectors of :meth:`windvane.agent.features.Features.vectors`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from windvane.agent.feature_fields import Field
from windvane.agent.features import Features
from windvane.arguments import Array, Index, Mask
from windvane.logs.formats.conversions import parse_number
from windvane.logs.log import LogBatch
from windvane.logs.raw import FieldColumn, Fields, RawRows, encode_texts, to_texts
from windvane.logs.row_checks import find_played

MOST_NUMBERS = 1 << 24  # of the vectors of a batch: 128 MB


def encode_fields(declared: Sequence[Field], fields: Fields, n: int) -> Array:
    """Return the coordinates of ``n`` contexts or arms, [n, columns].

    A missing or undeclared value is 0 in its coordinates, and a number outside its range is clipped, as
    :meth:`windvane.agent.features.Features.vectors` does with ``lenient=True``.
    """
    columns = np.zeros((n, sum(len(field.columns) for field in declared)))
    at = 0
    for field in declared:
        if field.name in fields:
            part = columns[:, at : at + len(field.columns)]
            if field.values is None:
                part[:, 0] = _encode_numbers(field, fields[field.name], n)
            else:
                _encode_texts(field.values, to_texts(fields[field.name]), part)
        at += len(field.columns)
    return columns


def _encode_numbers(field: Field, column: FieldColumn, n: int) -> Array:
    if column.values is not None:
        numbers = np.array([*(parse_number(text) for text in column.values), np.nan])[column.data]
        column = FieldColumn(np.where(np.isfinite(numbers), numbers, np.nan), None, column.rows)
    values = column.fill(n)
    if field.low is not None and field.high is not None:
        values = 2.0 * (np.clip(values, field.low, field.high) - field.low) / (field.high - field.low) - 1.0
    return np.where(np.isnan(values), 0.0, values)


def _encode_texts(values: Sequence[str], column: FieldColumn, part: Array) -> None:
    places = {value: place for place, value in enumerate(values)}
    table = np.array([*(places.get(text, -1) for text in column.values or ()), -1])
    place = table[column.data]
    known = np.flatnonzero(place >= 0)
    part[known if column.rows is None else column.rows[known], place[known]] = 1.0


class RowEncoder:
    """Turn raw rows into batches.

    Parameters
    ----------
    features
        The encoding. None: rows have vectors.
    arms
        The names of the arms that have a fixed place in the offers. None: the arms of a row are in the order in
        which it lists them.
    slots
        The number K of entries of the offers.
    dim
        The dimension of the vectors. If it is one more than that of the vectors in the log, a 1 is appended to them.
    arm_features
        Features of the arms by name, from a separate file.
    reward_range
        The range of rewards.
    has_times, has_all
        Whether rows have times, and the probabilities of all arms.
    """

    def __init__(
        self,
        features: Features | None,
        arms: Sequence[str] | None,
        slots: int,
        dim: int,
        *,
        arm_features: Mapping[str, Mapping[str, Any]] | None = None,
        reward_range: tuple[float, float] = (0.0, 1.0),
        has_times: bool = True,
        has_all: bool = False,
    ) -> None:
        self.features, self.arms, self.slots, self.dim = features, arms, slots, dim
        self.reward_range, self.has_times, self.has_all = reward_range, has_times, has_all
        self._places = {} if arms is None else {name: place for place, name in enumerate(arms)}
        self._static: Array | None = None
        self.context_fields: list[Field] = []
        if features is not None:
            self.context_fields = list({field.name: field for field in (*features.shared, *features.by_arm)}.values())
            if arm_features is not None and arms is not None:
                table = _to_fields([arm_features.get(name, {}) for name in arms], features.per_arm)
                self._static = encode_fields(features.per_arm, table, len(arms)) * features.scale

    @property
    def most_rows(self) -> int:
        """The largest number of rows that may be encoded at a time."""
        return max(MOST_NUMBERS // max(self.slots * self.dim, 1), 1)

    def encode(self, raw: RawRows, number: int) -> LogBatch:
        """Encode usable rows. ``number`` is the number of the first row, from 1."""
        n = len(raw)
        valid, played, slot = self._place_arms(raw)
        scale = 1.0 if self.features is None else self.features.scale
        context = encode_fields(self.context_fields, raw.context, n) * scale
        time = raw.time if self.has_times else np.arange(number, number + n, dtype=float)
        arrived = np.where(np.isnan(raw.reward_time) | (not self.has_times), time, np.maximum(raw.reward_time, time))
        low, high = self.reward_range
        probabilities = None
        if self.has_all and raw.offers is not None and raw.offers.probability is not None and slot is not None:
            probabilities = np.zeros((n, self.slots))
            kept = slot >= 0
            probabilities[raw.offers.row[kept], slot[kept]] = raw.offers.probability[kept]
        return LogBatch(
            place=raw.place,
            time=time,
            reward_time=np.where(np.isnan(raw.reward), np.inf, arrived),
            arms=self._build_vectors(raw, valid, slot, context),
            valid=valid,
            played=played,
            propensity=np.minimum(raw.probability, 1.0),
            probabilities=probabilities,
            reward=np.clip((raw.reward - low) / (high - low), 0.0, 1.0),
            weight=raw.weight,
            is_learned=raw.is_learned,
            context=context,
        )

    def _place_arms(self, raw: RawRows) -> tuple[Mask, Index, Index | None]:
        """Return which entries are arms [n, K], the entry that was played [n], and the entry of each offer [m]."""
        n = len(raw)
        if raw.offers is None:
            return np.ones((n, self.slots), dtype=bool), self._look_up(raw.arm), None
        slot = raw.offers.position if self.arms is None else self._look_up(raw.offers.arm)
        valid = np.zeros((n, self.slots), dtype=bool)
        kept = slot >= 0
        valid[raw.offers.row[kept], slot[kept]] = True
        return valid, slot[find_played(raw)], slot

    def _look_up(self, column: FieldColumn) -> Index:
        table = np.array([*(self._places.get(name, -1) for name in column.values or ()), -1])
        return np.asarray(table[column.data])

    def _build_vectors(self, raw: RawRows, valid: Mask, slot: Index | None, context: Array) -> Array:
        n, offers, features = len(raw), raw.offers, self.features
        vectors = np.zeros((n, self.slots, self.dim))
        kept = None if slot is None else np.flatnonzero(slot >= 0)
        if features is None:
            assert offers is not None
            assert offers.vectors is not None
            count = offers.vectors.shape[1]
            vectors[offers.row[kept], slot[kept], :count] = offers.vectors[kept]  # type: ignore[index]
            vectors[valid, count:] = 1.0  # the intercept, if one is added
            return vectors
        shared = sum(len(field.columns) for field in features.shared)
        head = features.intercept + shared
        vectors[:, :, : features.intercept] = features.scale
        vectors[:, :, features.intercept : head] = context[:, None, :shared]
        own = slice(head, head + sum(len(field.columns) for field in features.per_arm))
        if self._static is not None:
            vectors[:, :, own] = self._static
        elif features.per_arm and offers is not None:
            encoded = encode_fields(features.per_arm, offers.fields, int(offers.start[-1])) * features.scale
            vectors[offers.row[kept], slot[kept], own] = encoded[kept]  # type: ignore[index]
        self._fill_blocks(features, vectors, context, own.stop)
        if not valid.all():
            vectors[~valid] = 0.0
        return vectors

    def _fill_blocks(self, features: Features, vectors: Array, context: Array, start: int) -> None:
        """Write 1 and the ``by_arm`` fields into the block of each declared arm."""
        owners = [field.name for field in self.context_fields for _ in field.columns]
        columns = [i for field in features.by_arm for i, owner in enumerate(owners) if owner == field.name]
        block = np.concatenate((np.full((len(context), 1), features.scale), context[:, columns]), axis=1)
        for place in range(len(features.arms)):
            vectors[:, place, start : start + block.shape[1]] = block
            start += block.shape[1]


def _to_fields(records: Sequence[Mapping[str, Any]], declared: Sequence[Field]) -> dict[str, FieldColumn]:
    """Return the declared fields of some records as columns."""
    fields: dict[str, FieldColumn] = {}
    for field in declared:
        values = [record.get(field.name) for record in records]
        if any(isinstance(value, str) for value in values):
            fields[field.name] = encode_texts(None if value is None else str(value) for value in values)
        else:
            numbers: npt.NDArray[Any] = np.array([np.nan if value is None else value for value in values], dtype=float)
            fields[field.name] = FieldColumn(numbers)
    return fields

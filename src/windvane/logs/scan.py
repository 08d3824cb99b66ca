"""The first pass over a log: its arms, fields, ranges, counts, probabilities and times."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from windvane.arguments import Array, Index, Mask
from windvane.errors import ArgumentError
from windvane.logs.ordering import OrderCheck
from windvane.logs.raw import FieldColumn, RawOffers, RawRows
from windvane.logs.row_checks import RowRules, find_usable
from windvane.logs.row_problems import MISSING_PROBABILITY, REPEATED_ID, WRONG_SUM, Problems, Verbatim

MOST_VALUES_COUNTED = 20_000  # different strings of a field that are counted; beyond it, the rarer half is dropped
MOST_FIELDS = 100_000
MOST_ARMS = 50_000
MOST_IDS = 20_000_000  # ids that are compared: 160 MB


class FieldSummary:
    """Summary of one field of a log.

    Attributes
    ----------
    present : int
        The number of rows (or offers) with a value.
    low, high : float
        The range of its numbers.
    values : Counter
        How often each string occurs. For a field with very many, only the most frequent, with approximate counts.
    has_numbers, has_texts, is_cut : bool
        Whether the field holds numbers, strings, or both, and whether ``values`` is incomplete.
    """

    def __init__(self) -> None:
        self.present = 0
        self.low, self.high = math.inf, -math.inf
        self.values: Counter[str] = Counter()
        self.has_numbers = self.has_texts = self.is_cut = False

    def add(self, column: FieldColumn) -> None:
        """Add the values of a column."""
        data = column.data[~column.missing]
        if not len(data):
            return
        self.present += len(data)
        if column.values is None:
            self.has_numbers = True
            self.low, self.high = min(self.low, float(data.min())), max(self.high, float(data.max()))
            return
        self.has_texts = True
        counts = np.bincount(data, minlength=len(column.values))
        used = np.flatnonzero(counts)
        self.values.update({column.values[i]: int(counts[i]) for i in used.tolist()})
        if len(self.values) > MOST_VALUES_COUNTED:
            self.is_cut = True
            self.values = Counter(dict(self.values.most_common(MOST_VALUES_COUNTED // 2)))


class LogScan:
    """Summarise all rows of a log.

    Parameters
    ----------
    rules
        What rows must satisfy.
    problems
        Where problems are added.
    """

    def __init__(self, rules: RowRules, problems: Problems) -> None:
        self.rules, self.problems = rules, problems
        self.context: dict[str, FieldSummary] = {}
        self.own: dict[str, FieldSummary] = {}
        self.arms: Counter[str] = Counter()  # how often each was played
        self.offered: Counter[str] = Counter()
        self.rows = self.timed = self.largest_offer = 0
        self.rewards = self.with_probability = 0
        self.with_all_probabilities = np.zeros(2, dtype=np.int64)  # of all rows, and of those with a time
        self.low_reward, self.high_reward = math.inf, -math.inf
        self.lowest, self.low_played, self.high_played = math.inf, math.inf, -math.inf
        self.dim: int | None = None
        self.longest = 0.0
        self._lows: list[Array] = []  # the smallest and the largest entries of the vectors in each chunk
        self._highs: list[Array] = []
        self.order = OrderCheck()
        self._hashes: list[Index] = []
        self._id_places: list[Index] = []
        self._ids = 0
        self._untimed = _Missing()
        self._without_probability = _Missing()

    def add(self, raw: RawRows) -> None:
        """Add the next rows of the file."""
        usable = find_usable(raw, self.problems, self.rules)
        self.problems.rows_read += len(raw)
        self.problems.rows_dropped += int((~usable).sum())
        rows = raw if usable.all() else raw.select(usable)
        self.rows += len(rows)
        has_time = ~np.isnan(rows.time)
        self.timed += int(has_time.sum())
        self._untimed.add(rows, ~has_time)
        self.order.add(rows.time[has_time], rows.place[has_time])
        self._add_ids(rows)
        self._add_numbers(rows)
        _count(self.arms, rows.arm)
        self._add_fields(self.context, rows.context)
        if rows.offers is not None:
            self._add_offers(rows.offers, has_time)
        if len(self.arms) > MOST_ARMS or len(self.offered) > MOST_ARMS:
            raise ArgumentError("arm", None, f"a field with at most {MOST_ARMS:,} different arms", got="more")

    def _add_numbers(self, rows: RawRows) -> None:
        rewards = rows.reward[~np.isnan(rows.reward)]
        if len(rewards):
            self.rewards += len(rewards)
            self.low_reward = min(self.low_reward, float(rewards.min()))
            self.high_reward = max(self.high_reward, float(rewards.max()))
        is_unknown = np.isnan(rows.probability)
        chances = rows.probability[~is_unknown]
        self._without_probability.add(rows, is_unknown)
        if len(chances):
            self.with_probability += len(chances)
            self.low_played = min(self.low_played, float(chances.min()))
            self.high_played = max(self.high_played, float(chances.max()))

    def _add_offers(self, offers: RawOffers, has_time: Mask) -> None:
        sizes = np.diff(offers.start)
        self.largest_offer = max(self.largest_offer, int(sizes.max(initial=0)))
        _count(self.offered, offers.arm)
        self._add_fields(self.own, offers.fields)
        if offers.probability is not None:
            missing = np.bincount(offers.row, weights=np.isnan(offers.probability), minlength=len(sizes))
            has_all = missing == 0
            self.with_all_probabilities += np.array([has_all.sum(), (has_all & has_time).sum()])
            if (~np.isnan(offers.probability)).any():
                self.lowest = min(self.lowest, float(np.nanmin(offers.probability)))
        if offers.vectors is not None and len(offers.vectors):
            self.dim = offers.vectors.shape[1]
            norms = np.sqrt(np.square(offers.vectors).sum(axis=1))
            self.longest = max(self.longest, float(np.nanmax(norms, initial=0.0)))
            given = offers.vectors[~np.isnan(offers.vectors[:, 0])] if self.dim else offers.vectors[:0]
            if len(given):
                self._lows.append(given.min(axis=0))
                self._highs.append(given.max(axis=0))

    @property
    def has_constant(self) -> bool:
        """Whether a coordinate of the vectors is the same, and not 0, in all arms and rows."""
        if not self._lows:
            return False
        low, high = np.min(self._lows, axis=0), np.max(self._highs, axis=0)
        return bool(((low == high) & (low != 0.0)).any())

    def _add_fields(self, summaries: dict[str, FieldSummary], fields: Mapping[str, FieldColumn]) -> None:
        for name, column in fields.items():
            if name not in summaries:
                if len(summaries) >= MOST_FIELDS:
                    expected = f"one of at most {MOST_FIELDS:,} different fields (it is not used)"
                    self.problems.add(
                        "too many fields", 0, name, Verbatim("an additional field"), expected, is_dropped=False
                    )
                    continue
                summaries[name] = FieldSummary()
            summaries[name].add(column)

    def _add_ids(self, rows: RawRows) -> None:
        if rows.id is None or self._ids > MOST_IDS:
            return
        is_id = np.array([id_ is not None for id_ in rows.id.tolist()], dtype=bool)
        self._hashes.append(np.array(list(map(hash, rows.id[is_id].tolist())), dtype=np.int64))
        self._id_places.append(rows.place[is_id])
        self._ids += int(is_id.sum())

    def finish(self) -> None:
        """Add the problems that are known only after the last row."""
        problems = self.problems
        if 0 < self.timed < self.rows:
            self._untimed.report(problems, "missing time", "time", "present, as in other rows", is_dropped=True)
            problems.rows_dropped += self.rows - self.timed
            self.rows = self.timed
        if self.with_probability > 0:
            expected = "present, as in other rows"
            self._without_probability.report(problems, MISSING_PROBABILITY, "propensity", expected, is_dropped=False)
        if self._ids:
            hashes, places = np.concatenate(self._hashes), np.concatenate(self._id_places)
            order = np.argsort(hashes, kind="stable")
            is_again = np.concatenate(([False], np.diff(hashes[order]) == 0))
            again = np.sort(places[order][is_again])
            if len(again):
                values = [Verbatim("the id of an earlier row")] * len(again)
                problems.add_rows(REPEATED_ID, again, "id", values, "different in every row", is_dropped=False)
        if self._ids > MOST_IDS:
            expected = f"in the first {MOST_IDS:,} rows (later ids are not compared)"
            problems.add("ids not compared", 0, "id", Verbatim("more rows"), expected, is_dropped=False)
        self._hashes, self._id_places = [], []

    @property
    def has_all_probabilities(self) -> bool:
        """Whether all usable rows have the probabilities of all arms, which sum to 1. Known at the end."""
        has_all = 0 < self.rows <= int(self.with_all_probabilities[int(self.timed > 0)])
        return has_all and not self.problems.count(WRONG_SUM)

    @property
    def mixed_fields(self) -> tuple[set[str], set[str]]:
        """The fields of the context and of arms that hold numbers in some rows and strings in others."""
        return tuple(  # type: ignore[return-value]
            {name for name, field in fields.items() if field.has_numbers and field.has_texts}
            for fields in (self.context, self.own)
        )


class _Missing:
    """Count rows without a value, and keep the first few row numbers."""

    def __init__(self) -> None:
        self.count = 0
        self.places: list[int] = []

    def add(self, rows: RawRows, is_missing: Mask) -> None:
        self.count += int(is_missing.sum())
        if len(self.places) < 10 and is_missing.any():
            self.places += rows.place[is_missing][:10].tolist()

    def report(self, problems: Problems, kind: str, field: str, expected: str, *, is_dropped: bool) -> None:
        for i, place in enumerate(self.places[: self.count]):
            more = self.count - len(self.places) if i == 0 else 0
            problems.add(kind, place, field, Verbatim("nothing"), expected, is_dropped=is_dropped, count=1 + more)


def summarise_arms(features: Mapping[str, Mapping[str, Any]]) -> dict[str, FieldSummary]:
    """Return a summary of the features that a separate file has for each arm."""
    summaries: dict[str, FieldSummary] = {}
    for own in features.values():
        for name, value in own.items():
            summary = summaries.setdefault(name, FieldSummary())
            summary.present += 1
            if isinstance(value, str):
                summary.has_texts = True
                summary.values[value] += 1
            else:
                summary.has_numbers = True
                summary.low, summary.high = min(summary.low, value), max(summary.high, value)
    return summaries


def _count(counter: Counter[str], column: FieldColumn) -> None:
    values = column.values or ()
    counts = np.bincount(column.data[column.data >= 0], minlength=len(values))
    counter.update({values[i]: int(counts[i]) for i in np.flatnonzero(counts).tolist()})

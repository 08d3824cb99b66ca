"""A log in a file: its schema, its problems and its rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from windvane.agent.features import Features
from windvane.arguments import check_number
from windvane.errors import ArgumentError
from windvane.logs.encoding import LeftOut, check_features, plan_features
from windvane.logs.formats.reader import Reader, read_stamp
from windvane.logs.log import BATCH, Log, LogBatch, LogSchema, Propensities
from windvane.logs.ordering import sort_rows
from windvane.logs.raw import RawRows
from windvane.logs.row_checks import RowRules, find_usable
from windvane.logs.row_encoder import MOST_NUMBERS, RowEncoder
from windvane.logs.row_problems import Problems, Verbatim
from windvane.logs.scan import FieldSummary, LogScan, summarise_arms

SAME_CHANCE = 1e-6  # relative difference of probabilities that were rounded to single precision
FEW_ARMS = 20  # up to this many arms have fixed places in batches, even if rows offer only a few of them
SHORTEST = 1e-9  # the smallest bound on norms, where all vectors are 0


class FileLog(Log):
    """A log in a file; see :func:`read`.

    Attributes
    ----------
    schema : LogSchema
        What is known about the log as a whole.
    problems : Problems
        The problems of its rows.
    left_out : tuple of LeftOut
        The fields, and values of categories, that the encoding does not use.
    arm_counts : dict from str to int
        How often each arm was played, in the usable rows.
    """

    def __init__(
        self, reader: Reader, schema: LogSchema, encoder: RowEncoder, rules: RowRules, problems: Problems,
        left_out: Sequence[LeftOut], arm_counts: Mapping[str, int], is_sorted: bool,
    ) -> None:  # fmt: skip
        self.schema, self.problems, self.left_out = schema, problems, tuple(left_out)
        self.arm_counts = dict(arm_counts)
        self._reader, self._encoder, self._rules, self._is_sorted = reader, encoder, rules, is_sorted
        self._stamp = reader.stamp

    def raw_batches(self) -> Iterator[RawRows]:
        """Yield all rows as the file has them, in its order, unusable ones included."""
        self._check_unchanged()
        yield from self._reader.read(Problems(), ignore_progress)

    def batches(self, size: int = BATCH) -> Iterator[LogBatch]:
        """Yield all usable rows in time order, at most ``size`` at a time."""
        size = min(int(check_number("size", size, "of at least 1", lambda n: n >= 1)), self._encoder.most_rows)
        rows, number = self.usable_batches(), 1
        for part in rows if self._is_sorted else sort_rows(rows):
            for start in range(0, len(part), size):
                batch = self._encoder.encode(part.select(slice(start, start + size)), number)
                yield batch
                number += len(batch)

    def _check_unchanged(self) -> None:
        """Raise ``ArgumentError`` if the file has changed since it was read: its schema may be wrong."""
        if read_stamp(self._reader.path) != self._stamp:
            expected = "unchanged while the log is used"
            raise ArgumentError(
                "path", self.schema.source, expected, got="a file that has changed", hint="read it again"
            )

    def usable_batches(self) -> Iterator[RawRows]:
        """Yield the usable rows as the file has them, in its order."""
        self._check_unchanged()
        for raw in self._reader.read(Problems(), ignore_progress):
            usable = find_usable(raw, Problems(), self._rules)
            if self.schema.has_times:
                usable &= ~np.isnan(raw.time)
            if usable.any():
                yield raw if usable.all() else raw.select(usable)
        self._check_unchanged()


def ignore_progress(done: int) -> None:
    """Report nothing."""


def build_log(
    reader: Reader, scan: LogScan, encoding: Features | None, fields: Sequence[str] | None, rules: RowRules,
    max_dim: int, floor: float | None, is_adaptive: bool,
) -> FileLog:  # fmt: skip
    """Build the log from its reader and the summary of the first pass."""
    own = scan.own if reader.arm_features is None else summarise_arms(reader.arm_features)
    arms = list(scan.offered | scan.arms) if scan.offered else _sort_names(reader.arm_features or scan.arms)
    left_out: list[LeftOut] = []
    if scan.dim is not None:
        if encoding is not None:
            raise ArgumentError("features", encoding, "omitted, because the arms of the log are vectors", got="given")
    elif encoding is not None:
        check_features(encoding, scan, own)
    else:
        encoding, left_out = plan_features(scan, own, arms, max_dim=max_dim, fields=fields)
    if encoding is not None and encoding.arms:
        arms = [str(name) for name in encoding.arms]
    is_named = encoding is not None and (bool(encoding.arms) or not scan.offered)
    is_fixed = is_named or len(arms) <= max(2 * scan.largest_offer, FEW_ARMS)
    slots = len(arms) if is_fixed else scan.largest_offer
    has_intercept = scan.dim is not None and not scan.has_constant
    dim = scan.dim + has_intercept if scan.dim is not None else encoding.dim if encoding is not None else 0
    if slots * dim > MOST_NUMBERS:
        expected = f"a log in which arms times dimension is at most {MOST_NUMBERS:,}"
        got, hint = f"{slots:,} arms of dimension {dim}", "pass a smaller max_dim"
        raise ArgumentError("path", str(reader.path), expected, got=got, hint=hint)
    reward_range, is_declared = _choose_range(scan, rules)
    has_all = scan.has_all_probabilities
    encoder = RowEncoder(
        encoding, arms if is_fixed else None, slots, dim, arm_features=reader.arm_features, reward_range=reward_range,
        has_times=scan.timed > 0, has_all=has_all,
    )  # fmt: skip
    propensities: Propensities = "all arms" if has_all else "played arm" if scan.with_probability else "none"
    contexts = [column for field in encoder.context_fields for column in field.columns]
    longest = _bound_norms(encoding, {**scan.context, **own}) if encoding else math.hypot(scan.longest, has_intercept)
    schema = LogSchema(
        source=str(reader.path),
        format=reader.format,
        rows=scan.rows,
        dim=dim,
        names=tuple(encoding.names) if encoding else _name_coordinates(dim - has_intercept, has_intercept),
        has_intercept=has_intercept,
        L=max(longest, SHORTEST),
        arms=tuple(arms) if is_fixed else (),
        context_names=tuple(contexts),
        features=encoding,
        reward_range=reward_range,
        is_range_declared=is_declared,
        propensities=propensities,
        floor=_find_floor(scan, has_all, slots) if floor is None else floor,
        is_floor_declared=floor is not None,
        has_times=scan.timed > 0,
        is_adaptive=is_adaptive,
        place=reader.place,
    )
    is_sorted = scan.order.first_unsorted is None
    return FileLog(reader, schema, encoder, rules, scan.problems, left_out, scan.arms, is_sorted)


def _name_coordinates(dim: int, has_intercept: bool) -> tuple[str, ...]:
    return (*(f"x{i + 1}" for i in range(dim)), *(["1"] if has_intercept else []))


def _bound_norms(features: Features, summaries: Mapping[str, FieldSummary]) -> float:
    """Return a bound on the norms of vectors; numbers without a range are bounded by those of the log."""
    if math.isfinite(features.longest):
        return features.longest
    total = 1.0 / features.scale**2  # the number of fields
    for field in (*features.shared, *features.per_arm, *features.by_arm):
        if field.values is None and field.low is None:
            summary = summaries[field.name]
            total += max(summary.low**2, summary.high**2) - 1.0 if summary.has_numbers else 0.0
    return float(features.scale * math.sqrt(max(total, 0.0)))


def _find_floor(scan: LogScan, has_all: bool, slots: int) -> float | None:
    """Return a lower bound on the probabilities of all arms: the smallest, or 1/K if the log was uniform."""
    if has_all:
        return scan.lowest if scan.lowest > 0.0 else None
    uniform = 1.0 / max(slots, 1)
    is_uniform = scan.with_probability == scan.rows and not scan.offered
    near = max(abs(scan.low_played - uniform), abs(scan.high_played - uniform)) <= SAME_CHANCE * uniform
    return min(scan.low_played, uniform) if is_uniform and near else None


def _choose_range(scan: LogScan, rules: RowRules) -> tuple[tuple[float, float], bool]:
    if rules.reward_range is not None:
        return rules.reward_range, True
    low, high = scan.low_reward + 0.0, scan.high_reward + 0.0  # without the sign of -0.0
    if not scan.rewards:
        raise ArgumentError("reward", None, "known in at least one row of the log", got="no reward")
    if low >= 0.0 and high <= 1.0:
        return (0.0, 1.0), True
    if low == high:
        problem = Verbatim(f"{low:g} in every row")
        scan.problems.add("constant reward", 0, "reward", problem, "different between rows", is_dropped=False)
        low, high = min(low, 0.0), max(high, 0.0)
    return (low, high), False


def _sort_names(names: Iterable[str]) -> list[str]:
    """Return names in order: as numbers if all of them are whole numbers."""
    listed = list(names)
    if all(name.isdecimal() and name.isascii() and len(name) < 20 for name in listed):
        return sorted(listed, key=lambda name: (int(name), name))
    return sorted(listed)

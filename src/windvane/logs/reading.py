"""Read a log from a file: see :func:`read`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from windvane.agent.features import Features
from windvane.arguments import LARGEST, check_between, check_number
from windvane.errors import ArgumentError
from windvane.logs.encoding import FEW_ARMS, MAX_DIM, LeftOut, check_features, plan_features
from windvane.logs.formats.detection import open_reader
from windvane.logs.formats.reader import Reader
from windvane.logs.log import BATCH, Log, LogBatch, LogSchema, Propensities
from windvane.logs.ordering import BUFFER, sort_rows
from windvane.logs.problems import Problems, Verbatim
from windvane.logs.raw import RawRows
from windvane.logs.row_checks import RowRules, find_usable
from windvane.logs.row_encoder import RowEncoder
from windvane.logs.scan import LogScan, summarise_arms

Progress = Callable[[int, int], None]
SAME_CHANCE = 1e-6  # relative difference of probabilities that were rounded to single precision


class FileLog(Log):
    """A log in a file; see :func:`read`.

    Attributes
    ----------
    schema : LogSchema
        What is known about the log as a whole.
    problems : Problems
        What is wrong with it.
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

    def raw_batches(self) -> Iterator[RawRows]:
        """Yield all rows as the file has them, in its order, unusable ones included."""
        yield from self._reader.read(Problems(), _ignore)

    def batches(self, size: int = BATCH) -> Iterator[LogBatch]:
        """Yield all usable rows in the order of time, at most ``size`` at a time."""
        size = min(int(check_number("size", size, "of at least 1", lambda n: n >= 1)), self._encoder.most_rows)
        rows, number = self._read_usable(), 1
        for part in rows if self._is_sorted else sort_rows(rows):
            for start in range(0, len(part), size):
                batch = self._encoder.encode(part.select(slice(start, start + size)), number)
                yield batch
                number += len(batch)

    def _read_usable(self) -> Iterator[RawRows]:
        for raw in self._reader.read(Problems(), _ignore):
            usable = find_usable(raw, Problems(), self._rules)
            if self.schema.has_times:
                usable &= ~np.isnan(raw.time)
            if usable.any():
                yield raw if usable.all() else raw.select(usable)


def read(
    path: str | PathLike[str],
    *,
    format: str | None = None,
    time: str | None = None,
    arm: str | None = None,
    reward: str | None = None,
    propensity: str | None = None,
    reward_time: str | None = None,
    id: str | None = None,
    weight: str | None = None,
    arms_from: str | PathLike[str] | None = None,
    features: Features | Mapping[str, Any] | Sequence[str] | None = None,
    max_dim: int = MAX_DIM,
    reward_range: tuple[float, float] | None = None,
    floor: float | None = None,
    is_adaptive: bool = True,
    progress: Progress | None = None,
) -> FileLog:
    r"""Read a log of decisions from a file.

    The file is read twice or more often, in constant memory: first to find its arms, the ranges of its fields and its
    problems, and then whenever its rows are asked for.

    Parameters
    ----------
    path
        The file.
    format
        "windvane" (events exported by the service, NDJSON or Parquet), "table" (CSV or Parquet), "open-bandit",
        "dsjson" or "vw". Default: found out from the content.
    time, arm, reward, propensity, reward_time, id, weight
        For tables: the names of columns. Default: the column with the name of the argument, if there is one. A log
        needs an arm and a reward. Times are in ISO 8601 (UTC unless they say otherwise), or seconds since 1970.
    arms_from
        For tables: a CSV or Parquet file with a row of features for each arm. Its column of names has the name of the
        log's column of arms.
    features
        The names of the fields to use. Default: all, as far as ``max_dim`` allows. Or the encoding itself: ``Features``
        or a mapping with their declaration.
    max_dim
        The largest dimension of the vectors, unless ``features`` is an encoding.
    reward_range
        The smallest and the largest possible reward. Default: (0, 1) if all rewards are in it, or else those seen.
    floor
        A lower bound on the logging probability of every arm, if one is known.
    is_adaptive
        Whether the policy that wrote the log may have learned from its rewards.
    progress
        Called with the bytes read so far and the bytes to read, while this function runs.

    Returns
    -------
    FileLog
        The log.

    Raises
    ------
    ArgumentError
        If the file cannot be read, most of its rows are not usable, or its rows are too far from the order of time.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "log.csv")
    >>> _ = file.write_text("arm,device,reward,propensity\nred,phone,1,0.5\nblue,desktop,0,0.5\n")
    >>> log = read(file)
    >>> log.schema.format, log.schema.rows, log.schema.arms, log.schema.propensities
    ('table', 2, ('blue', 'red'), 'played arm')
    >>> [batch.played.tolist() for batch in log.batches()]
    [[1, 0]]
    """
    source = _check_path("path", path)
    fields, encoding = _split_features(features)
    roles = {"time": time, "arm": arm, "reward": reward, "propensity": propensity, "reward_time": reward_time,
             "id": id, "weight": weight}  # fmt: skip
    max_dim = int(check_number("max_dim", max_dim, "of at least 2", lambda n: n >= 2 and n == int(n)))
    bounds = None if reward_range is None else _check_range(reward_range)
    declared = None if encoding is None or not encoding.arms else [str(name) for name in encoding.arms]
    file_of_arms = None if arms_from is None else _check_path("arms_from", arms_from)
    reader = open_reader(source, format, roles, fields, file_of_arms, declared)
    possible = declared if declared is not None else reader.arm_features
    rules = RowRules(None if possible is None else set(possible), bounds)
    scan = _scan(reader, rules, progress)
    return _build(reader, scan, encoding, fields, rules, max_dim, floor, is_adaptive)


def _scan(reader: Reader, rules: RowRules, progress: Progress | None) -> LogScan:
    """Read the file once, or twice if fields turn out to hold texts after many rows."""
    total, passes = max(reader.path.stat().st_size, 1), 1 + reader.extra_passes

    def report_from(start: int) -> Callable[[int], None]:
        return _ignore if progress is None else lambda done: progress(start + min(done, total), passes * total)

    reader.prepare(report_from(0))
    while True:
        scan = LogScan(rules, Problems())
        for raw in reader.read(scan.problems, report_from((passes - 1) * total)):
            scan.add(raw)
        texts, arm_texts = scan.mixed
        if texts <= reader.texts and arm_texts <= reader.arm_texts:
            break
        reader.texts |= texts
        reader.arm_texts |= arm_texts
        passes += 1
    scan.finish()
    scan.problems.check_share(str(reader.path))
    _check_order(reader, scan)
    if progress is not None:
        progress(passes * total, passes * total)
    return scan


def _check_order(reader: Reader, scan: LogScan) -> None:
    order = scan.order
    if order.first_unsorted is None:
        return
    place, at = order.first_unsorted
    if not order.is_sortable:
        expected = f"a log in the order of time, or with rows out of place by fewer than {BUFFER:,} rows"
        hint = "sort the file by time, for example with `sort`, pandas or DuckDB (`ORDER BY`)"
        got = f"{order.unsorted:,} rows that are earlier than a row before them, first row {place}"
        raise ArgumentError("path", str(reader.path), expected, got=got, hint=hint)
    expected = "at or after the times of the rows before; rows are sorted by time when they are used"
    scan.problems.add("not in the order of time", place, "time", at, expected, is_dropped=False, count=order.unsorted)


def _build(
    reader: Reader, scan: LogScan, encoding: Features | None, fields: Sequence[str] | None, rules: RowRules,
    max_dim: int, floor: float | None, is_adaptive: bool,
) -> FileLog:  # fmt: skip
    own = scan.own if reader.arm_features is None else summarise_arms(reader.arm_features)
    arms = _sort_names(reader.arm_features or (scan.offered if scan.offered else scan.arms))
    left_out: list[LeftOut] = []
    if scan.dim is not None:
        if encoding is not None:
            raise ArgumentError("features", encoding, "omitted, because the arms of the log are vectors", got="given")
    elif encoding is not None:
        check_features(encoding, scan, own)
    else:
        encoding, left_out = plan_features(scan, own, arms, max_dim=max_dim, fields=fields)
    is_fixed = encoding is not None and (bool(encoding.arms) or not scan.offered)
    if encoding is not None and encoding.arms:
        arms = [str(name) for name in encoding.arms]
    slots = len(arms) if is_fixed else scan.largest_offer
    dim = scan.dim if encoding is None else encoding.dim
    assert dim is not None
    reward_range, is_declared = _choose_range(scan, rules)
    has_all = 0 < scan.rows <= scan.with_all_probabilities
    encoder = RowEncoder(
        encoding, arms if is_fixed else None, slots, dim, arm_features=reader.arm_features, reward_range=reward_range,
        has_times=scan.timed > 0, has_all=has_all,
    )  # fmt: skip
    propensities: Propensities = "all arms" if has_all else "played arm" if scan.with_probability else "none"
    if floor is not None:
        floor = check_number("floor", floor, "in (0, 1]", lambda p: 0.0 < p <= 1.0)
    contexts = [column for field in encoder.context_fields for column in field.columns]
    bound = scan.longest if encoding is None else encoding.longest if math.isfinite(encoding.longest) else None
    schema = LogSchema(
        source=str(reader.path),
        format=reader.format,
        rows=scan.rows,
        dim=dim,
        names=tuple(f"x{i + 1}" for i in range(dim)) if encoding is None else tuple(encoding.names),
        L=1.0 if bound is None else max(bound, 1e-9),
        arms=tuple(arms) if is_fixed or len(arms) <= FEW_ARMS else (),
        context_names=tuple(contexts),
        features=encoding,
        reward_range=reward_range,
        is_range_declared=is_declared,
        propensities=propensities,
        floor=_find_floor(scan, has_all, slots) if floor is None else floor,
        is_floor_declared=floor is not None,
        has_times=scan.timed > 0,
        is_adaptive=is_adaptive,
    )
    is_sorted = scan.order.first_unsorted is None
    return FileLog(reader, schema, encoder, rules, scan.problems, left_out, scan.arms, is_sorted)


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
    low, high = scan.low_reward, scan.high_reward
    if not scan.rewards:
        raise ArgumentError("reward", None, "known in at least one row of the log", got="no reward")
    if low >= 0.0 and high <= 1.0:
        return (0.0, 1.0), True
    if low == high:
        problem = Verbatim(f"{low:g} in every row")
        scan.problems.add("constant reward", 0, "reward", problem, "different between rows", is_dropped=False)
        low, high = min(low, 0.0), max(high, 0.0)
    return (low, high), False


def _sort_names(names: Any) -> list[str]:
    """Return names in order: as numbers if all of them are whole numbers."""
    listed = list(names)
    if all(name.isdecimal() and name.isascii() and len(name) < 20 for name in listed):
        return sorted(listed, key=lambda name: (int(name), name))
    return sorted(listed)


def _split_features(features: Any) -> tuple[list[str] | None, Features | None]:
    """Return the names of fields, or an encoding."""
    if features is None or isinstance(features, Features | Mapping):
        return None, Features.parse(features)
    if isinstance(features, str) or not all(isinstance(name, str) for name in features):
        raise ArgumentError("features", features, "a list of names of fields, or Features")
    return list(features), None


def _check_range(reward_range: Any) -> tuple[float, float]:
    if not isinstance(reward_range, Sequence) or isinstance(reward_range, str) or len(reward_range) != 2:
        raise ArgumentError("reward_range", reward_range, "a pair (low, high)")
    low, high = (check_between(("reward_range", i), end, -LARGEST, LARGEST) for i, end in enumerate(reward_range))
    if not low < high:
        raise ArgumentError("reward_range", reward_range, "a pair (low, high) with low < high")
    return low, high


def _check_path(argument: str, path: Any) -> Path:
    if not isinstance(path, str | PathLike):
        raise ArgumentError(argument, path, "the path of a file")
    found = Path(path)
    if isinstance(path, str) and "\0" in path:
        raise ArgumentError(argument, path, "the path of a file")
    return found


def _ignore(done: int) -> None:
    """Report nothing."""

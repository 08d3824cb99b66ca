"""Read a log from a file: see :func:`read`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from windvane.agent.features import Features
from windvane.arguments import LARGEST, check_between, check_number
from windvane.errors import ArgumentError
from windvane.logs.encoding import MAX_DIM
from windvane.logs.file_log import FileLog, build_log, ignore_progress
from windvane.logs.formats.format_detection import open_reader
from windvane.logs.formats.reader import Reader
from windvane.logs.log import Progress
from windvane.logs.ordering import BUFFER
from windvane.logs.row_checks import RowRules
from windvane.logs.row_problems import NOT_IN_ORDER, Problems
from windvane.logs.scan import LogScan

READING = "reading the log"


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

    The file is read in constant memory, at least twice: first to find its arms, the ranges of its fields and its
    problems, and then each time its rows are used.

    Parameters
    ----------
    path
        The file.
    format
        "windvane" (events exported by the service, NDJSON or Parquet), "table" (CSV or Parquet), "open-bandit",
        "dsjson" or "vw". Default: detected from the content.
    time, arm, reward, propensity, reward_time, id, weight
        For tables: the names of columns. Default: the column with the name of the argument, if there is one. Only the
        arm and the reward are required. Times are in ISO 8601 (UTC if they have no time zone), or seconds since 1970.
    arms_from
        For tables: a CSV or Parquet file with one row of features per arm. The names of the arms are in the column
        that has the same name as in the log; else in the column "arm"; else in the first column.
    features
        The names of the fields to use. Default: all that fit into ``max_dim``. If the list names no field of the arms,
        all of these are used as well. Alternatively the encoding: ``Features``, or a mapping that declares them.
    max_dim
        The largest dimension of the vectors, unless ``features`` is an encoding.
    reward_range
        The smallest and the largest possible reward. Default: (0, 1) if it contains all rewards, else the range of the
        rewards in the log.
    floor
        A lower bound on the logging probability of every arm, if one is known. Default: the smallest probability in
        the log if it has the probabilities of all arms, or 1/K if it was uniform.
    is_adaptive
        Whether the policy that wrote the log may have learned from its rewards.
    progress
        Called with the bytes read so far, the bytes to read and a text, while this function runs.

    Returns
    -------
    FileLog
        The log.

    Raises
    ------
    ArgumentError
        If the file cannot be read, if more than half of its rows are unusable, or if its rows are too far out of order.

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
    if floor is not None:
        floor = check_number("floor", floor, "in (0, 1]", lambda p: 0.0 < p <= 1.0)
    bounds = None if reward_range is None else _check_range(reward_range)
    declared = None if encoding is None or not encoding.arms else [str(name) for name in encoding.arms]
    file_of_arms = None if arms_from is None else _check_path("arms_from", arms_from)
    reader = open_reader(source, format, roles, fields, file_of_arms, declared)
    possible = declared if declared is not None else reader.arm_features
    rules = RowRules(None if possible is None else set(possible), bounds)
    scan = _scan(reader, rules, progress)
    return build_log(reader, scan, encoding, fields, rules, max_dim, floor, is_adaptive)


def _scan(reader: Reader, rules: RowRules, progress: Progress | None) -> LogScan:
    """Read the file, and again if a field of numbers turns out to hold strings."""
    total, passes = max(reader.path.stat().st_size, 1), 1 + reader.extra_passes

    def report_from(start: int) -> Callable[[int], None]:
        if progress is None:
            return ignore_progress
        return lambda done: progress(start + min(done, total), passes * total, READING)

    reader.prepare(report_from(0))
    while True:
        scan = LogScan(rules, Problems(reader.place))
        for raw in reader.read(scan.problems, report_from((passes - 1) * total)):
            scan.add(raw)
        texts, arm_texts = scan.mixed_fields
        if texts <= reader.texts and arm_texts <= reader.arm_texts:
            break
        reader.texts |= texts
        reader.arm_texts |= arm_texts
        passes += 1
    scan.finish()
    scan.problems.check_share(str(reader.path))
    _check_order(reader, scan)
    if progress is not None:
        progress(passes * total, passes * total, READING)
    return scan


def _check_order(reader: Reader, scan: LogScan) -> None:
    order = scan.order
    if order.first_unsorted is None:
        return
    place, at = order.first_unsorted
    if not order.is_sortable:
        expected = f"a log in time order, or with rows out of place by fewer than {BUFFER:,} rows"
        hint = "sort the file by time, for example with `sort`, pandas or DuckDB (`ORDER BY`)"
        rows = "1 row" if order.unsorted == 1 else f"{order.unsorted:,} rows"
        got = f"{rows} earlier than a row before it, the first in {reader.place} {place:,}"
        raise ArgumentError("path", str(reader.path), expected, got=got, hint=hint)
    expected = "at or after the times of the rows before (rows are sorted by time)"
    scan.problems.add(NOT_IN_ORDER, place, "time", at, expected, is_dropped=False, count=order.unsorted)


def _split_features(features: Any) -> tuple[list[str] | None, Features | None]:
    """Return the names of fields or the encoding, whichever was given."""
    if features is None or isinstance(features, Features | Mapping):
        return None, Features.parse(features)
    if isinstance(features, str) or not all(isinstance(name, str) for name in features):
        raise ArgumentError("features", features, "a list of field names, or Features")
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

"""A log in memory, from arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_number
from windvane.errors import ArgumentError
from windvane.logs.log import BATCH, Log, LogBatch, LogSchema, Propensities

SHORTEST = 1e-9  # the smallest bound on norms, where all vectors are 0


class ArrayLog(Log):
    """A log in memory; see :func:`from_arrays`."""

    def __init__(self, schema: LogSchema, rows: LogBatch) -> None:
        self.schema, self.rows = schema, rows

    def batches(self, size: int = BATCH) -> Iterator[LogBatch]:
        """Yield all rows in order, at most ``size`` at a time."""
        for start in range(0, len(self.rows), size):
            yield self.rows.select(slice(start, start + size))


def from_arrays(
    arms: npt.ArrayLike,
    played: npt.ArrayLike,
    reward: npt.ArrayLike,
    *,
    propensity: npt.ArrayLike | None = None,
    probabilities: npt.ArrayLike | None = None,
    valid: npt.ArrayLike | None = None,
    time: npt.ArrayLike | None = None,
    reward_time: npt.ArrayLike | None = None,
    context: npt.ArrayLike | None = None,
    names: Sequence[str] | None = None,
    floor: float | None = None,
    is_adaptive: bool = True,
) -> ArrayLog:
    """Build a log from arrays with one entry per decision.

    Parameters
    ----------
    arms
        Vectors of the arms on offer, [n, K, d].
    played, reward
        The index of the arm that was played, [n], and its reward in [0, 1] (NaN: unknown), [n].
    propensity, probabilities
        The probability of the arm that was played, [n], or those of all arms, [n, K].
    valid
        Which entries of ``arms`` are arms, [n, K]. Default: all.
    time, reward_time
        Times of decisions and of the arrival of rewards, in seconds, [n]. Default: row numbers; rewards arrive at once.
    context
        The encoded context, [n, p]. Default: none.
    names
        The names of the d coordinates.
    floor
        A lower bound on the logging probability of every arm, if one is known beforehand.
    is_adaptive
        Whether the policy that wrote the log may have learned from its rewards.

    Returns
    -------
    ArrayLog
        The log.

    Raises
    ------
    ArgumentError
        If an array has another shape, or a value that is not allowed, such as times that decrease.

    Examples
    --------
    >>> log = from_arrays([[[1.0, 0.0], [0.0, 1.0]]] * 3, [0, 1, 0], [1.0, 0.0, 0.0], propensity=[0.5] * 3)
    >>> log.schema.rows, log.schema.dim, log.schema.propensities
    (3, 2, 'played arm')
    """
    vectors = np.asarray(arms, dtype=float)
    if vectors.ndim != 3 or not len(vectors):
        raise ArgumentError("arms", arms, "an array [n, K, d] with at least one row")
    n, count, _ = vectors.shape
    every = np.arange(1.0, n + 1.0)
    p = None if probabilities is None else np.asarray(probabilities, dtype=float)
    index = np.asarray(played)
    if index.shape != (n,) or index.dtype.kind not in "iu" or not ((index >= 0) & (index < count)).all():
        raise ArgumentError("played", played, f"{n} whole numbers in 0..{count - 1}")
    if p is not None and p.shape != (n, count):
        raise ArgumentError("probabilities", probabilities, f"an array [{n}, {count}], as `arms` has")
    index = index.astype(np.int64)
    chance = np.full(n, np.nan) if propensity is None else _read_column("propensity", propensity, n)
    decided = every if time is None else _read_column("time", time, n)
    arrived = decided if reward_time is None else _read_column("reward_time", reward_time, n)
    result = _read_column("reward", reward, n)
    batch = LogBatch(
        place=np.arange(1, n + 1),
        time=decided,
        reward_time=np.where(np.isnan(result), np.inf, arrived),
        arms=vectors,
        valid=np.ones((n, count), dtype=bool) if valid is None else np.asarray(valid, dtype=bool),
        played=index,
        propensity=chance if p is None else p[np.arange(n), index],
        probabilities=p,
        reward=result,
        weight=np.ones(n),
        is_learned=np.ones(n, dtype=bool),
        context=np.zeros((n, 0)) if context is None else np.asarray(context, dtype=float),
    )
    _check_values(batch)
    schema = _describe_rows(batch, names, floor)
    known: Propensities = "all arms" if p is not None else "none" if propensity is None else "played arm"
    return ArrayLog(replace(schema, propensities=known, has_times=time is not None, is_adaptive=is_adaptive), batch)


def _describe_rows(rows: LogBatch, names: Sequence[str] | None, floor: float | None) -> LogSchema:
    dim, p = rows.arms.shape[2], rows.probabilities
    if floor is not None:
        floor = check_number("floor", floor, "in [0, 1]", lambda bound: 0.0 <= bound <= 1.0)
    if names is not None and len(names) != dim:
        raise ArgumentError("names", names, f"{dim} names, one for each coordinate")
    lowest = None if p is None else float(p[rows.valid].min())
    return LogSchema(
        source="arrays",
        format="arrays",
        rows=len(rows),
        dim=dim,
        names=tuple(names) if names is not None else tuple(f"x{i + 1}" for i in range(dim)),
        L=max(float(np.sqrt(np.square(rows.arms).sum(axis=2)).max()), SHORTEST),
        context_names=tuple(f"c{i + 1}" for i in range(rows.context.shape[1])),
        floor=floor if floor is not None else lowest,
        is_floor_declared=floor is not None,
    )


def _read_column(name: str, values: npt.ArrayLike, n: int) -> Array:
    column = np.asarray(values, dtype=float)
    if column.shape != (n,):
        raise ArgumentError(name, values, f"an array with {n} entries, as `arms` has rows")
    return column


def _check_values(rows: LogBatch) -> None:
    """Raise ``ArgumentError`` unless all values are as :class:`LogBatch` says."""
    every, p, all_p = np.arange(len(rows)), rows.propensity, rows.probabilities
    if rows.valid.shape != rows.arms.shape[:2]:
        raise ArgumentError("valid", rows.valid, f"an array {list(rows.arms.shape[:2])}, as `arms` has")
    if rows.context.ndim != 2 or len(rows.context) != len(rows):
        raise ArgumentError("context", rows.context, f"an array [{len(rows)}, p]")
    with np.errstate(invalid="ignore"):
        checks = (
            ("arms", np.isfinite(rows.arms).all(), "finite numbers"),
            ("context", np.isfinite(rows.context).all(), "finite numbers"),
            ("played", rows.valid[every, rows.played].all(), "arms on offer"),
            ("reward", (np.isnan(rows.reward) | ((rows.reward >= 0.0) & (rows.reward <= 1.0))).all(), "in [0, 1]"),
            ("probabilities", all_p is None or ((all_p >= 0.0) & (all_p <= 1.0)).all(), "in [0, 1]"),
            ("propensity", (np.isnan(p) | ((p > 0.0) & (p <= 1.0))).all(), "in (0, 1]"),
            ("time", np.isfinite(rows.time).all() and (np.diff(rows.time) >= 0.0).all(), "increasing"),
            ("reward_time", (rows.reward_time >= rows.time).all(), "at or after `time`"),
        )
    for name, is_fine, expected in checks:
        if not is_fine:
            raise ArgumentError(name, getattr(rows, name), expected)

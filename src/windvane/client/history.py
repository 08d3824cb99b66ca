"""Encode history from lists, arrays and frames as request bodies, split into parts that the service accepts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from windvane.client.messages import ClientError, check_fields, check_times, encode, to_list
from windvane.errors import ArgumentError
from windvane.frames import frame_arms, frame_columns, frame_rows, is_frame, order_columns

MOST_ROWS = 20_000  # that the service accepts in a request
MOST_BYTES = 3 << 20  # of a request; the service accepts 4 MiB by default


class Part(NamedTuple):
    """A request: its body, and which of the caller's rows are in it."""

    body: bytes
    rows: Sequence[int]


class Columns(NamedTuple):
    """The columns of history, each a list or None."""

    rewards: Any
    vectors: Any
    contexts: Any
    arms: Any
    times: Any
    weights: Any

    def encode(self, rows: Sequence[int] | None = None) -> bytes:
        """Return these rows, or all of them in their order, as a request."""
        columns = self._asdict()
        if rows is not None:
            columns = {name: values and [values[row] for row in rows] for name, values in columns.items()}
        return encode(columns)


def read_columns(
    rewards: Any, vectors: Any, contexts: Any, arms: Any, times: Any, weights: Any, first: Sequence[Any] | None = None
) -> tuple[Columns, list[Any] | None]:
    """Return the arguments of :meth:`windvane.Agent.history` as lists, and the columns of a frame of vectors.

    ``first``: the columns of an earlier frame, which set the order.
    """
    order = None
    if is_frame(vectors):
        order = order_columns("vectors", frame_columns("vectors", vectors), first)
        vectors = vectors[order].to_numpy()
    if is_frame(contexts):
        contexts = frame_rows("contexts", contexts)
    if is_frame(arms):
        arms = [_name_arm(place, name, fields) for place, (name, fields) in enumerate(frame_arms("arms", arms))]
    lists = (
        None if values is None and name != "rewards" else to_list(name, values)
        for name, values in zip(Columns._fields, (rewards, vectors, contexts, arms, times, weights), strict=True)
    )
    columns = Columns(*lists)
    for place, context in enumerate(columns.contexts or ()):
        check_fields(("contexts", place), context)
    numbers = {name: _read_flags(getattr(columns, name)) for name in ("rewards", "vectors", "weights")}
    return columns._replace(times=None if times is None else check_times(columns.times), **numbers), order


def _read_flags(values: Any, depth: int = 2) -> Any:
    """Return ``values``, or rows of them, with 1 and 0 in the place of true and false, as an agent reads them."""
    if hasattr(values, "tolist"):  # a row, or a number, of NumPy
        values = values.tolist()
    if isinstance(values, list) and depth:
        return [_read_flags(value, depth - 1) for value in values]
    return float(values) if isinstance(values, bool) else values


def _name_arm(place: int, name: Any, fields: dict[Any, Any]) -> Any:
    if not isinstance(name, str):
        raise ArgumentError(("arms", place), name, 'named by a string over HTTP, in the column "arm" or the index')
    return {name: fields} if fields else name


def split_history(columns: Columns) -> list[Part]:
    """Return the requests that send all rows, the oldest first."""
    count, body = len(columns.rewards), columns.encode() if len(columns.rewards) <= MOST_ROWS else None
    if body is not None and len(body) <= MOST_BYTES:
        return [Part(body, range(count))]  # the service reports the error
    for name, values in columns._asdict().items():
        if values is not None and len(values) != count:
            raise ArgumentError(name, values, f"{count} rows, one for each of `rewards`", got=str(len(values)))
    rows: Sequence[int] = range(count)
    if columns.times is not None:  # later requests must not have earlier times
        seconds = [_to_seconds(place, time) for place, time in enumerate(columns.times)]
        rows = sorted(rows, key=seconds.__getitem__)
    return [part for at in range(0, count, MOST_ROWS) for part in _halve(columns, rows[at : at + MOST_ROWS])]


def _halve(columns: Columns, rows: Sequence[int]) -> Iterator[Part]:
    """Yield the rows in parts that are small enough."""
    body = columns.encode(rows)
    if len(body) <= MOST_BYTES or len(rows) == 1:
        yield Part(body, rows)
        return
    middle = len(rows) // 2
    yield from _halve(columns, rows[:middle])
    yield from _halve(columns, rows[middle:])


def _to_seconds(place: int, time: datetime | str) -> float:
    try:
        return (datetime.fromisoformat(time) if isinstance(time, str) else time).timestamp()
    except ValueError:
        raise ArgumentError(("times", place), time, "an RFC 3339 string") from None


def locate_error(error: ClientError, part: Part, learned: int) -> ClientError:
    """Make an error about a part of the rows point into all rows, and add how many were learned before it."""

    def move(pointer: str) -> str:
        match = re.fullmatch(r"#/(\w+)/(\d+)(.*)", pointer)
        return pointer if match is None else f"#/{match[1]}/{part.rows[int(match[2])]}{match[3]}"

    error.pointers = [move(pointer) for pointer in error.pointers]
    error.pointer = error.pointers[0] if error.pointers else None
    if learned:
        error.message += f"; {learned} rows were learned before"
        error.args = (error.message,)
    return error

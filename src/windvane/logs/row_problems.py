"""Problems of a log: counted by kind, with the rows of the first few of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from windvane.arguments import Index
from windvane.errors import ArgumentError, format_value

MISSING_PROBABILITY = "missing probability"
REPEATED_ID, NOT_IN_ORDER, WRONG_SUM = "repeated id", "not in time order", "probabilities do not sum to 1"
EXAMPLES = 5  # of each kind
MOST_BAD = 0.5  # a log with a larger share of unusable rows was probably read with the wrong format, and is refused


@dataclass(frozen=True, kw_only=True)
class RowProblem:
    """An invalid value of a log.

    Attributes
    ----------
    place, unit : int and str
        Where: the number of a "line" or a "row" of the file, counted from 1. 0: the file as a whole.
    field, value, expected : str
        The name of the field, its value (shortened), and what is allowed.
    """

    place: int
    field: str
    value: str
    expected: str
    unit: str = "row"

    def __str__(self) -> str:
        where = f"{self.unit} {self.place:,}: " if self.place else ""
        return f"{where}`{self.field}` must be {self.expected}, got {self.value}"


@dataclass(frozen=True, kw_only=True)
class ProblemCount:
    """The problems of one kind.

    Attributes
    ----------
    kind : str
        For example "invalid probability".
    count : int
        The number of rows.
    is_dropped : bool
        Whether these rows are left out. Otherwise they are used, and only the value is ignored or adjusted.
    examples : tuple of RowProblem
        The first few.
    """

    kind: str
    count: int
    is_dropped: bool
    examples: tuple[RowProblem, ...]


class Problems:
    """Problems of a log by kind. Iterating yields a :class:`ProblemCount` for each kind, in order of first occurrence.

    Attributes
    ----------
    rows_read, rows_dropped : int
        The number of rows in the file, and of those that are left out.
    unit : str
        What places count: a "line" of a text file, or a "row".

    Examples
    --------
    >>> problems = Problems()
    >>> problems.add("invalid probability", 7, "propensity", 1.5, "in (0, 1]")
    >>> [(problem.kind, problem.count, str(problem.examples[0])) for problem in problems]
    [('invalid probability', 1, 'row 7: `propensity` must be in (0, 1], got 1.5')]
    """

    def __init__(self, unit: str = "row") -> None:
        self.unit = unit
        self._counts: dict[str, tuple[int, bool, list[RowProblem]]] = {}
        self.rows_read = self.rows_dropped = 0

    def __iter__(self) -> Iterator[ProblemCount]:
        for kind, (count, is_dropped, examples) in self._counts.items():
            yield ProblemCount(kind=kind, count=count, is_dropped=is_dropped, examples=tuple(examples))

    def __len__(self) -> int:
        return len(self._counts)

    def count(self, kind: str) -> int:
        """Return the number of problems of a kind."""
        return self._counts[kind][0] if kind in self._counts else 0

    def add(
        self, kind: str, place: int, field: str, value: Any, expected: str, *, is_dropped: bool = True, count: int = 1
    ) -> None:
        """Count ``count`` problems; the arguments describe the first."""
        before, was_dropped, examples = self._counts.get(kind, (0, is_dropped, []))
        if len(examples) < EXAMPLES:
            short = value if isinstance(value, Verbatim) else format_value(value)
            examples.append(
                RowProblem(place=int(place), field=field, value=str(short), expected=expected, unit=self.unit)
            )
        self._counts[kind] = before + count, was_dropped, examples

    def add_rows(
        self, kind: str, places: Index, field: str, values: Any, expected: str, *, is_dropped: bool = True
    ) -> None:
        """Count a problem for each of the rows ``places``, which have these ``values``."""
        total = len(places)
        for i in range(min(total, EXAMPLES)):
            value = values[i].item() if isinstance(values[i], np.generic) else values[i]
            more = total - EXAMPLES if i == EXAMPLES - 1 and total > EXAMPLES else 0
            self.add(kind, int(places[i]), field, value, expected, is_dropped=is_dropped, count=1 + more)

    def include(self, others: Problems) -> None:
        """Add the problems that another pass over the file has found."""
        for problem in others:
            count, is_dropped, examples = self._counts.get(problem.kind, (0, problem.is_dropped, []))
            examples = [*examples, *problem.examples][:EXAMPLES]
            self._counts[problem.kind] = count + problem.count, is_dropped, examples
        self.rows_read += others.rows_read
        self.rows_dropped += others.rows_dropped

    def check_share(self, source: str) -> None:
        """Raise ``ArgumentError`` if no row is usable, or more than half of the rows are not."""
        usable = self.rows_read - self.rows_dropped
        if usable > 0 and self.rows_dropped <= MOST_BAD * self.rows_read:
            return
        dropped = [problem for problem in self if problem.is_dropped]
        hint = "; ".join(f"{problem.kind}: {problem.examples[0]}" for problem in dropped[:2])
        got = f"{self.rows_dropped:,} unusable rows of {self.rows_read:,}" if self.rows_read else "no row"
        raise ArgumentError("path", source, "a log whose rows are usable", got=got, where=source, hint=hint)


class Verbatim(str):
    """A description of a value that is printed without quotes."""

    __slots__ = ()

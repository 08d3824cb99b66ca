"""Logs in CSV and Parquet tables. Each role, such as the arm, is assigned to a column."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from windvane.errors import ArgumentError
from windvane.logs.formats import csv_files, parquet_files
from windvane.logs.formats.conversions import get_values, to_numbers, to_times
from windvane.logs.formats.reader import Reader, Report, open_file
from windvane.logs.raw import NAN, FieldColumn, RawRows, to_texts
from windvane.logs.row_problems import Problems

ROLES = ("time", "arm", "reward", "propensity", "reward_time", "id", "weight")
NEEDED = ("arm", "reward")
LONGEST_LIST = 300  # characters of a list of column names in a message
MOST_ARMS = 10_000  # rows of a file of arms


class TableReader(Reader):
    """Read a CSV or Parquet file with one row per decision.

    Parameters
    ----------
    path
        The file.
    roles
        Names of columns by role: "time", "arm", "reward", "propensity", "reward_time", "id", "weight". Default: the
        column with the name of the role, if there is one.
    fields
        The columns of the context. Default: all others.
    arms_from
        A CSV or Parquet file with a row of features for each arm.
    """

    format = "table"

    def __init__(
        self,
        path: Path,
        roles: Mapping[str, str | None] | None = None,
        fields: Sequence[str] | None = None,
        arms_from: Path | None = None,
    ) -> None:
        super().__init__(path)
        self.is_parquet = is_parquet(path)
        self.place = "row" if self.is_parquet else "line"
        self.names, self._delimiter = read_names(path)
        self.roles = self._find_roles(roles or {})
        used = set(self.roles.values())
        self.fixed_texts = {self.roles[role] for role in ("arm", "id") if role in self.roles}
        if arms_from is not None:
            self.arm_features = read_arms(arms_from, self.roles["arm"])
        others = {name for own in (self.arm_features or {}).values() for name in own}
        for name in fields or ():
            if name not in others:
                self._check_column(("features", name), name)
            if name in (self.roles["reward"], self.roles.get("reward_time")):
                hint = "a context is known before the decision"
                raise ArgumentError("features", name, "columns other than those of the reward", hint=hint)
        chosen = [name for name in self.names if name not in used] if fields is None else fields
        self.fields = [name for name in chosen if name and name in self.names]

    def _find_roles(self, roles: Mapping[str, str | None]) -> dict[str, str]:
        spellings = [(role, name) for role in ROLES for name in (role.replace("_", "-"), role)]  # as an option, or here
        found = {role: name for role, name in spellings if name in self.names}
        found |= {role: name for role, name in roles.items() if name is not None}
        for role, name in found.items():
            self._check_column(role, name)
        for role in NEEDED:
            if role not in found:
                known = textwrap.shorten(", ".join(self.names), LONGEST_LIST, placeholder=" ...")
                expected = f"the name of a column of {self.path}: {known}"
                raise ArgumentError(role, None, expected, got="nothing")
        if found["reward"] in (found["arm"], found.get("propensity")):
            raise ArgumentError("reward", found["reward"], "another column than the arm and the propensity")
        return found

    def _check_column(self, argument: str | tuple[str, ...], name: Any) -> None:
        if not isinstance(name, str) or not name or name not in self.names:
            known = textwrap.shorten(", ".join(self.names), LONGEST_LIST, placeholder=" ...")
            close = get_close_matches(str(name), self.names, 1)
            hint = f"did you mean {close[0]!r}?" if close and close[0] else ""
            raise ArgumentError(argument, name, f"one of the columns of {self.path}: {known}", hint=hint)

    def read(self, problems: Problems, report: Report) -> Iterator[RawRows]:
        """Yield all rows in file order."""
        wanted = list(dict.fromkeys([*self.roles.values(), *self.fields]))
        texts = self.fixed_texts | self.texts
        if self.is_parquet:
            chunks = parquet_files.read_columns(self.path, wanted, texts, report)
        else:
            chunks = csv_files.read_columns(self.path, self.names, self._delimiter, wanted, texts, problems, report)
        for places, columns in chunks:
            yield self._build(places, columns, problems)

    def _build(self, places: Any, columns: dict[str, FieldColumn], problems: Problems) -> RawRows:
        n = len(places)
        is_bad = np.zeros(n, dtype=bool)
        numbers = {"weight": np.ones(n)}
        for role, convert in CONVERSIONS.items():
            if role in self.roles:
                numbers[role], wrong = convert(columns[self.roles[role]], self.roles[role], places, problems)
                is_bad |= wrong
        if "weight" in self.roles:
            wrong = ~(numbers["weight"] > 0.0) & ~is_bad
            if wrong.any():
                name = self.roles["weight"]
                problems.add_rows("invalid weight", places[wrong], name, numbers["weight"][wrong], "above 0")
                is_bad |= wrong
        ids = None
        if "id" in self.roles:
            column = to_texts(columns[self.roles["id"]])
            ids = np.array([*(column.values or ()), None], dtype=object)[column.data]
        context = {name: columns[name] for name in self.fields}
        if "arm" in self.fields or self.roles["arm"] in self.fields:
            context[self.roles["arm"]] = columns[self.roles["arm"]]
        return RawRows(
            place=places,
            is_bad=is_bad,
            id=ids,
            time=numbers.get("time", np.full(n, NAN)),
            arm=to_texts(columns[self.roles["arm"]]),
            probability=numbers.get("propensity", np.full(n, NAN)),
            reward=numbers["reward"],
            reward_time=numbers.get("reward_time", np.full(n, NAN)),
            weight=numbers["weight"],
            is_learned=np.ones(n, dtype=bool),
            context=clean_fields(context, places, problems),
        )


CONVERSIONS = {
    "reward": to_numbers,
    "propensity": to_numbers,
    "weight": to_numbers,
    "time": to_times,
    "reward_time": to_times,
}


def clean_fields(fields: Mapping[str, FieldColumn], places: Any, problems: Problems) -> dict[str, FieldColumn]:
    """Return the fields with invalid numbers reported and set to missing."""
    cleaned = {}
    for name, column in fields.items():
        if column.values is None:
            numbers, wrong = to_numbers(column, name, places, Problems())
            if wrong.any():
                expected, values = "a number within [-1e100, 1e100]", get_values(column, wrong)
                problems.add_rows("invalid feature", places[wrong], name, values, expected, is_dropped=False)
            column = FieldColumn(numbers)
        cleaned[name] = column
    return cleaned


def is_parquet(path: Path, argument: str = "path") -> bool:
    """Return whether a file is in the Parquet format, whatever its name."""
    with open_file(path, argument) as file:
        return file.read(len(parquet_files.MAGIC)) == parquet_files.MAGIC


def read_names(path: Path) -> tuple[list[str], str]:
    """Return the names of the columns, and the delimiter of a CSV file."""
    if is_parquet(path):
        with parquet_files.open_parquet(path) as file:
            return list(file.schema_arrow.names), ""
    return csv_files.read_header(path)


def read_arms(path: Path, arm: str) -> dict[str, dict[str, Any]]:
    """Return the features of each arm from a table with one row per arm.

    The names of the arms are in the column ``arm``; else in "arm"; else in the first column with a name.
    """
    is_parquet(path, "arms_from")  # raises if the file cannot be read
    try:
        names, delimiter = read_names(path)
    except ArgumentError as error:
        raise error.rename("arms_from") from None
    named = [name for name in names if name]
    if len(named) < 2:
        raise ArgumentError("arms_from", str(path), "a table with the names of arms and their features", got=str(named))
    key = arm if arm in named else "arm" if "arm" in named else named[0]
    problems = Problems()
    if delimiter:
        chunks = csv_files.read_columns(path, names, delimiter, named, {key}, problems, lambda _: None)
    else:
        chunks = parquet_files.read_columns(path, named, {key}, lambda _: None)
    features: dict[str, dict[str, Any]] = {}
    for places, columns in chunks:
        arms = to_values(columns.pop(key))
        lists = {name: to_values(column) for name, column in clean_fields(columns, places, problems).items()}
        for i, name in enumerate(arms):
            if name is None or name in features or len(features) >= MOST_ARMS:
                expected = f"a table with at most {MOST_ARMS:,} rows, each with a different name in the column {key!r}"
                raise ArgumentError("arms_from", str(path), expected, got=repr(name), where=f"row {places[i]}")
            features[name] = {field: values[i] for field, values in lists.items() if values[i] is not None}
    for problem in problems:
        example = problem.examples[0]
        raise ArgumentError(
            "arms_from", str(path), f"a table without {problem.kind}", got=example.value, where=f"row {example.place}"
        )
    if not features:
        raise ArgumentError("arms_from", str(path), "a table with a row for each arm", got="no row")
    return features


def to_values(column: FieldColumn) -> list[Any]:
    """Return all values as Python objects; None for a missing one."""
    if column.values is None:
        return [None if value != value else value for value in column.data.tolist()]
    return [None if code < 0 else column.values[code] for code in column.data.tolist()]

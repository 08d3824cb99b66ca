"""Labelled data streams as bandit environments: the arms are the classes.

One row of a table is one round, in the order of the file. The reward is 1 if the chosen class is the label of the row,
else 0. The parameter theta* of such data is unknown, and there may be none, because the logistic model can be wrong. So
theta is NaN in every round. Regret compares with a policy that is always right: it is the number of mistakes.

The vectors are those of ``windvane.agent.Features(by_arm=fields, arms=classes)``:

    1 | one block per class: 1 and the fields in the block of the arm's class, 0 in the others

A number is mapped to [-1, 1] by the range of its column over the rows used (to 0 if the column is constant). A text is
one-hot encoded, with one coordinate per value of its column. Every vector is divided by sqrt(2 + number of fields), so
that its norm is at most 1. The ranges cover all rows used, including later ones. In practice they would not be known in
advance. No labels are used for them.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from windvane.arguments import (
    LARGEST,
    Array,
    Index,
    check_array,
    check_choice,
    check_lanes,
    check_not_negative,
    check_positive,
    check_whole,
)
from windvane.documentation import documented
from windvane.environments.columns import (
    Column,
    check_names,
    check_values,
    to_column,
    to_columns,
)
from windvane.environments.data_files import parse_table, read_file
from windvane.environments.fields import LATEST
from windvane.environments.paths import LARGEST_BLOCK, LONGEST_BLOCK
from windvane.environments.protocol import Outcome, Round
from windvane.errors import ArgumentError
from windvane.links import get_link

MOST_CLASSES = 1000  # a column with more values is more likely an identifier or a numeric target
LARGEST_CLASS = 2.0**53  # from here on, floats cannot represent all whole numbers
ON_MISSING = ("refuse", "drop")


@documented
class LabelledStream:
    """A labelled data stream as an environment: one row is one round, and the arms are the classes.

    All lanes see the same rows. They differ only in the random draws of a policy. Use the attributes ``fields`` and
    ``classes`` to declare the same vectors to an agent: ``Features(by_arm=fields, arms=classes)``.

    Parameters
    ----------
    features
        The fields of every row: numbers [n, p], or a mapping (such as a data frame) from names to columns of numbers
        or texts.
    labels
        The class of every row, [n]: texts or whole numbers.
    names
        Names of the columns of an array. Default: x1, x2, ...
    rows
        Use only the first ``rows`` rows. Default: all.
    missing
        What to do with rows that have a missing value (None or NaN): "refuse" or "drop". Dropped rows do not count
        as rounds.
    S, drift, switches
        The norm bound of theta*, B_T and the number of changes, for policies that need them. These are assumptions,
        because theta* is unknown. Default of ``drift``: 2 S, one reversal.
    source
        The name of the data in error messages, such as a file name.

    >>> stream = LabelledStream([[0.0], [5.0], [10.0]], ["low", "low", "high"])
    >>> stream.classes, stream.fields, stream.dim
    (('high', 'low'), {'x1': (0.0, 10.0)}, 5)
    >>> offer = stream.round(3)
    >>> offer.means  # the reward of each class
    array([[1., 0.]])
    >>> stream.play(offer, [0]).reward
    array([1.])
    """

    has_theta: ClassVar[bool] = False
    L, sigma, delay, orthogonal = 1.0, 0.5, None, False
    has_fixed_arms, reward_range = False, (0.0, 1.0)

    def __init__(
        self, features: Any, labels: Any, *, names: Sequence[str] | None = None, rows: int | None = None,
        missing: str = "refuse", S: float = 1.0, drift: float | None = None, switches: int = 1,
        lanes: int | Sequence[int] = 1, seed: int = 0, source: str = "",
    ) -> None:  # fmt: skip
        self.S, self.link = check_positive("S", S), get_link("logistic")
        self.drift_told = 2.0 * self.S if drift is None else check_not_negative("drift", drift)
        self.switches_told = check_whole("switches", switches, 0, LATEST)
        self._set_lanes(lanes, seed)
        self.source, self.sha256 = source, ""
        columns = to_columns("features", features, names)
        if not columns:
            raise ArgumentError("features", features, "a table with at least one column", got="none", where=source)
        columns.append(to_column("labels", "label", labels))
        columns = _use_rows(columns, rows, check_choice("missing", missing, ON_MISSING), source)
        self.horizon = len(columns[0].data)
        self.classes, self._labels = _find_classes(columns.pop(), source)
        check_names("features", [column.name for column in columns], features, source)
        self.fields = {column.name: _declare(column) for column in columns}
        widths = [1 if column.values is None else len(column.values) for column in columns]
        self._columns = [column.data for column in columns]
        self._places = np.cumsum([1, *widths]).tolist()
        self._scale = (2 + len(columns)) ** -0.5
        self._set_up_blocks(self._places.pop())

    def _set_lanes(self, lanes: int | Sequence[int], seed: int) -> None:
        self.lane_ids, self.seed = check_lanes(lanes), check_whole("seed", seed, 0, 2**64 - 1)
        self.lanes = len(self.lane_ids)

    def _set_up_blocks(self, width: int) -> None:
        """Allocate the encoded rows, a block at a time, and one set of arms, in which only the class blocks change."""
        K = len(self.classes)
        self.dim = 1 + K * width
        self._length = max(1, min(LONGEST_BLOCK, LARGEST_BLOCK // width))
        self._first, self._encoded = 0, np.empty((0, width))
        # Arm k starts at k dim, and its class block at k dim + 1 + k width. In rows of length dim + width, these blocks
        # form one column.
        flat = np.zeros(K * (self.dim + width))
        self._blocks, self._arms = flat.reshape(K, -1)[:, 1 : 1 + width], flat[: K * self.dim].reshape(K, self.dim)
        self._arms[:, 0] = self._scale
        self._theta, self._best = np.full((self.lanes, self.dim), np.nan), np.ones(self.lanes)
        for shared in (self._theta, self._best):  # all rounds share these arrays
            shared.flags.writeable = False

    @classmethod
    def read(
        cls, path: str | PathLike[str], *, label: str | None = None, sha256: str | None = None,
        rows: int | None = None, missing: str = "refuse", S: float = 1.0, drift: float | None = None,
        switches: int = 1, lanes: int | Sequence[int] = 1, seed: int = 0,
    ) -> LabelledStream:  # fmt: skip
        r"""Return the labelled data stream in a CSV or Parquet file.

        A CSV file has a header, commas and UTF-8 text; a cell is missing if it is empty or NA, NaN, null or ``?``. A
        column is one of numbers if all its cells are. Labels are whole numbers if all are written as Python writes
        them; 007 and 1.0 are texts, and numbers with a fraction are refused. Parquet files need pyarrow.

        Parameters
        ----------
        path
            The file. It is a Parquet file if its name ends in .parquet or .pq.
        label
            The name of the column of labels. Default: the last column.
        sha256
            The SHA-256 that the content must have, as 64 hexadecimal digits. Default: any.
        rows, missing, S, drift, switches, lanes, seed
            As in the constructor.

        Examples
        --------
        >>> import tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "weather.csv"
        ...     _ = path.write_text("wind,sky,rain\n3.5,grey,yes\n1.0,blue,no\n")
        ...     stream = LabelledStream.read(path)
        >>> stream.fields
        {'wind': (1.0, 3.5), 'sky': ['blue', 'grey']}
        """
        content, digest = read_file(path, sha256)
        if rows is not None:
            check_whole("rows", rows, 1)
        *columns, labels = parse_table(path, content, label, rows if missing == "refuse" else None)
        stream = cls(
            {column.name: column for column in columns}, labels, rows=rows, missing=missing, S=S, drift=drift,
            switches=switches, lanes=lanes, seed=seed, source=Path(path).name,
        )  # fmt: skip
        stream.sha256 = digest
        return stream

    def __repr__(self) -> str:
        source = f"{self.source!r}, " if self.source else ""
        return f"LabelledStream({source}classes={len(self.classes)}, dim={self.dim}, rounds={self.horizon})"

    def with_lanes(self, lanes: int | Sequence[int], *, seed: int | None = None) -> LabelledStream:
        """Return the same stream with other lanes, and with another seed if one is given. The table is shared."""
        twin = copy.copy(self)
        twin._set_lanes(lanes, self.seed if seed is None else seed)
        twin._set_up_blocks(self._encoded.shape[1])
        return twin

    @property
    def variation(self) -> Array:
        """The B_T that policies assume, [lanes]: the argument ``drift``."""
        return np.full(self.lanes, self.drift_told)

    @property
    def switches(self) -> Index:
        """The number of changes that policies assume, [lanes]: the argument ``switches``."""
        return np.full(self.lanes, self.switches_told, dtype=np.int64)

    def round(self, t: int) -> Round:
        """Return round ``t``, 1 <= t <= horizon. ``means`` are the rewards of the classes, and ``theta`` is NaN."""
        place = check_whole("t", t, 1, self.horizon) - 1 - self._first
        if not 0 <= place < len(self._encoded):
            place = (t - 1) % self._length
            self._encode(t - 1 - place)
        self._blocks[:] = self._encoded[place]
        arms = np.empty((self.lanes, *self._arms.shape))
        arms[:] = self._arms
        means = np.zeros(arms.shape[:2])
        means[:, self._labels[t - 1]] = 1.0
        return Round(t, arms, None, self._theta, means, self._best)

    def _encode(self, first: int) -> None:
        """Encode a block of rows, starting at ``first`` (counted from 0), with the same arithmetic as ``Features``."""
        stop = min(first + self._length, self.horizon)
        self._first, self._encoded = first, np.zeros((stop - first, self._encoded.shape[1]))
        self._encoded[:, 0] = self._scale
        for place, column, field in zip(self._places, self._columns, self.fields.values(), strict=True):
            values = column[first:stop]
            if isinstance(field, tuple):
                low, high = field
                self._encoded[:, place] = (2.0 * (values - low) / (high - low) - 1.0) * self._scale
            else:
                self._encoded[np.arange(stop - first), place + values] = self._scale

    def means(self, t: float, arms: npt.ArrayLike) -> Array:
        """Return the rewards of ``arms[lanes, K, dim]`` in row ``t``: 1 for the block of the right class, else 0."""
        row = int(t) if isinstance(t, float) and t.is_integer() else t  # the clock of a policy is a float
        label = self._labels[check_whole("t", row, 1, self.horizon) - 1]
        arms = check_array("arms", arms, (self.lanes, None, self.dim))
        return np.asarray((arms[:, :, 1 + label * self._encoded.shape[1]] != 0.0).astype(float))

    def play(self, offer: Round, choice: npt.ArrayLike) -> Outcome:
        """Return the rewards of the classes ``choice[lanes]`` of a round, which are also their means."""
        mean = offer.means[np.arange(self.lanes), offer.check_choice(choice)]
        return Outcome(self.reward(offer.t, mean), mean)

    def reward(self, t: int, means: npt.ArrayLike) -> Array:
        """Return the rewards of round ``t`` for chosen classes with these means, [lanes]: the means, 0 or 1."""
        check_whole("t", t, 1, self.horizon)
        rewards = check_array("means", means, (self.lanes,)).copy()
        if not ((rewards == 0.0) | (rewards == 1.0)).all():
            raise ArgumentError("means", means, "0 or 1, as in a round of the stream")
        return rewards

    def delays(self, t: int) -> None:
        """Return None: rewards are not delayed."""


def _use_rows(columns: list[Column], rows: int | None, missing: str, source: str) -> list[Column]:
    """Return the columns with the rows that are used. Check that no value is missing in them."""
    lengths = {len(column.data) for column in columns}
    if len(lengths) > 1:
        raise ArgumentError("labels", columns[-1].data, "one label for each row", got=f"{sorted(lengths)} rows")
    if missing == "drop":
        is_complete = ~np.logical_or.reduce([column.missing for column in columns])
        columns = [column.select(is_complete) for column in columns]
    count = len(columns[0].data)
    if rows is not None:
        if check_whole("rows", rows, 1) > count:
            raise ArgumentError("rows", rows, f"at most {count}, the number of rows" + (source and f" of {source}"))
        columns = [column.select(slice(rows)) for column in columns]
    elif not count:
        expected = "a table with at least one complete row"
        raise ArgumentError("features", source or [], expected, got="none", where=source)
    arguments = [*(f"features[{column.name!r}]" for column in columns[:-1]), "labels"]
    return [check_values(argument, column, source) for argument, column in zip(arguments, columns, strict=True)]


def _find_classes(column: Column, source: str) -> tuple[tuple[str | int, ...], Index]:
    """Return the sorted classes, and the index of the class of each row."""
    if column.values is None:
        is_whole = (column.data % 1.0 == 0.0) & (np.abs(column.data) < LARGEST_CLASS)
        if not is_whole.all():
            value = float(column.data[is_whole.argmin()])
            raise ArgumentError("labels", value, "texts, or whole numbers below 2**53", where=source)
        values, indices = np.unique(column.data, return_inverse=True)
        classes: tuple[str | int, ...] = tuple(map(int, values.tolist()))
    else:
        classes, indices = column.values, column.data
    if not 2 <= len(classes) <= MOST_CLASSES:
        expected = f"of 2 to {MOST_CLASSES} different classes"
        where = f"column {column.name!r}" + (source and f" of {source}")
        raise ArgumentError("labels", column.name, expected, got=str(len(classes)), where=where)
    return classes, indices.astype(np.int64)


def _declare(column: Column) -> tuple[float, float] | list[str]:
    """Return the declaration of the field for ``Features``: its range or its values."""
    if column.values is not None:
        return list(column.values)
    low, high = float(column.data.min()), float(column.data.max())
    if low == high:  # a range whose exact middle is the value, so that it is encoded as 0
        low, high = sorted((0.0, 2.0 * low)) if low else (-1.0, 1.0)
        low, high = max(low, -LARGEST), min(high, LARGEST)  # what ``Features`` accepts; then not the exact middle
    return low, high

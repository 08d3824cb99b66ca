"""A drift that replays a logged path of theta*, from a file or from arrays."""

from __future__ import annotations

import dataclasses
import functools
from os import PathLike, fspath
from typing import Any

import numpy as np

from windvane.arguments import NORM_SLACK, Array, Index
from windvane.environments.columns import Column, check_numbers, check_values
from windvane.environments.data_files import check_sha256, parse_columns, read_file
from windvane.environments.drift import DRIFTS, Drift
from windvane.environments.fields import Frame, Vector, check_vectors, record, setting
from windvane.environments.paths import Curve, Path
from windvane.errors import ArgumentError

LARGEST_PRODUCT = (
    2**62
)  # of the horizon and the number of rows: the place of a round between two rows is a 64-bit ratio


def _check_file(name: str, value: Any) -> str:
    path = fspath(value) if isinstance(value, str | PathLike) else None
    if not isinstance(path, str) or not path or not path.isprintable():
        raise ArgumentError(name, value, "the path of a CSV or Parquet file")
    return path


def _check_columns(name: str, value: Any) -> tuple[str, ...]:
    columns = tuple(value) if isinstance(value, list | tuple) else ()
    if not columns or not all(isinstance(column, str) for column in columns) or len(set(columns)) < len(columns):
        raise ArgumentError(name, value, "a list of different column names, at least one")
    return columns


def _check_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ArgumentError(name, value, "true or false")
    return bool(value)


@record("logged")
class LoggedPath(Drift):
    r"""theta* follows a log: row t of a table is theta* in round t, and the columns are its coordinates.

    Give either ``file`` or ``thetas``. A drift reads its file when the first path is built, and keeps what it read. All
    lanes share the path.

    Notes
    -----
    With ``stretch``, the first row is theta* in round 1, the last row is theta* in round T, and theta* moves on
    straight lines between rows: at round t it is at row 1 + (t - 1)(n - 1)/(T - 1) of n. So a short log can drive a
    long run. B_T is the length of the resampled path. It equals that of the log if T - 1 is a multiple of n - 1, and it
    is at most that of the log otherwise.

    An estimate is noisy, so its path is usually longer than that of the parameter that it estimates.

    Examples
    --------
    Log the estimates of a policy, and replay them as a world:

    >>> import pathlib, tempfile
    >>> from windvane import BVDGLMUCB, Environment
    >>> from windvane.environments import BallArms, Rotation
    >>> world = Environment(Rotation(), BallArms(), horizon=40)
    >>> policy, log = BVDGLMUCB(dim=2, gamma=0.95), []
    >>> for t in range(1, 41):
    ...     offer = world.round(t)
    ...     choice = policy.select(offer.arms)
    ...     policy.update(offer.arms[[0], choice], world.play(offer, choice).reward)
    ...     log.append(policy.info().theta_hat[0])
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name) / "theta_hat.csv"
    >>> np.savetxt(file, log, delimiter=",", header="theta1,theta2", comments="")
    >>> S = np.linalg.norm(log, axis=1).max()  # an estimate may be longer than theta*
    >>> replayed = Environment(LoggedPath(file, stretch=True), BallArms(), S=S, horizon=3000)
    >>> bool((replayed.round(3000).theta == log[-1]).all())
    True
    >>> folder.cleanup()

    A log in memory:

    >>> LoggedPath(thetas=[[1, 0], [0, 1]]).path(horizon=2, dim=2, S=1.0, lane_ids=1).at(2)
    array([[0., 1.]])
    """

    file: str | None = setting(
        "A CSV file with a header, or a Parquet file (.parquet, .pq). A relative path starts at the current folder.",
        _check_file, default=None,
    )  # fmt: skip
    columns: tuple[str, ...] | None = setting(
        "Names of the columns of the file that are the coordinates, in order. Default: all.",
        _check_columns, default=None,
    )  # fmt: skip
    sha256: str | None = setting(
        "The SHA-256 that the content of the file must have, as 64 hexadecimal digits. Default: any.",
        check_sha256, default=None,
    )  # fmt: skip
    stretch: bool = setting(
        "Whether the log is stretched over the whole horizon. If not, it needs a row for every round, and further rows "
        "are not used.",
        _check_flag, default=False,
    )  # fmt: skip
    thetas: tuple[Vector, ...] | None = setting(
        "The rows of the log, [n, dim], instead of a file.", check_vectors, default=None
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.thetas is None:
            if self.file is None:
                raise ArgumentError("file", None, "given unless thetas are")
            return
        for name in ("file", "columns", "sha256"):
            if (value := getattr(self, name)) is not None:
                raise ArgumentError(name, value, "omitted if thetas are given")

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields, without the content of the file, which can be large."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def pin(self) -> LoggedPath:
        """Return this drift with the current ``sha256`` of its file, unless it has one or no file."""
        if self.file is None or self.sha256 is not None:
            return self
        return dataclasses.replace(self, sha256=self._read(self.file)[1])

    def _path(self, frame: Frame) -> Path:
        name = "thetas" if self.file is None else "file"
        points = self._log(None if self.stretch else frame.horizon)
        self._check_size(name, points, frame)
        with np.errstate(over="ignore"):  # an infinite norm is refused like any other
            norms = np.sqrt(np.square(points).sum(axis=1))
        is_outside = ~(norms <= frame.radius * NORM_SLACK)
        if is_outside.any():
            row = int(is_outside.argmax())
            expected, got = f"a log of points of norm at most S={frame.radius:g}", f"norm {norms[row]:.9g}"
            raise ArgumentError(name, getattr(self, name), expected, got=got, where=self._where(f"row {row + 1}"))
        return Curve(frame, functools.partial(_follow, points, self.stretch))

    def _check_size(self, name: str, points: Array, frame: Frame) -> None:
        """Raise unless the log has a coordinate for every dimension and enough rows, but not too many."""
        rows, dim = points.shape
        value, where = getattr(self, name), self._where("")
        if dim != frame.dim:
            expected, hint = f"a log with dim={frame.dim} columns", "select some with `columns`" if self.file else ""
            raise ArgumentError(name, value, expected, got=f"{dim}", where=where, hint=hint)
        least = 1 if self.stretch else frame.horizon
        if rows < least:
            expected = f"a log with at least {least} row{'s' * (least > 1)}"
            hint = "" if self.stretch else f"the horizon is {least}; use stretch=true for a shorter log"
            raise ArgumentError(name, value, expected, got=f"{rows}", where=where, hint=hint)
        if self.stretch and rows * frame.horizon > LARGEST_PRODUCT:
            expected = f"a log with at most {LARGEST_PRODUCT // frame.horizon} rows for a horizon of {frame.horizon}"
            raise ArgumentError(name, value, expected, got=f"{rows}", where=where)

    def _where(self, place: str) -> str:
        return " of ".join(filter(None, (place, self.file)))

    def _log(self, rows: int | None) -> Array:
        """Return the log, or its first ``rows`` rows; the last answer is kept."""
        known: tuple[int | None, Array] | None = self.__dict__.get("_known")
        if known is None or known[0] != rows:
            known = rows, np.array((self.thetas or ())[:rows]) if self.file is None else self._parse(self.file, rows)
            self.set_field("_known", known)
        return known[1]

    def _parse(self, file: str, rows: int | None) -> Array:
        content, _ = self._read(file)
        try:
            columns = parse_columns(file, content, self.columns, rows)
        except ArgumentError as error:
            raise error.rename("columns" if error.argument.startswith("columns") else "file") from None
        return np.stack([self._check_column(column) for column in columns], axis=1)

    def _check_column(self, column: Column) -> Array:
        source = f"column {column.name!r} of {self.file}"
        check_numbers("columns", column, source, hint="select the coordinates of theta with `columns`")
        return np.asarray(check_values("file", column, source, hint="").data)

    def _read(self, file: str) -> tuple[bytes, str]:
        """Return the content of the file and its SHA-256."""
        try:
            return read_file(file, self.sha256)
        except ArgumentError as error:
            raise error.rename("file") if error.argument == "path" else error from None


def _follow(points: Array, stretch: bool, frame: Frame, t: Index) -> Array:
    """Return theta* at rounds ``t``, [rounds, dim].

    The place between two rows is an exact ratio of integers, so that theta* is exactly a row where it reaches one, and
    does not move between equal rows.
    """
    if not stretch:
        return np.asarray(points[t - 1])
    steps = max(frame.horizon - 1, 1)
    before, rest = np.divmod((t - 1) * (len(points) - 1), steps)
    after = np.minimum(before + 1, len(points) - 1)
    share = (rest / steps)[:, None]
    return np.asarray(points[before] + share * (points[after] - points[before]))


DRIFTS[LoggedPath.kind] = LoggedPath

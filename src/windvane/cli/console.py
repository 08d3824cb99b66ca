"""Output: results on stdout, everything else on stderr and only on a terminal."""

from __future__ import annotations

import json
import math
import sys
import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import category

import rich.table
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.text import Text

from windvane._files import write_atomically
from windvane.plain_data import to_plain

PATIENCE = 2.0  # seconds after which progress is shown
DRAWING = "drawing figures and writing the report"
HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # categories of Unicode: control, format, surrogates, separators
HARMLESS = "\n\t\u200d"  # the last one joins emoji
PIPED_WIDTH = 200  # tables in files are not wrapped to the width of a window


class Table(NamedTuple):
    """A plain table: texts to the left, and numbers to the right.

    ``numbers``: the columns of numbers; by default all but the first ``left``.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    left: int = 1
    numbers: Sequence[int] | None = None

    def print(self) -> None:
        """Print the table on stdout."""
        if self.title:  # not as the title of the table, which is broken to its width
            _stdout().print(printable(self.title), markup=False, style="italic")
        table = rich.table.Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        numbers = range(self.left, len(self.columns)) if self.numbers is None else self.numbers
        for i, column in enumerate(self.columns):
            is_number = i in numbers
            table.add_column(Text(printable(column)), justify="right" if is_number else "left", no_wrap=is_number)
        for row in self.rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        _stdout().print(table)


class Note(NamedTuple):
    """A text in another style, such as an explanation of results; it is broken at words on a terminal."""

    text: str
    style: str = "dim"

    def print(self) -> None:
        """Print the note on stdout."""
        _stdout().print(printable(self.text), markup=False, style=self.style)


Blocks = Sequence[str | Table | Note]
"""Parts of an answer. Lines of a text are not broken, so that paths and secrets can be copied."""


class Answer(NamedTuple):
    """What a command answers: a document for ``--json``, blocks of text for people, and an exit code."""

    document: Any
    blocks: Blocks = ()
    code: int = 0

    def print(self, as_json: bool) -> int:
        """Print the answer on stdout, and return the exit code."""
        if as_json:
            print(json.dumps(to_plain(self.document), allow_nan=False))
            return self.code
        for block in self.blocks:
            if isinstance(block, str):
                _stdout().print(printable(block), markup=False, soft_wrap=True)
            else:
                block.print()
        return self.code


def warn(text: str) -> None:
    """Print a warning about results on stderr, on a terminal or not."""
    print(f"windvane: warning: {text}", file=sys.stderr)


def remark(text: str) -> None:
    """Print a remark on stderr, only if it is a terminal."""
    if sys.stderr.isatty():
        Console(stderr=True, highlight=False).print(text, markup=False)


def write_json(path: Path, document: Any) -> None:
    """Write a document to a file, for people to read."""
    write_atomically(path, (json.dumps(to_plain(document), indent=2) + "\n").encode())


def printable(text: str) -> str:
    r"""Return a text whose control and invisible characters are written as escapes, such as \x1b.

    Names of arms and other texts from logs would otherwise control the terminal.
    """
    if text.isprintable():
        return text
    return "".join(repr(c)[1:-1] if category(c) in HIDDEN and c not in HARMLESS else c for c in text)


def number(value: float | None, digits: int | None = 1) -> str:
    """Return a number with separators of thousands, with as many digits as needed if ``digits`` is None.

    A dash if there is no number, or it is not finite.
    """
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:g}" if digits is None else f"{value:,.{digits}f}"


def estimate(value: float, se: float, digits: int = 1) -> str:
    """Return a number and its standard error."""
    return f"{number(value, digits)} ± {number(se, digits)}"


def share(value: float) -> str:
    """Return a share as a percentage; a dash if it is not finite."""
    return "–" if not math.isfinite(value) else f"{value:.0%}"


def count(amount: int, unit: str, units: str = "") -> str:
    """Return "1 stream" or "2 streams"; ``units`` is the plural where it is not ``unit`` with an s."""
    return f"{amount:,} {unit if amount == 1 else units or unit + 's'}"


def _stdout() -> Console:
    is_terminal = sys.stdout.isatty()
    return Console(width=None if is_terminal else PIPED_WIDTH, highlight=False, soft_wrap=not is_terminal)


class ProgressBar:
    """A progress bar on stderr with the time left, shown once the work has taken :data:`PATIENCE` seconds.

    Without a terminal nothing is shown. ``text`` says what is done ("drawing figures"), and ``unit`` what is counted
    ("files"; for "rounds" the rate is shown, too). The lab calls ``compile``, ``begin``, ``show`` and ``end``.
    """

    def __init__(self, text: str, unit: str = "", patience: float = PATIENCE) -> None:
        columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(20), _Status(unit)
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
        self._text, self._task = text, self._bar.add_task(text, total=None, earlier=0.0)
        self._timer = threading.Timer(patience, self._bar.start)
        self._timer.daemon = True
        self._is_on = sys.stderr.isatty()

    def __enter__(self) -> ProgressBar:
        if self._is_on:
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_on:
            self._timer.cancel()
            self._timer.join()
            if self._bar.live.is_started:
                self._bar.stop()

    def __call__(self, done: float, total: float | None = None, text: str = "") -> None:
        """Show that ``done`` of ``total`` is done; ``text`` names the stage, if there are several."""
        if not self._is_on:
            return
        if text and text != self._bar.tasks[0].description:  # every stage has its own clock
            self._bar.reset(self._task, description=text, total=total, earlier=0.0)
        self._bar.update(self._task, completed=done, total=total)

    def compile(self, done: int, total: int) -> None:
        """Show that the kernels of ``done`` of ``total`` policies are compiled."""
        self(done, total, f"{self._text}: compiling")

    def begin(self, total: int, done: int) -> None:
        """Begin to count; ``done`` was done by earlier runs."""
        self._bar.reset(self._task, description=self._text, total=total, earlier=float(done))
        self(done, total)

    show = __call__

    def end(self) -> None:
        """Do nothing: the bar ends with its block."""


class _Status(ProgressColumn):
    """How much is done, for "rounds" how fast, and the time left; without a total, the time that has passed."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        elapsed, amount = task.elapsed or 0.0, f"{task.completed:,.0f}"
        if task.total is None:
            return Text(f"{amount} {self._unit}  {_clock(elapsed)}" if task.completed else _clock(elapsed))
        text = f"{amount}/{task.total:,.0f} {self._unit}"
        rate = (task.completed - task.fields["earlier"]) / elapsed if elapsed else 0.0
        if self._unit == "rounds":
            text += f"  {rate:,.0f} rounds/s"
        return Text(f"{text}  {_clock((task.total - task.completed) / rate)} left" if rate > 0.0 else text)


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))

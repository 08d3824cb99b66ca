"""Output: results on stdout, everything else on stderr and only on a terminal."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from windvane.errors import WindvaneError

PATIENCE = 2.0  # seconds after which progress is shown
PIPED_WIDTH = 200  # tables in files are not wrapped to the width of a window


class InterruptedRunError(WindvaneError):
    """The run was interrupted (Ctrl-C); the message says how far it got."""


class InputError(WindvaneError, ValueError):
    """The input of the command is invalid; the message says why."""


def output() -> Console:
    """stdout."""
    return Console(
        width=None if sys.stdout.isatty() else PIPED_WIDTH, highlight=False, soft_wrap=not sys.stdout.isatty()
    )


def remark(text: str) -> None:
    """Print a remark on stderr, only if it is a terminal."""
    if sys.stderr.isatty():
        Console(stderr=True, highlight=False).print(text, markup=False)


def print_json(value: Any) -> None:
    """Print one JSON document on stdout. NaN and infinity become null, which every JSON parser accepts."""
    print(json.dumps(plain(value), allow_nan=False))


def plain(value: Any) -> Any:
    """Return ``value`` as JSON-compatible data: arrays become lists, NaN and infinity become None."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "", left: int = 1) -> Table:
    """A plain table: the first ``left`` columns to the left, the others, numbers, to the right."""
    made = Table(
        title=Text(title) if title else None, box=None, title_justify="left", pad_edge=False, padding=(0, 2, 0, 0)
    )
    for i, column in enumerate(columns):
        made.add_column(Text(column), justify="left" if i < left else "right", no_wrap=i >= left)
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made


def number(value: float, digits: int = 1) -> str:
    return "–" if not math.isfinite(value) else f"{value:,.{digits}f}"


def share(value: float) -> str:
    return "–" if not math.isfinite(value) else f"{value:.0%}"


class _Rate(ProgressColumn):
    """Lane-rounds per second since this run began, without the rounds of earlier runs."""

    def render(self, task: Task) -> Text:
        speed = (task.completed - task.fields["earlier"]) / task.elapsed if task.elapsed else 0.0
        return Text(f"{speed:,.0f} rounds/s")


class Bar:
    """A progress bar on stderr: rounds, rate, time left; or seconds. Without a terminal it stays silent."""

    def __init__(self, text: str, unit: str = "rounds") -> None:
        self._text, self._unit = text, unit
        self._bar: Progress | None = None

    def begin(self, total: int, done: int) -> None:
        if not sys.stderr.isatty():
            return
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn(f"{{task.completed:,.0f}}/{{task.total:,.0f}} {self._unit}"),
            *([_Rate()] if self._unit == "rounds" else []),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.add_task(self._text, total=total, completed=done, earlier=done)
        self._bar.start()

    def show(self, done: int) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.stop()


class StageBars:
    """A progress bar for every stage of a command, shown once it has taken :data:`PATIENCE` seconds."""

    def __init__(self, unit: str) -> None:
        self._unit, self._began = unit, time.monotonic()
        self._stage = ""
        self._bar: Bar | None = None

    def show(self, stage: str, done: int, total: int) -> None:
        if time.monotonic() - self._began < PATIENCE:
            return
        if stage != self._stage:
            self.end()
            self._stage, self._bar = stage, Bar(stage, self._unit)
            self._bar.begin(total, done)
        if self._bar is not None:
            self._bar.show(done)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.end()
            self._bar = None

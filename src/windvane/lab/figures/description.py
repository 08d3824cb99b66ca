"""What a figure shows, as plain data: axes, marks and their names. Two renderers draw it; tests read it.

Text is plain Unicode. Colours are "#rrggbb"; the inks of :mod:`style` follow the page's dark mode. A mark with a
``name`` is listed in the legend, except for a series that is not ``is_listed``. ``group`` numbers the entry that a mark
belongs to, so that the page can hide and show all its marks together. ``role`` says what a mark is, for the page's
switches and for tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array
from windvane.lab.figures.style import INK, MUTED, SHADE, Dash, number_text

Values = npt.NDArray[Any]
Scale = Literal["linear", "log", "symlog"]


class Ticks(NamedTuple):
    """Where an axis has ticks, and their texts."""

    places: Values
    texts: Sequence[str]


@dataclass(frozen=True)
class Axis:
    """``low`` above ``high`` turns the axis around. ``value`` and ``form``: name and format of a value pointed at."""

    label: str = ""
    scale: Scale = "linear"
    low: float | None = None
    high: float | None = None
    ticks: Ticks | None = None
    has_grid: bool = False
    value: str = ""
    form: str = ",.4g"


@dataclass(frozen=True, eq=False)
class Series:
    """Points, and a line through them unless its ``width`` is 0. Many points on a line do not all have a marker.

    ``low`` and ``high`` are the ends of an interval along ``along``. Without a line, the colour tells the ``rounds``.
    """

    x: Values
    y: Values
    colour: str = INK
    name: str = ""
    role: str = ""
    width: float = 1.6
    dash: Dash = "solid"
    marker: str = ""
    size: float = 5.0
    is_filled: bool = True
    is_listed: bool = True
    end: str = ""  # text at the last point
    spread: Array | None = None  # the standard deviation at each point
    low: Values | None = None
    high: Values | None = None
    along: Literal["x", "y"] = "y"
    rounds: Values | None = None  # the round of each point, if x is not the round
    last_round: float = 1.0  # has the last colour
    group: int | None = None


@dataclass(frozen=True, eq=False)
class Band:
    """The space between two curves. A hidden one is not drawn, but the page has a switch for it."""

    x: Values
    low: Array
    high: Array
    colour: str
    group: int | None = None
    is_hidden: bool = False


@dataclass(frozen=True, eq=False)
class Arrows:
    """Straight lines from ``tails`` to ``heads``, both [n, 2], behind the other marks; or an arrow in front of them."""

    tails: Array
    heads: Array
    has_heads: bool = False


@dataclass(frozen=True)
class Strip:
    """All of the panel between two values of one axis; a line across the panel where they are equal."""

    axis: Literal["x", "y"]
    low: float
    high: float
    name: str = ""
    text: str = ""
    colour: str = SHADE


@dataclass(frozen=True)
class Disc:
    """The disc of this radius about the origin."""

    radius: float
    name: str = ""


@dataclass(frozen=True, eq=False)
class HeatMap:
    """``values[row, column]`` between edges; ``framed`` is the place of the cell with a frame."""

    x_edges: Values
    y_edges: Values
    values: Array
    label: str
    framed: tuple[int, int]
    has_numbers: bool = True

    @property
    def is_dark(self) -> npt.NDArray[np.bool_]:
        """The cells that need light text; large values are dark."""
        low, high = np.nanmin(self.values), np.nanmax(self.values)
        return np.asarray(self.values - low > 0.5 * (high - low))


Mark = Series | Band | Arrows | Strip | Disc | HeatMap
Corner = Literal["", "best", "upper left", "lower right"]


@dataclass(frozen=True)
class Panel:
    """Axes with marks; ``message`` stands in the middle of an empty one. ``is_square``: equal units on both axes."""

    x: Axis
    y: Axis
    marks: Sequence[Mark]
    title: str = ""
    legend: Corner = ""
    message: str = ""
    is_square: bool = False

    def marks_with(self, role: str) -> list[Any]:
        """Return the marks with this role."""
        return [mark for mark in self.marks if getattr(mark, "role", None) == role]


@dataclass(frozen=True)
class Figure:
    """Panels below each other or in a row, with one legend for all of them or one in each. Size in inches."""

    panels: Sequence[Panel]
    title: str = ""
    size: tuple[float, float] = (7.0, 4.0)
    legend: Literal["", "right", "below"] = ""
    is_row: bool = False


def row_axis(names: Sequence[str]) -> Axis:
    """Return an axis of names, the first on top."""
    return Axis(low=len(names) - 0.4, high=-0.6, ticks=Ticks(np.arange(len(names)), names))


def key_line(name: str, dash: Literal["solid", "dashed"] = "solid", colour: str = MUTED, width: float = 1.6) -> Series:
    """Return a line without points, that explains in the legend how others are drawn."""
    return Series(np.empty(0), np.empty(0), colour, name, dash=dash, width=width)


def log_ticks(low: float, high: float, most: int = 8) -> Ticks:
    """Round numbers on a logarithmic axis from ``low`` to ``high``: at most about ``most``, and at least two."""
    first, last = int(np.floor(np.log10(low))), int(np.ceil(np.log10(high)))
    for steps in ((1, 1.2, 1.5, 2, 3, 4, 5, 7), (1, 1.5, 2, 3, 5, 7), (1, 2, 5)):
        places = np.outer(10.0 ** np.arange(first, last + 1), steps).ravel()
        places = places[(places >= low * (1 - 1e-9)) & (places <= high * (1 + 1e-9))]
        if len(places) <= most:
            return Ticks(places, [number_text(place) for place in places])
    powers = np.arange(first, last + 1, max(1, -(-(last - first) // most)))
    return Ticks(10.0**powers, [number_text(10.0**power) for power in powers.tolist()])


def round_axis(horizon: float, label: str = "Round t") -> Axis:
    """Return an axis of rounds from 0 to the horizon."""
    return Axis(label, low=0.0, high=float(horizon), value="round", form=",.0f")

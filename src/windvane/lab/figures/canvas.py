"""The ground every figure stands on: settings that leave the caller's alone, a fresh canvas, text made safe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from windvane.lab.figures import curves

INK, MUTED, FAINT = "#222222", "#666666", "#e6e6e6"
SHADE = "#f0f0f0"
SIZE = 9

_STYLE: Any = {  # the names are matplotlib's, and its type of them differs by version
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same everywhere
    "font.size": SIZE,
    "axes.titlesize": SIZE + 1,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": SIZE - 1,
    "savefig.dpi": 200,
    "figure.dpi": 100,
    "pdf.fonttype": 42,
    "svg.hashsalt": "windvane",
}


@contextmanager
def style() -> Iterator[None]:
    """Our settings on top of matplotlib's own defaults, whatever the user's file says; undone on leaving."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def new_figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def text(given: object, longest: int = 60) -> str:
    """Text from outside, with no formula read into its dollar signs."""
    return curves.tidy(given, longest).replace("$", r"\$")

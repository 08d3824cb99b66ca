"""Paired differences of final regret."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from windvane.errors import ArgumentError
from windvane.lab.figures.description import Axis, Figure, Panel, Points, Strip, row_axis
from windvane.lab.figures.style import BETTER, INK, WORSE, tidy

if TYPE_CHECKING:
    from windvane.lab.results.summary import Difference


def difference_figure(rows: Sequence[Difference], *, title: str = "", confidence: float = 0.95) -> Figure:
    """Paired differences of final regret, one row each, with their confidence intervals about the mean."""
    if not rows:
        raise ArgumentError("rows", rows, "at least one difference")
    several = len({row.environment for row in rows}) > 1
    names = [tidy(f"{row.label} ({row.environment})" if several else row.label, 45) for row in rows]
    points = [
        Points(
            np.array([row.mean]),
            np.array([i]),
            BETTER if row.mean < 0 else WORSE,
            role="difference",
            size=6.0,
            is_filled=row.low > 0 or row.high < 0,
            low=np.array([row.low]),
            high=np.array([row.high]),
            along="x",
        )
        for i, row in enumerate(rows)
    ]
    bases = list(dict.fromkeys(row.baseline for row in rows))
    base = tidy(bases[0], 40) if len(bases) == 1 else "the baseline"
    label = (
        f"Final regret minus that of {base}, paired; left of 0 is better\n"
        f"mean and {100 * confidence:g} % interval (filled: without 0)"
    )
    ends = np.array([[0.0, row.mean, row.low, row.high] for row in rows])
    margin = 0.04 * (np.nanmax(ends) - np.nanmin(ends))
    low, high = float(np.nanmin(ends) - margin), float(np.nanmax(ends) + margin)
    x = Axis(label, low=low, high=high, has_grid=True, value="difference", form=",.2f")
    panel = Panel(x, row_axis(names), [Strip("x", 0.0, 0.0, colour=INK), *points])
    return Figure([panel], tidy(title, 90), (7.0, 1.3 + 0.28 * max(len(rows), 2)))

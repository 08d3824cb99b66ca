"""Descriptions of figures for the tests of the renderers: every kind of mark, and every figure of the lab."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from support import sample_results as samples
from windvane.lab.figures.comparison_figures import (
    difference_figure,
    leaderboard_figure,
    levels_figure,
    ratios_figure,
    slopes_figure,
)
from windvane.lab.figures.description import (
    Arrows,
    Axis,
    Band,
    Disc,
    Figure,
    HeatMap,
    Panel,
    Series,
    Strip,
    Ticks,
    log_ticks,
)
from windvane.lab.figures.diagnostics_figure import diagnostics_figure
from windvane.lab.figures.over_time_figure import MEAN_REWARD, over_time_figure
from windvane.lab.figures.projection_figure import projection_figure
from windvane.lab.figures.tuning_figure import tuning_figure
from windvane.lab.results.leaderboard import LeaderboardRow
from windvane.lab.studies.tuning import SweepGrid

X = np.array([1.0, 2.0, 3.0])
MARKS = {
    "line": Series(X, X**2, "#d55e00", "a line", "mark", marker="s"),
    "dashed line": Series(X, X**2, "#222222", "a line", "mark", dash="dashed"),
    "gaps": Series(X, np.array([1.0, np.nan, 3.0]), "#d55e00", "gaps", "mark"),
    "band": Band(X, X - 0.5, X + 0.5, "#d55e00"),
    "points": Series(X, X**2, "#0072b2", "points", "mark", 0, marker="o"),
    "open points": Series(X, X**2, "#0072b2", "points", "mark", 0, marker="o", is_filled=False),
    "coloured points": Series(X, X**2, name="points", role="mark", width=0, marker="x", rounds=X, last_round=5.0),
    "intervals": Series(X, X**2, "#0072b2", "points", "mark", 0, marker="o", low=X**2 - 1, high=X**2 + 2),
    "intervals across": Series(X, X**2, "#0072b2", "points", "mark", 0, marker="o", low=X - 1, high=X + 2, along="x"),
    "arrows": Arrows(np.array([[1.0, 1.0], [2.0, 2.0]]), np.array([[3.0, 2.0], [1.0, 4.0]])),
    "arrow with a head": Arrows(np.array([[1.0, 1.0]]), np.array([[3.0, 2.0]]), has_heads=True),
    "strip across x": Strip("x", 1.5, 2.5, text="a strip"),
    "strip across y": Strip("y", 1.5, 2.5, name="a strip"),
    "a line across": Strip("x", 2.0, 2.0),
    "disc": Disc(2.0, "a disc"),
    "heat map": HeatMap(
        np.array([1.0, 2.0, 4.0]), np.array([0.0, 1.0, 2.0]), np.array([[5.0, 6.0], [7.0, np.nan]]), "regret", (0, 1)
    ),
}  # fmt: skip


def figure_with(mark, *, x=None, y=None, **settings):
    """A figure with one panel and this mark."""
    x, y = x or Axis("across", value="x"), y or Axis("up", value="y", form=".2f")
    return Figure([Panel(x, y, [mark], **settings)], "A title")


def every_figure():
    """All figures of the lab, by name."""
    entry = samples.entry(with_diagnostics=True, runs=5)
    gammas, scales = 1 - 1 / np.geomspace(10, 3000, 6), np.array([0.5, 1.0])
    mean = np.add.outer(np.arange(6.0), [2.0, 1.0])
    row = SimpleNamespace
    comparison = row(
        environment="here", set_aside=True, chosen=row(label="pair", mean=2.0), adaptive=row(label="A", mean=1.0),
        master=row(label="M", mean=3.0), greedy=row(label="G", mean=4.0),
    )  # fmt: skip
    slope = row(
        name="family", horizons=[10, 20], mean=[2.0, 3.0], se=[0.1, 0.2], slope=0.6, low=0.5, high=0.7, proven=0.75,
        bound=[20.0, 30.0], bound_slope=0.7,
    )  # fmt: skip
    standing = LeaderboardRow("A", 1, 1.2, 1.1, 1.3, 2.0, "here", 1.0, {})
    return {
        "regret": over_time_figure(samples.four(runs=3), turning=(1000, 2000), published=samples.published()),
        "crowded": over_time_figure(samples.many(12, runs=2)),
        "mean reward": over_time_figure(samples.four(runs=2), MEAN_REWARD, others=[samples.entry("X", runs=2)]),
        "projection": projection_figure(samples.theta_path()),
        "one dimension": projection_figure(samples.theta_path(dim=1)),
        "diagnostics": diagnostics_figure(entry),
        "map": tuning_figure(SweepGrid("here", "A", 5, gammas, scales, mean, mean, (0, 1), mean < 3)),
        "curve": tuning_figure(
            SweepGrid("here", "A", 5, gammas, scales[1:], *[mean[:, :1]] * 2, (0, 0), mean[:, :1] < 3)
        ),
        "differences": difference_figure(samples.differences()),
        "leaderboard": leaderboard_figure([standing], confidence=0.95),
        "ratios": ratios_figure([comparison]),
        "levels": levels_figure([0.0, 1.0], {"a": (np.ones(2), np.ones(2))}),
        "slopes": slopes_figure([slope]),
    }


LOG = Axis("log", "log", 0.5, 200.0, log_ticks(0.5, 200.0))
SYMLOG = Axis("symlog", "symlog", -1.0, 100.0, Ticks(np.array([-0.1, 0.0, 0.1]), ["−0.1", "0", "0.1"]), value="slack")

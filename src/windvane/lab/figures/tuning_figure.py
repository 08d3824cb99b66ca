"""Final regret over discounts and bonus scales: a heat map, or a curve if only one of them varies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from windvane.arguments import Array
from windvane.lab.figures.description import Axis, Figure, HeatMap, Mark, Panel, Series, Ticks
from windvane.lab.figures.style import BETTER, INK, WORSE, tidy

if TYPE_CHECKING:
    from windvane.lab.studies.tuning import SweepGrid

MOST_NUMBERS = 80  # cells of a heat map that still have room for their number


def tuning_figure(grid: SweepGrid) -> Figure:
    """Mean final regret over discounts and bonus scales; an axis of one value gives a curve instead of a heat map.

    Discounts stand at their memory 1 / (1 - gamma), log-spaced; gamma = 1 comes last. The best point is framed, and
    dots are at the points that the runs cannot tell from it.
    """
    mean, se = grid.mean[grid.best], grid.se[grid.best]
    at = [f"γ = {grid.best_gamma:.6g}"] * bool(np.isfinite(grid.best_gamma))
    at += [f"bonus scale {grid.best_scale:g}"] * bool(np.isfinite(grid.best_scale))
    value = f"{mean:,.1f}" + (f" ± {se:.1f} (SE)" if np.isfinite(se) else "")
    title = f"{tidy(f'{grid.policy} in {grid.environment}', 70)}\nBest: {', '.join(at)}: {value}"
    if min(grid.mean.shape) == 1:
        return Figure([_curve(grid)], title, (7.0, 3.6))
    title += "\nDots: no significant difference from the best" * bool(grid.close.sum() > 1)
    return Figure([_map(grid)], title, (7.0, max(3.2, min(6.0, 1.6 + 0.42 * len(grid.scales)))))


def _find_memory(gammas: Array) -> Array:
    """1 / (1 - gamma); gamma = 1 is put one usual step after the longest finite memory."""
    forget = 1.0 - gammas
    memory = 1.0 / np.where(forget > 0.0, forget, 1.0)
    finite = memory[forget > 0.0]
    step = (finite[-1] / finite[0]) ** (1 / (len(finite) - 1)) if len(finite) > 1 else 10.0
    memory[forget <= 0.0] = finite[-1] * max(step, 1.5) if len(finite) else 1.0
    return memory


def _memory_axis(gammas: Array, edges: Array | None = None) -> Axis:
    """Return a log axis of memory whose ticks, as many as there is room for, are labelled with gamma."""
    memory = _find_memory(gammas)
    low, high = (memory[0] / 1.2, memory[-1] * 1.2) if edges is None else (edges[0], edges[-1])
    low, high = (low / 2.5, high * 2.5) if len(memory) == 1 else (low, high)
    room = np.log(memory / low) / np.log(high / low)
    kept: list[int] = []
    for i in range(len(gammas) - 1, -1, -1):  # from the right: the longest labels are there
        if not kept or room[kept[-1]] - room[i] >= 0.1:
            kept.append(i)
    ticks = Ticks(memory[kept[::-1]], [_two_lines(gammas[i], memory[i]) for i in kept[::-1]])
    label = "Discount γ\n(below it: memory 1/(1−γ) in rounds, log scale)"
    return Axis(label, "log", float(low), float(high), ticks, value="memory", form=",.0f")


def _two_lines(gamma: float, memory: float) -> str:
    digits = int(np.clip(np.ceil(-np.log10(1.0 - gamma)) + 1, 2, 8)) if gamma < 1.0 else 0
    return f"{gamma:.{digits}f}\n{memory:,.0f}" if gamma < 1.0 else "1\nall"


def _map(grid: SweepGrid) -> Panel:
    memory, places = _find_memory(grid.gammas), np.arange(len(grid.scales))
    middle = np.sqrt(memory[1:] * memory[:-1])
    edges = np.concatenate([[memory[0] ** 2 / middle[0]], middle, [memory[-1] ** 2 / middle[-1]]])
    cells = HeatMap(
        edges,
        np.append(places, len(places)) - 0.5,
        grid.mean.T,
        "Mean final regret (lower is better)",
        grid.best[::-1],
        has_numbers=grid.mean.size <= MOST_NUMBERS,
    )
    marks: list[Mark] = [cells]
    for is_dark, ink in ((True, "#ffffff"), (False, INK)):
        row, column = np.nonzero(grid.close.T & (cells.is_dark == is_dark))
        marks.append(Series(memory[column], row - 0.3, ink, role="close", width=0, marker="o", size=2.5))
    ticks = Ticks(places, [f"{scale:g}" for scale in grid.scales])
    up = Axis("Bonus scale", low=-0.5, high=len(places) - 0.5, ticks=ticks)
    return Panel(_memory_axis(grid.gammas, edges), up, marks)


def _curve(grid: SweepGrid) -> Panel:
    """One swept axis: mean with error bars of one standard error."""
    mean, se, near, best = grid.mean.ravel(), grid.se.ravel(), grid.close.ravel(), max(grid.best)
    x, axis = grid.scales, Axis("Bonus scale", value="bonus scale")
    if len(grid.scales) == 1:
        x, axis = _find_memory(grid.gammas), _memory_axis(grid.gammas)
    line = Series(x, mean, BETTER, "mean ± 1 SE", "mean", 1.2, marker="o", low=mean - se, high=mean + se)
    marks: list[Mark] = [line]
    if near.sum() > 1:
        ring = Series(x[near], mean[near], BETTER, "no significant difference from the best", "close", width=0)
        marks.append(replace(ring, marker="o", size=4.0, is_filled=False))
    marks.append(Series(x[[best]], mean[[best]], WORSE, "best", "best", width=0, marker="o", size=8.0))
    up = Axis("Final regret (lower is better)", has_grid=True, value="regret", form=",.1f")
    return Panel(axis, up, marks, legend="best")

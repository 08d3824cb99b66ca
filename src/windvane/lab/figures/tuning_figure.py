"""Final regret over discounts and bonus scales: a heat map, or a curve if only one of them varies."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_array
from windvane.lab.figures.description import Axis, Figure, HeatMap, Line, Mark, Panel, Points, Ticks
from windvane.lab.figures.style import BETTER, INK, WORSE, tidy

MOST_NUMBERS = 80  # cells of a heat map that still have room for their number
Mask = npt.NDArray[np.bool_]


def tuning_figure(
    gammas: npt.ArrayLike,
    scales: npt.ArrayLike,
    mean: npt.ArrayLike,
    se: npt.ArrayLike,
    *,
    best: tuple[int, int],
    close: Mask | None = None,
    title: str = "",
) -> Figure:
    """Mean final regret ``mean[i, j]`` (standard error ``se``) at ``gammas[i]`` and ``scales[j]``.

    Discounts stand at their memory 1 / (1 - gamma), log-spaced; gamma = 1 comes last. ``best``: the place of the
    smallest; ``close``: the places that the runs cannot tell from it. An axis of one value gives a curve instead.
    """
    g, s = check_array("gammas", gammas, (None,)), check_array("scales", scales, (None,))
    m, e = check_array("mean", mean, (len(g), len(s))), check_array("se", se, (len(g), len(s)))
    near = np.zeros(m.shape, dtype=bool) if close is None else close
    rows, columns = np.argsort(g), np.argsort(s)
    place = int(np.flatnonzero(rows == best[0])[0]), int(np.flatnonzero(columns == best[1])[0])
    places = np.ix_(rows, columns)
    g, s, m, e, near = g[rows], s[columns], m[places], e[places], near[places]
    at = [f"γ = {g[place[0]]:.6g}"] * bool(np.isfinite(g[place[0]]))
    at += [f"bonus scale {s[place[1]]:g}"] * bool(np.isfinite(s[place[1]]))
    value = f"{m[place]:,.1f}" + (f" ± {e[place]:.1f} (SE)" if np.isfinite(e[place]) else "")
    is_map = min(m.shape) > 1
    dots = "\nDots: no significant difference from the best" if near.sum() > 1 and is_map else ""
    heading = f"{tidy(title, 70)}\nBest: {', '.join(at)}: {value}{dots}".strip()
    if is_map:
        height = max(3.2, min(6.0, 1.6 + 0.42 * len(s)))
        return Figure([_map(g, s, m, near, place)], heading, (7.0, height))
    if len(s) == 1:
        x, axis = _find_memory(g), _memory_axis(g)
    else:
        x, axis = s, Axis("Bonus scale", value="bonus scale")
    return Figure([_curve(axis, x, m.ravel(), e.ravel(), near.ravel(), max(place))], heading, (7.0, 3.6))


def _find_memory(gammas: Array) -> Array:
    """1 / (1 - gamma); gamma = 1 is put one usual step after the longest finite memory."""
    forget = 1.0 - gammas
    memory = 1.0 / np.where(forget > 0.0, forget, 1.0)
    finite = memory[forget > 0.0]
    step = (finite[-1] / finite[0]) ** (1 / (len(finite) - 1)) if len(finite) > 1 else 10.0
    memory[forget <= 0.0] = finite[-1] * max(step, 1.5) if len(finite) else 1.0
    return memory


def _memory_axis(gammas: Array, edges: Array | None = None) -> Axis:
    """A log axis of memory whose ticks, as many as there is room for, are labelled with gamma."""
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


def _map(g: Array, s: Array, m: Array, near: Mask, best: tuple[int, int]) -> Panel:
    memory = _find_memory(g)
    middle = np.sqrt(memory[1:] * memory[:-1])
    edges = np.concatenate([[memory[0] ** 2 / middle[0]], middle, [memory[-1] ** 2 / middle[-1]]])
    label = "Mean final regret (lower is better)"
    cells = HeatMap(edges, np.arange(len(s) + 1) - 0.5, m.T, label, best[::-1], has_numbers=m.size <= MOST_NUMBERS)
    marks: list[Mark] = [cells]
    for is_dark, ink in ((True, "#ffffff"), (False, INK)):
        row, column = np.nonzero(near.T & (cells.is_dark == is_dark))
        if len(row):
            marks.append(Points(memory[column], row - 0.3, ink, role="close", size=2.5))
    up = Axis("Bonus scale", low=-0.5, high=len(s) - 0.5, ticks=Ticks(np.arange(len(s)), [f"{v:g}" for v in s]))
    return Panel(_memory_axis(g, edges), up, marks)


def _curve(axis: Axis, x: Array, mean: Array, se: Array, near: Mask, best: int) -> Panel:
    """One swept axis: mean with error bars of one standard error."""
    bars = Points(x, mean, BETTER, "", "error", "", low=mean - se, high=mean + se)
    marks: list[Mark] = [Line(x, mean, BETTER, "mean ± 1 SE", "mean", 1.2, marker="o"), bars]
    if near.sum() > 1:
        name = "no significant difference from the best"
        marks.append(Points(x[near], mean[near], BETTER, name, "close", size=4.0, is_filled=False))
    marks.append(Points(x[best : best + 1], mean[best : best + 1], WORSE, "best", "best", size=8.0))
    up = Axis("Final regret (lower is better)", has_grid=True, value="regret", form=",.1f")
    return Panel(axis, up, marks, legend="best")

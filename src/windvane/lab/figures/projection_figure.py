"""The parameter, its estimate and the projection of the estimate, about the set Theta."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array
from windvane.lab.figures.description import Arrows, Axis, Disc, Figure, Mark, Panel, Series, Strip, round_axis
from windvane.lab.figures.style import INK, LINK, tidy

if TYPE_CHECKING:
    from windvane.lab.run.play import ThetaPath

Index = npt.NDArray[np.int64]

TRUTH, SET = "θ* (truth)", "Θ (norm ≤ {:g})"
FARTHEST = 2.5  # in units of S: how far out theta_hat is shown in the plane
MOST_DOTS = 250  # of theta_hat; more would hide the path


def projection_figure(path: ThetaPath, *, title: str = "") -> Figure:
    """theta* (line), theta_hat (dots) and theta_tilde (crosses, where it differs) about the set Theta of radius S.

    Left: the plane of the first two coordinates, time as colour. Right: the norms over rounds in the same colours, so
    that the excursions of theta_hat outside Theta can be dated. In one dimension: theta over rounds.
    """
    thetas = path.theta_star, path.theta_hat, path.theta_tilde
    if path.theta_star.shape[1] == 1:
        ground = Strip("y", -path.S, path.S, name=SET.format(path.S))
        over = _over_rounds(path, ground, *(theta[:, 0] for theta in thetas), axis=Axis("θ", value="θ"))
        return Figure([over], tidy(title, 90), (7.0, 4.2), legend="below")
    ground = Strip("y", 0.0, path.S)
    norms = (np.linalg.norm(theta, axis=1) for theta in thetas)
    over = _over_rounds(path, ground, *norms, axis=Axis("Norm", low=0.0, value="norm"))
    return Figure([_plane(path), over], tidy(title, 90), (7.0, 4.2), legend="below", is_row=True)


def _over_rounds(path: ThetaPath, ground: Strip, star: Array, hat: Array, tilde: Array, *, axis: Axis) -> Panel:
    places = [np.stack([path.rounds, values], axis=1) for values in (star, hat, tilde)]
    trail = Series(path.rounds, hat, LINK, role="trail", width=0.7)
    distances = np.linalg.norm(path.theta_hat[~np.isnan(path.theta_hat).any(axis=1)], axis=1)
    outside = distances > path.S * (1 + 1e-9)  # beyond rounding
    title = f"This run: θ̂ outside Θ in {100 * outside.mean():.0f} % of rounds" if len(outside) else ""
    rounds = round_axis(path.rounds[-1], "Round t (colour: time)")
    return Panel(rounds, axis, [ground, trail, *_thetas(path, *places)], title)


def _plane(path: ThetaPath) -> Panel:
    star, hat, tilde = (theta[:, :2] for theta in (path.theta_star, path.theta_hat, path.theta_tilde))
    _, moved = _choose(path)
    marks: list[Mark] = [Disc(path.S, SET.format(path.S)), Arrows(hat[moved], tilde[moved])]
    marks += _thetas(path, star, hat, tilde)
    if not np.isnan(star).all():
        marks.append(_direction(star))
    corners = path.S * np.array([[-1.0, -1.0], [1.0, 1.0]])
    seen = np.concatenate([hat, star, corners]).clip(-FARTHEST * path.S, FARTHEST * path.S)
    low, high = np.nanmin(seen, axis=0), np.nanmax(seen, axis=0)
    (x, y), half = (low + high) / 2, 0.54 * float((high - low).max())  # a square about all of it
    dim = path.theta_star.shape[1]
    label = "θ₁" if dim == 2 else f"θ₁ (first two of {dim} coordinates)"
    across = Axis(label, low=x - half, high=x + half, value="θ₁")
    up = Axis("θ₂", low=y - half, high=y + half, value="θ₂")
    beyond = int(np.sum(np.abs(hat).max(axis=1) > FARTHEST * path.S))
    title = f"{beyond:,} estimates lie beyond the frame" if beyond else ""
    return Panel(across, up, marks, title, is_square=True)


def _thetas(path: ThetaPath, star: Array, hat: Array, tilde: Array) -> list[Mark]:
    """Estimate, projected estimate and truth at places [n, 2]; at most MOST_DOTS dots and crosses."""
    dots, moved = _choose(path)
    coloured = partial(Series, width=0, last_round=float(path.rounds[-1]))
    marks: list[Mark] = []
    if not np.isnan(hat).any(axis=1).all():
        x, y, rounds = hat[dots, 0], hat[dots, 1], path.rounds[dots]
        marks.append(coloured(x, y, name="θ̂ (estimate)", role="theta_hat", marker="o", size=3.2, rounds=rounds))
    if len(moved):
        x, y, rounds = tilde[moved, 0], tilde[moved, 1], path.rounds[moved]
        marks.append(coloured(x, y, name="θ̃ (projected)", role="theta_tilde", marker="x", size=4.0, rounds=rounds))
    if not np.isnan(star).any(axis=1).all():  # in a labelled data stream, no truth is known
        marks.append(Series(star[:, 0], star[:, 1], INK, TRUTH, "theta_star", 2.0, rounds=path.rounds))
    return marks


def _choose(path: ThetaPath) -> tuple[Index, Index]:
    """Return the rounds with a dot, and those of them where theta_tilde is known and differs from theta_hat."""
    dots = np.unique(np.linspace(0, len(path.rounds) - 1, MOST_DOTS).astype(int))
    differs = np.abs(path.theta_tilde - path.theta_hat).max(axis=1) > 1e-9 * path.S  # nan compares False
    return dots, dots[differs[dots]]


def _direction(star: Array) -> Mark:
    """Return an arrow half way along the path; a dot where it stands still."""
    way = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(star, axis=0), axis=1))])
    if way[-1] == 0:
        return Series(star[:1, 0], star[:1, 1], INK, TRUTH, "rest", width=0, marker="o", size=6.0, is_listed=False)
    tail, head = np.searchsorted(way, [0.45 * way[-1], 0.55 * way[-1]])
    head = min(max(head, tail + 1), len(star) - 1)
    return Arrows(star[tail][None], star[head][None], has_heads=True)

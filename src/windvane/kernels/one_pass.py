"""One observation folded into a quadratic, for estimators that keep no history (:mod:`windvane.one_pass`)."""

from __future__ import annotations

import numpy as np

from windvane.kernels.elementary import mean_slope
from windvane.kernels.jit import compiled
from windvane.kernels.linalg import dot, factorise, solve_lower

MAX_HALVINGS = 200


@compiled
def proximal_point(link: int, z: float, pull: float, reward: float) -> float:
    """The root y of y - z + pull (mu(y) - reward), pull >= 0: Newton's method inside a bracket that always holds it."""
    mean, slope = mean_slope(link, z)
    other = z + pull * (reward - mean)
    low, high = min(z, other), max(z, other)
    y = z
    before = high - low
    step = before
    for _ in range(MAX_HALVINGS):
        gap = y - z + pull * (mean - reward)
        if gap < 0.0:
            low = y
        else:
            high = y
        newton = gap / (1.0 + pull * slope)
        if low <= y - newton <= high and abs(newton) <= 0.5 * before:
            before, step = step, abs(newton)
            y -= newton
        else:
            before, step = step, 0.5 * (high - low)
            y = 0.5 * (low + high)
        if step <= 1e-14 * (1.0 + abs(y)):
            break
        mean, slope = mean_slope(link, y)
    return y


@compiled
def working_lanes(
    link: int,
    least_slope: float,
    gamma: np.ndarray,
    x: np.ndarray,
    reward: np.ndarray,
    decided: np.ndarray,
    now: float,
    weight: np.ndarray,
    mask: np.ndarray,
    V: np.ndarray,
    theta: np.ndarray,
    slope: np.ndarray,
    response: np.ndarray,
) -> None:
    """The quadratic s (<x, theta> - y)^2 / 2 that takes the place of each observation's loss: s and y, per lane.

    It touches the loss at z, the prediction <x, theta> after the step that minimises weight * loss plus the quadratic
    so far, with s = mu'(z) or ``least_slope`` where that is more.
    """
    d = x.shape[1]
    lower = np.empty((d, d))
    half = np.empty(d)
    for lane in range(x.shape[0]):
        slope[lane], response[lane] = 1.0, 0.0
        if not mask[lane]:
            continue
        factorise(V[lane], lower)
        solve_lower(lower, x[lane], half)
        pull = weight[lane] * gamma[lane] ** (now - decided[lane]) * dot(half, half)
        z = proximal_point(link, dot(x[lane], theta[lane]), pull, reward[lane])
        mean, steep = mean_slope(link, z)
        slope[lane] = max(steep, least_slope)
        response[lane] = z + (reward[lane] - mean) / slope[lane]

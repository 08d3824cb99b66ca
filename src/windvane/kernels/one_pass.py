"""Replace the loss of one observation by a quadratic, for the estimator that stores no history."""

from __future__ import annotations

import numpy as np

from windvane.kernels.elementary import mean_slope
from windvane.kernels.jit import compiled
from windvane.kernels.lanes import THETA_HAT, V_of
from windvane.kernels.linalg import dot, factorise, solve_lower

# Newton's method needs a few steps. Bisecting the widest bracket of doubles to the last bit would take about 2,000,
# but only with rewards near 1e100. The iteration then stops early: every point of the bracket is finite.
MOST_STEPS = 200
CLOSE = 1e-14  # relative step at which the equation is solved up to rounding


@compiled
def proximal_point(link: int, z: float, pull: float, reward: float) -> float:
    """Solve y - z + pull (mu(y) - reward) = 0, pull >= 0, by Newton's method inside a bracket."""
    mean, slope = mean_slope(link, z)
    other = z + pull * (reward - mean)
    low, high = min(z, other), max(z, other)
    y = z
    before = high - low
    step = before
    for _ in range(MOST_STEPS):
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
        if step <= CLOSE * (1.0 + abs(y)):
            break
        mean, slope = mean_slope(link, y)
    return y


@compiled
def linearise_lanes(
    x: np.ndarray,
    reward: np.ndarray,
    age: np.ndarray,
    weight: np.ndarray,
    mask: np.ndarray,
    record: np.ndarray,
    dense: np.ndarray,
    work: np.ndarray,
    slope: np.ndarray,
    response: np.ndarray,
) -> None:
    """Compute the quadratic slope (<x, theta> - response)^2 / 2 that replaces the loss of each observation.

    It touches the loss at z, the value of <x, theta> after the step that minimises weight * loss plus the quadratic so
    far. ``slope`` is the larger of mu'(z) and ``least_slope``.
    """
    lower, half = work[0], work[1, 0]
    for i in range(len(record)):
        slope[i], response[i] = 1.0, 0.0
        if not mask[i]:
            continue
        lane, row = record[i], dense[i]
        factorise(V_of(row), lower)
        solve_lower(lower, x[i], half)
        pull = weight[i] * lane["gamma"] ** age[i] * dot(half, half)
        z = proximal_point(lane["link"], dot(x[i], row[THETA_HAT]), pull, reward[i])
        mean, steepness = mean_slope(lane["link"], z)
        slope[i] = max(steepness, lane["least_slope"])
        response[i] = z + (reward[i] - mean) / slope[i]

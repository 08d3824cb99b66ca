"""Replace the loss of one observation by a quadratic, for the estimator that stores no history."""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels.elementary import mean_slope
from windvane.kernels.jit import compiled, compiled_inner
from windvane.kernels.lanes import THETA_HAT, V_of
from windvane.kernels.linalg import dot, factorise, solve_lower

MOST_STEPS = 200  # Newton needs a few; halving a bracket takes 65, with at most two Newton steps between halvings
CLOSE = 1e-14  # relative width at which a bracket is closed: the equation is solved to rounding
FURTHEST = 1e300  # limit of a bracket, so that its width is finite


@compiled_inner
def proximal_point(link: int, z: float, pull: float, reward: float) -> float:
    """Solve y - z + pull (mu(y) - reward) = 0, pull >= 0, by Newton's method inside a bracket around the root.

    The bracket is first searched for near z. Its outer end, z + pull (reward - mu(z)), can be as far away as the reward
    is large, where a link is flat or clamped and Newton's steps are useless. The bracket is halved on the asinh scale,
    which takes as many steps as a double has bits, whatever the width.
    """
    mean, slope = mean_slope(link, z)
    other = min(max(z + pull * (reward - mean), -FURTHEST), FURTHEST)
    low, high = min(z, other), max(z, other)
    reach = 1.0
    while reach < high - low:
        y = z + reach if other > z else z - reach
        if (y - z + pull * (mean_slope(link, y)[0] - reward) < 0.0) == (other > z):
            low, high = (y, high) if other > z else (low, y)
            reach *= 2.0
        else:
            low, high = (low, y) if other > z else (y, high)
            break
    y = z
    before = high - low
    step = before
    for _ in range(MOST_STEPS):
        gap = y - z + pull * (mean - reward)
        if gap < 0.0:
            low = max(low, y)
        else:
            high = min(high, y)
        width = CLOSE * (1.0 + abs(y))
        if high - low <= 2.0 * width:
            break
        newton = gap / (1.0 + pull * slope)
        if abs(newton) < width:  # a step past the root closes the bracket
            newton = math.copysign(width, gap)
        if low <= y - newton <= high and abs(newton) <= 0.5 * before:
            before, step = step, abs(newton)
            y -= newton
        else:
            before, step = step, 0.5 * (high - low)
            y = math.sinh(0.5 * (math.asinh(low) + math.asinh(high)))
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

"""Steps of online learners: each uses an observation once and does not store it.

A step minimises a quadratic plus the loss of the new observation over the ball ||theta|| <= S,

    theta' V theta / 2 - <target, theta> + pull (B(<x, theta>) - r <x, theta>),    B' = mu.

Without the ball, theta = V^-1 (target - pull (mu(u) - r) x), where u = <x, theta> solves a scalar equation
(:func:`windvane.kernels.one_pass.proximal_point`). With the multiplier kappa of the ball, V + kappa I replaces V, and
kappa is the root of ||theta(kappa)|| = S. It is found by Newton's method on 1 / ||theta(kappa)|| inside a bracket: the
norm decreases with kappa, and is at most ||gradient at 0|| / kappa. So a step is solved to rounding.
"""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels.ball import MOST_STEPS, ON_SPHERE, ball_quadratic
from windvane.kernels.elementary import mean_slope
from windvane.kernels.jit import compiled, compiled_inner
from windvane.kernels.lanes import ITERATE, THETA_HAT, V_of
from windvane.kernels.linalg import (
    ROUNDING,
    add_outer,
    cholesky,
    copy,
    copy_matrix,
    dot,
    factorise,
    norm,
    solve_cholesky,
)
from windvane.kernels.one_pass import proximal_point

# Matrices of the workspace. A vector uses the first row of its matrix. Rows from SPARE on are free.
LOWER, ACROSS, BACK, TARGET, METRIC, PROJECTED, SPARE = range(7)


@compiled_inner
def find_length(link: int, z: float, width: float, pull: float, reward: float) -> tuple[float, float]:
    """Return the factor of -V^-1 x in a step from z = <x, V^-1 target>, and mu' there; width is ||x||^2 in V^-1."""
    u = proximal_point(link, z, pull * width, reward)
    mean, slope = mean_slope(link, u)
    # Two forms of the same number: the second one keeps <x, theta> = u where a small error of u changes mu by much.
    return pull * (mean - reward) if pull * slope * width <= 1.0 else (z - u) / width, slope


@compiled_inner
def _step_at(
    link: int, V: np.ndarray, kappa: float, target: np.ndarray, x: np.ndarray, pull: float, reward: float,
    work: np.ndarray, out: np.ndarray,
) -> tuple[float, float]:  # fmt: skip
    """Set out to the minimiser with V + kappa I for V. Return its norm, and -||out|| times its derivative in kappa."""
    lower, across, back = work[LOWER], work[ACROSS, 0], work[BACK, 0]
    if not cholesky(V, kappa, lower):
        factorise(V, lower)
    solve_cholesky(lower, target, out)
    solve_cholesky(lower, x, across)
    width = dot(x, across)
    length, slope = find_length(link, dot(x, out), width, pull, reward)
    for j in range(x.shape[0]):
        out[j] -= length * across[j]
    solve_cholesky(lower, out, back)
    along = dot(x, back)
    return norm(out), dot(out, back) - pull * slope * along * along / (1.0 + pull * slope * width)


@compiled_inner
def step_in_ball(
    link: int, V: np.ndarray, target: np.ndarray, x: np.ndarray, pull: float, reward: float, S: float,
    work: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """Set out to the minimiser over the ball; see the module docstring."""
    length, shrink = _step_at(link, V, 0.0, target, x, pull, reward, work, out)
    if length <= S:
        return
    mean, _ = mean_slope(link, 0.0)
    square = 0.0
    for j in range(x.shape[0]):
        square += (target[j] - pull * (mean - reward) * x[j]) ** 2
    low, high, kappa = 0.0, math.sqrt(square) / S, 0.0
    for _ in range(MOST_STEPS):
        candidate = kappa + length * length * (length - S) / (S * shrink) if shrink > 0.0 else high
        kappa = candidate if low < candidate < high else 0.5 * (low + high)
        length, shrink = _step_at(link, V, kappa, target, x, pull, reward, work, out)
        if length > S:
            low = kappa
        else:
            high = kappa
        if abs(length - S) <= ON_SPHERE * S or high - low <= ROUNDING * high:
            break
    for j in range(x.shape[0]):
        out[j] *= S / length


@compiled
def newton_lanes(
    x: np.ndarray,
    reward: np.ndarray,
    weight: np.ndarray,
    mask: np.ndarray,
    record: np.ndarray,
    dense: np.ndarray,
    work: np.ndarray,
    response: np.ndarray,
) -> None:
    """Take an online Newton step for each observation; theta_hat must be V^{-1} b (GLOC, Jun et al. 2017).

    With z = <x, theta> at the iterate theta, g = mu(z) - r, and A = V + weight x x', the step is
    theta - weight g A^{-1} x / c_mu, projected on the ball in the metric A. ``regret`` gains weight^2 g^2 ||x||^2 in
    A^{-1}. ``misfit`` is the smallest value of sum w_s (z_s - <x_s, theta>)^2 + lam ||theta||^2. ``response`` is z.
    """
    lower, across, projected = work[LOWER], work[ACROSS, 0], work[PROJECTED, 0]
    target, metric = work[TARGET, 0], work[METRIC]
    for i in range(len(record)):
        response[i] = 0.0
        if not mask[i] or weight[i] == 0.0:
            continue
        lane, row, point, w = record[i], dense[i], x[i], weight[i]
        V, theta = V_of(row), row[ITERATE]
        factorise(V, lower)
        solve_cholesky(lower, point, across)
        width = dot(point, across)
        rest = 1.0 / (1.0 + w * width)  # A^{-1} x = rest V^{-1} x
        z = dot(point, theta)
        mean, _ = mean_slope(lane["link"], z)
        g = w * (mean - reward[i])
        lane["regret"] += g * g * width * rest
        lane["misfit"] += w * rest * (z - dot(point, row[THETA_HAT])) ** 2
        response[i] = z
        for j in range(point.shape[0]):
            theta[j] -= g * rest * across[j] / lane["least_slope"]
        if norm(theta) > lane["S"]:
            copy_matrix(V, metric)
            add_outer(metric, w, point)
            for j in range(point.shape[0]):
                target[j] = dot(metric[j], theta)
            ball_quadratic(metric, target, lane["S"], 0.0, projected, lower, across)
            copy(projected, theta)

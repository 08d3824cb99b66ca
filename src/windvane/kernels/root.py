"""theta_hat: the root of g(theta) = b, by a trust-region Newton method with a certificate.

g - b is the gradient of a strongly convex function, so a step is good if that function's slope along it,
<g - b, step>, has not turned round by more than half at its end; no value of the function is needed. Where it has, or
where Newton's step is longer than the model can be trusted, the step is the model's minimiser within a smaller radius:
in the flat or steep tails of a link, plain halving of Newton's step would crawl. Bounds on the distance to the root:

* anywhere: ||theta - theta_hat|| <= ||g(theta) - b|| / ridge (strong monotonicity);
* after a step s = H^-1 (g(theta) - b) with the Hessian H of a point at distance D. Let q = 1.2 ||s||_H /
  sqrt(lambda_min(H)), |mu''| <= M mu' within D + q of that point, and r = M L (D + q) <= 1/10. Then
  ||theta - theta_hat|| <= q and ||theta - s - theta_hat|| <= r q. (Within that distance the Hessian is between e^-r H
  and e^r H, so on the sphere of radius q around theta the gradient points outwards and the root lies inside, at most
  e^r ||s||_H away; and the step leaves at most (e^r - 1) of that.) D = 0 is Newton's own step.

The second saves the pass over the history that would only confirm convergence, and lets one more step reuse the same
Hessian, at the price of g alone. Both speak of exact arithmetic: rounding in g and b, of relative size 1e-15 of the
absolute sums behind them, comes on top, and the iteration stops where nothing else is left.
"""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels.elementary import bend_ratio
from windvane.kernels.history import FRESH, MOVED
from windvane.kernels.jit import compiled, compiled_inner
from windvane.kernels.linalg import (
    ball_quadratic,
    cholesky,
    copy,
    dot,
    factorise,
    large_norm,
    norm,
    solve_cholesky,
    trace_of_inverse,
)
from windvane.kernels.sums import mean_sums, slope_gram

MAX_PASSES = 200
PATIENCE = 30  # passes after which rounding is suspected


@compiled
def _rounding(W: np.ndarray, start: int, end: int, scale: float, L: float, b: np.ndarray, buffers: np.ndarray) -> float:
    """What rounding may do to g - b: 1e-15 of the absolute sums behind them, at the theta of the last means."""
    total = 0.0
    for i in range(end - start):
        total += W[start + i] * abs(buffers[1, i])
    return 1e-15 * (norm(b) + total * scale * L)


@compiled_inner
def newton(
    link: int,
    X: np.ndarray,
    W: np.ndarray,
    start: int,
    end: int,
    scale: float,
    ridge: float,
    L: float,
    b: np.ndarray,
    tolerance: float,
    buffers: np.ndarray,
    theta: np.ndarray,
    H: np.ndarray,
) -> tuple[int, float]:
    """Improve ``theta`` until ||theta - theta_hat|| <= tolerance; returns (passes over the history, error bound).

    ``H`` is left as the Hessian at the last point where it was formed.
    """
    d = b.shape[0]
    g = np.empty(d)
    trial_g = np.empty(d)
    step = np.empty(d)
    trial = np.empty(d)
    lower = np.empty((d, d))
    work = np.empty((d, d))
    mean_sums(link, X, W, start, end, scale, ridge, theta, buffers, g)
    for j in range(d):
        g[j] -= b[j]
    sound = False
    curvature = ridge
    radius = 1.0 / L  # no <x, theta> moves by more than 1 before the model has been tried
    distance = math.inf  # from the point whose Hessian H is; infinite: to be formed anew
    residual = large_norm(g)
    error = residual / ridge
    size = math.inf
    ratio = math.inf
    passes = 1
    while residual > tolerance * ridge and passes < MAX_PASSES:
        if math.isinf(distance):
            slope_gram(X, W, start, end, scale, ridge, buffers, H)
            sound = factorise(H, lower)
            curvature = max(ridge, 1.0 / trace_of_inverse(lower, step))
            distance = 0.0
        solve_cholesky(lower, g, step)
        length = norm(step)
        size = 1.2 * math.sqrt(max(dot(g, step), 0.0) / curvature)
        ratio = bend_ratio(link, L * (norm(theta) + distance + size)) * L * (distance + size)
        if sound and ratio <= 0.1 and ratio * size <= tolerance:
            for j in range(d):
                theta[j] -= step[j]
            return passes, ratio * size
        if distance > 0.0:  # this Hessian has served twice
            distance = math.inf
            continue
        if passes > PATIENCE and residual <= _rounding(W, start, end, scale, L, b, buffers):
            break
        accepted = False
        while not accepted and passes < MAX_PASSES:
            shift = 0.0
            if length > radius:
                shift = ball_quadratic(H, g, radius, 0.0, step, work)
                length = norm(step)
            if length <= 1e-15 * (1.0 + norm(theta)):
                break
            for j in range(d):
                trial[j] = theta[j] - step[j]
            mean_sums(link, X, W, start, end, scale, ridge, trial, buffers, trial_g)
            passes += 1
            for j in range(d):
                trial_g[j] -= b[j]
            before = dot(g, step)
            after = dot(trial_g, step)  # the model foretells shift length^2
            accepted = after >= -0.5 * before
            surprise = abs(after - shift * length * length)
            if not accepted or surprise > 0.5 * before:
                radius = 0.25 * length
                length = math.inf  # a step from here on is cut to the radius
            elif surprise < 0.25 * before and shift > 0.0:
                radius *= 2.0
        if not accepted:  # rounding is all that is left
            break
        for j in range(d):
            distance += (trial[j] - theta[j]) ** 2
        distance = math.sqrt(distance)
        copy(trial, theta)
        copy(trial_g, g)
        residual = large_norm(g)
        error = residual / ridge
        size = math.inf
    return passes, min(error, size) if sound and ratio <= 0.1 else error


@compiled
def solve_lanes(
    lo: int,
    hi: int,
    link: int,
    ridge: float,
    L: float,
    tolerance: float,
    gamma: np.ndarray,
    clock: np.ndarray,
    span: np.ndarray,
    X: np.ndarray,
    W: np.ndarray,
    b: np.ndarray,
    theta: np.ndarray,
    pull: np.ndarray,
    H: np.ndarray,
    stale: np.ndarray,
    passes: np.ndarray,
    error: np.ndarray,
) -> None:
    """theta_hat of every stale lane, warm-started.

    ``pull`` holds g(theta) - b at the stored theta, carried along while rounds and observations came in, and ``H`` its
    Jacobian: one Newton step from them needs no pass over the history. It is only a prediction; what follows is exact.
    """
    d = b.shape[1]
    longest = 1
    for lane in range(lo, hi):
        longest = max(longest, span[lane, 1] - span[lane, 0])
    buffers = np.empty((3, longest))
    lower = np.empty((d, d))
    step = np.empty(d)
    for lane in range(lo, hi):
        if stale[lane] == FRESH:
            continue
        start, end = span[lane, 0], span[lane, 1]
        scale = gamma[lane] ** (clock[lane, 0] - clock[lane, 1])
        if stale[lane] == MOVED and cholesky(H[lane], 0.0, lower):
            solve_cholesky(lower, pull[lane], step)
            if L * norm(step) <= 1.0:  # further away the linearisation tells nothing
                for j in range(d):
                    theta[lane, j] -= step[j]
        for attempt in range(2):
            if attempt == 1:  # lost in a tail: once more, from the middle
                for j in range(d):
                    theta[lane, j] = 0.0
            passes[lane], error[lane] = newton(
                link, X[lane], W[lane], start, end, scale, ridge, L, b[lane], tolerance, buffers, theta[lane], H[lane]
            )
            if math.isfinite(error[lane]) and passes[lane] < MAX_PASSES:
                break
        pull[lane, :] = 0.0
        stale[lane] = FRESH


@compiled
def linear_solve_lanes(lo: int, hi: int, V: np.ndarray, b: np.ndarray, theta: np.ndarray, stale: np.ndarray) -> None:
    """theta_hat = V^{-1} b of every stale lane: the root for the identity link."""
    d = b.shape[1]
    lower = np.empty((d, d))
    for lane in range(lo, hi):
        if stale[lane] != FRESH:
            factorise(V[lane], lower)
            solve_cholesky(lower, b[lane], theta[lane])
            stale[lane] = FRESH

"""theta_hat: the root of g(theta) = b, by Newton's method with a certificate.

g is the gradient of a strongly convex function, so ||g(theta) - b|| is a merit that damped Newton steps always lower,
and two bounds on the distance to the root come for free:

* anywhere: ||theta - theta_hat|| <= ||g(theta) - b|| / ridge (strong monotonicity);
* after a full Newton step p from theta, where |mu''| <= M mu' along it and r = M L ||p|| <= 1/10:
  ||theta + p - theta_hat|| <= r ||p||_H / sqrt(lambda_min(H)). (H changes by at most a factor e^r along the step, so
  the new residual is at most r e^r / 2 of ||p||_H in the H^-1 norm; the two remaining factors e^r are under 2.)

The second one saves the pass over the history that would only confirm convergence.
"""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels._jit import compiled, compiled_inner
from windvane.kernels.elementary import bend_ratio
from windvane.kernels.history import FRESH, MOVED, moments
from windvane.kernels.linalg import cholesky, copy, copy_matrix, norm, solve_cholesky, trace_of_inverse

MAX_STEPS = 200


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

    ``H`` is left as the Hessian at the last evaluated point.
    """
    d = b.shape[0]
    g = np.empty(d)
    step = np.empty(d)
    trial = np.empty(d)
    column = np.empty(d)
    lower = np.empty((d, d))
    trial_H = np.empty((d, d))
    moments(link, X, W, start, end, scale, ridge, theta, buffers, g, H)
    passes = 1
    for j in range(d):
        g[j] -= b[j]
    residual = norm(g)
    while passes < MAX_STEPS:
        if residual <= tolerance * ridge:
            return passes, residual / ridge
        cholesky(H, 0.0, lower)
        solve_cholesky(lower, g, step)
        length = norm(step)
        decrement = 0.0
        for j in range(d):
            decrement += g[j] * step[j]
        curvature = max(ridge, 1.0 / trace_of_inverse(lower, column))
        relative = bend_ratio(link, L * (norm(theta) + length)) * L * length
        reach = relative * math.sqrt(decrement / curvature)
        if relative <= 0.1 and reach <= tolerance:
            for j in range(d):
                theta[j] -= step[j]
            return passes, reach
        damping = 1.0
        accepted = False
        while damping > 1e-9:
            for j in range(d):
                trial[j] = theta[j] - damping * step[j]
            moments(link, X, W, start, end, scale, ridge, trial, buffers, g, trial_H)
            passes += 1
            for j in range(d):
                g[j] -= b[j]
            trial_residual = norm(g)
            if trial_residual <= (1.0 - 1e-4 * damping) * residual:
                accepted = True
                break
            damping *= 0.5
            if length * damping <= 1e-14 * (1.0 + norm(theta)):
                break
        if not accepted:  # rounding is all that is left
            return passes, math.sqrt(decrement / curvature)
        copy(trial, theta)
        copy_matrix(trial_H, H)
        residual = trial_residual
    return passes, residual / ridge


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

    ``pull`` holds g(theta) - b at the stored theta, carried along exactly while rounds and observations came in, and
    ``H`` its Jacobian: one Newton step from them needs no pass over the history.
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
            for j in range(d):
                theta[lane, j] -= step[j]
        passes[lane], error[lane] = newton(
            link, X[lane], W[lane], start, end, scale, ridge, L, b[lane], tolerance, buffers, theta[lane], H[lane]
        )
        pull[lane, :] = 0.0
        stale[lane] = FRESH


@compiled
def linear_solve_lanes(lo: int, hi: int, V: np.ndarray, b: np.ndarray, theta: np.ndarray, stale: np.ndarray) -> None:
    """theta_hat = V^{-1} b of every stale lane: the root for the identity link."""
    d = b.shape[1]
    lower = np.empty((d, d))
    for lane in range(lo, hi):
        if stale[lane] != FRESH:
            cholesky(V[lane], 0.0, lower)
            solve_cholesky(lower, b[lane], theta[lane])
            stale[lane] = FRESH

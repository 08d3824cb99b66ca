"""theta_hat: the root of g(theta) = b, by a trust-region Newton method with an error certificate.

g - b is the gradient of a strongly convex function F. A step is accepted if the slope of F along it, <g - b, step>, is
at the end of the step at least minus half of its initial value. Values of F are not needed. If a step is rejected, or
if Newton's step is longer than the trust radius, the step is the minimiser of the quadratic model within the radius. In
the flat or steep tails of a link this takes fewer passes than halving Newton's step. There are two bounds on the
distance to the root:

* At any theta: ||theta - theta_hat|| <= ||g(theta) - b|| / ridge (strong monotonicity).
* After a step s = H^-1 (g(theta) - b), if every term of H was evaluated within a distance D of theta. Let q = 1.2
  ||s||_H / sqrt(lambda_min(H)), let |mu''| <= M mu' within D + q of theta, and let r = M L (D + q) <= 1/10. Then
  ||theta - theta_hat|| <= q and ||theta - s - theta_hat|| <= r q. Proof: within that distance the Hessian is between
  e^-r H and e^r H. So on the sphere of radius q around theta the gradient points outwards, and the root lies inside, at
  most e^r ||s||_H away. The step leaves at most (e^r - 1) of that. D = 0 is Newton's step.

The second bound saves work in two ways. First, no pass is needed only to confirm convergence. Second, H is carried from
round to round: it is discounted, and each new observation is added with its slope at the theta_hat of its time. So all
terms of H were evaluated within ``strayed`` of the present theta_hat. As long as this certifies a step, a solve needs
only g. (The carried H also contains observations that were dropped from the history. Their weight is at most
``drop_budget``, which is less than 1e-5 of ridge. The margin between e^0.1 and 1.2 covers this.)

Both bounds are for exact arithmetic. Rounding in g and b adds a relative error of 1e-15 of the sums of absolute values.
The iteration stops when only this error is left.
"""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels.anchors import maintain
from windvane.kernels.ball import ball_quadratic
from windvane.kernels.elementary import bend_ratio, mean_slope
from windvane.kernels.expansion import expanded_weight, gram_at, mean_at
from windvane.kernels.jit import compiled, compiled_inner
from windvane.kernels.lanes import (
    FRESH,
    LOST,
    MEAN,
    MOVED,
    PULL,
    THETA_HAT,
    B,
    H_of,
    V_of,
)
from windvane.kernels.linalg import (
    ROUNDING,
    cholesky,
    copy,
    dot,
    factorise,
    large_norm,
    norm,
    solve_cholesky,
    trace_of_inverse,
)
from windvane.kernels.sums import SLOPE_GRAM

MOST_PASSES = 200  # Newton's method needs 1 to 3; about 100 only in the far tails of a link
PATIENCE = 30  # passes after which the residual is compared with rounding errors
SAFE_RATIO = 0.1  # largest r for which the certificate holds
MARGIN = 1.2  # the factor in q; it must exceed e^SAFE_RATIO = 1.105
ACCEPT = 0.5  # a step is accepted unless the slope at its end is below minus this share of the initial slope
TRUST = 0.25  # the radius grows if the error of the predicted slope is below this share of the initial slope

# Matrices of the workspace. A vector uses the first row of its matrix.
_G, _TRIAL_G, _STEP, _TRIAL, _SCRATCH, _LOWER, _SPARE, _TENSOR = range(8)


@compiled_inner
def _rounding(
    lane: np.void, rows: np.ndarray, expansion: np.ndarray, b: np.ndarray, theta: np.ndarray, buffers: np.ndarray
) -> float:
    """Return a bound on the rounding error of g - b, at the theta of the last means."""
    total = 0.0
    first = lane["first"]
    for i in range(lane["end"] - first):
        total += rows[b.shape[0], first + i] * abs(buffers[MEAN, i])
    total *= lane["scale"]
    if lane["expanded"] > 0:
        reach = lane["L"] * norm(theta)
        largest = max(abs(mean_slope(lane["link"], reach)[0]), abs(mean_slope(lane["link"], -reach)[0]))
        total += expanded_weight(lane, expansion, b.shape[0]) * largest
    return ROUNDING * (norm(b) + total * lane["L"])


@compiled_inner
def _residual(
    lane: np.void, rows: np.ndarray, expansion: np.ndarray, b: np.ndarray, theta: np.ndarray, work: np.ndarray,
    buffers: np.ndarray, g: np.ndarray,
) -> None:  # fmt: skip
    """Set g to g(theta) - b."""
    mean_at(lane, rows, expansion, theta, buffers, g, work[_TENSOR])
    for j in range(b.shape[0]):
        g[j] -= b[j]


@compiled_inner
def _search(
    lane: np.void, row: np.ndarray, rows: np.ndarray, expansion: np.ndarray, radius: float, work: np.ndarray,
    buffers: np.ndarray,
) -> float:  # fmt: skip
    """Find an acceptable step. Return the new trust radius, or 0 if only rounding errors are left.

    The workspace holds the first step to try. A rejected step is shortened to the trust radius. The accepted point and
    its g - b are left in the workspace.
    """
    theta, b, H = row[THETA_HAT], row[B], H_of(row)
    g, trial_g = work[_G, 0], work[_TRIAL_G, 0]
    step, trial = work[_STEP, 0], work[_TRIAL, 0]
    length = norm(step)
    while lane["passes"] < MOST_PASSES:
        shift = 0.0
        if length > radius:
            shift = ball_quadratic(H, g, radius, 0.0, step, work[_SPARE], work[_SCRATCH, 0])
            length = norm(step)
        if length <= ROUNDING * (1.0 + norm(theta)):
            return 0.0
        for j in range(theta.shape[0]):
            trial[j] = theta[j] - step[j]
        _residual(lane, rows, expansion, b, trial, work, buffers, trial_g)
        lane["passes"] += 1
        before = dot(g, step)
        after = dot(trial_g, step)
        is_accepted = after >= -ACCEPT * before
        surprise = abs(after - shift * length * length)  # the model predicts the slope shift length^2
        if not is_accepted or surprise > ACCEPT * before:
            radius = 0.25 * length
            length = math.inf  # forces the next step to be shortened to the radius
        elif surprise < TRUST * before and shift > 0.0:
            radius *= 2.0
        if is_accepted:
            return radius
    return 0.0


@compiled_inner
def newton(
    lane: np.void, row: np.ndarray, rows: np.ndarray, expansion: np.ndarray, carried: bool, work: np.ndarray,
    buffers: np.ndarray,
) -> None:  # fmt: skip
    """Improve theta_hat until it is certified to ``root_tolerance``. Sets ``passes`` and ``error``.

    If ``carried``, the workspace holds the Cholesky factor of the carried H, whose terms were evaluated within
    ``strayed``.
    """
    theta, b, H = row[THETA_HAT], row[B], H_of(row)
    d = theta.shape[0]
    g, step, lower = work[_G, 0], work[_STEP, 0], work[_LOWER]
    L, ridge, tolerance = lane["L"], lane["ridge"], lane["root_tolerance"]
    _residual(lane, rows, expansion, b, theta, work, buffers, g)
    lane["passes"] = 1
    is_sound, has_H, is_new = carried, carried, False
    curvature = max(ridge, 1.0 / trace_of_inverse(lower, step)) if carried else ridge
    radius = 1.0 / L  # the first step changes no <x, theta> by more than 1
    residual = large_norm(g)
    lane["error"] = residual / ridge
    while residual > tolerance * ridge and lane["passes"] < MOST_PASSES:
        if not has_H:
            gram_at(SLOPE_GRAM, lane, rows, expansion, theta, buffers, H)
            is_sound = factorise(H, lower)
            curvature = max(ridge, 1.0 / trace_of_inverse(lower, step))
            has_H, is_new = True, True
            lane["strayed"], lane["bent"] = 0.0, lane["bend"]
        solve_cholesky(lower, g, step)
        size = MARGIN * math.sqrt(max(dot(g, step), 0.0) / curvature)
        distance = lane["strayed"] + size
        ratio = bend_ratio(lane["link"], L * (norm(theta) + distance)) * L * distance + lane["bent"]
        if is_sound and ratio <= SAFE_RATIO:
            lane["error"] = min(residual / ridge, size)
            if ratio * size <= tolerance:
                for j in range(d):
                    theta[j] -= step[j]
                lane["strayed"] += norm(step)
                lane["error"] = ratio * size
                return
        if not is_new:  # H belongs to an earlier point: compute it at this one
            has_H = False
            continue
        if lane["passes"] > PATIENCE and residual <= _rounding(lane, rows, expansion, b, theta, buffers):
            return
        radius = _search(lane, row, rows, expansion, radius, work, buffers)
        if radius == 0.0:
            return
        trial = work[_TRIAL, 0]
        square = 0.0
        for j in range(d):
            square += (trial[j] - theta[j]) ** 2
        lane["strayed"] += math.sqrt(square)
        copy(trial, theta)
        copy(work[_TRIAL_G, 0], g)
        is_new = False
        residual = large_norm(g)
        lane["error"] = residual / ridge


@compiled
def solve_lanes(
    table: np.ndarray, multiplicity: np.ndarray, record: np.ndarray, dense: np.ndarray, history: np.ndarray,
    expansions: np.ndarray, work: np.ndarray, buffers: np.ndarray, vectors: np.ndarray,
) -> None:  # fmt: skip
    """Compute theta_hat in every lane where it is out of date, starting from its last value.

    ``pull`` is g(theta_hat) - b and H its Jacobian, both updated as rounds pass and observations arrive. One Newton
    step from them needs no pass over the history. It is only a prediction. The steps that follow are exact.
    """
    step, lower = work[_STEP, 0], work[_LOWER]
    for i in range(len(record)):
        lane, row = record[i], dense[i]
        if lane["status"] == FRESH:
            continue
        maintain(lane, row, history[i], expansions[i], table, multiplicity, work, vectors)
        theta, pull = row[THETA_HAT], row[PULL]
        if lane["status"] == LOST:
            lane["strayed"] = math.inf  # H contains observations that were removed
        carried = lane["status"] == MOVED and cholesky(H_of(row), 0.0, lower)
        if carried:
            solve_cholesky(lower, pull, step)
            length = norm(step)
            carried = lane["L"] * length <= 1.0  # for longer steps the linearisation is useless
            if carried:
                for j in range(theta.shape[0]):
                    theta[j] -= step[j]
                lane["strayed"] += length
        for _ in range(2):
            lane["slack"] = 0.0
            newton(lane, row, history[i], expansions[i], carried, work, buffers)
            lane["error"] += lane["slack"]
            if math.isfinite(lane["error"]) and lane["passes"] < MOST_PASSES:
                break
            carried = False  # no convergence (in a tail of the link): start again from 0
            for j in range(theta.shape[0]):
                theta[j] = 0.0
        for j in range(theta.shape[0]):
            pull[j] = 0.0
        lane["status"] = FRESH


@compiled
def solve_ridge_lanes(record: np.ndarray, dense: np.ndarray, work: np.ndarray) -> None:
    """Compute theta_hat = V^{-1} b in every lane where it is out of date. This is the root for the identity link."""
    lower = work[_LOWER]
    for i in range(len(record)):
        if record[i]["status"] != FRESH:
            row = dense[i]
            factorise(V_of(row), lower)
            solve_cholesky(lower, row[B], row[THETA_HAT])
            record[i]["status"] = FRESH

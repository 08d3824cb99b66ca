"""Confidence sets by likelihood: max <x, theta> over ||theta|| <= S, loss(theta) <= C, for every arm x.

The loss is sum w (B(<x_s, theta>) - r_s <x_s, theta>) + ridge ||theta||^2 / 2 with B' = mu. Its gradient is
g(theta) - b and its Hessian H(theta). The set is {theta in the ball: loss(theta) - loss(center) <= level}, where the
center minimises the loss over the ball.

**The dual.** For a multiplier s > 0 let theta(s) minimise loss(theta) - s <x, theta> over the ball, and let
-h(s) be the minimum. Then loss(theta(s)) increases with s, and every s bounds the value of an arm from above by

    max <x, theta> <= (C + h(s)) / s,        with equality where loss(theta(s)) = C.

A step takes one pass over the history. Newton's model of the loss at theta is a quadratic, whose minimiser over the
ball for a given s is known (:mod:`windvane.kernels.ball`). So s is first chosen such that the *model* has the loss C
there, without a pass, and theta moves to this minimiser, or part of the way if loss - s <x, theta> would not decrease.
The s of the model is found by Newton's method for sqrt(2 (loss - loss(center))) = sqrt(2 level), which is linear in s
where the ball does not matter. Three or four steps are usual. If FREE_STEPS were not enough, s is fixed until theta is
near theta(s), and then bracketed, so that the search ends.

**Certificate.** Let a step of Newton's model decrease it by p. For |mu''| <= rho mu' (rho = 1 for logistic and Poisson,
0 for identity) the loss is at least its model with H / (1 + rho S L) in place of H anywhere in the ball, so theta is
within (1 + rho S L) p of the minimum, which bounds h(s) from above. A point of the set bounds the value from below: if
theta is outside, the point of the segment from the center to theta at which convexity proves that it is inside. Both
bounds hold wherever the search stops.

**Screening.** By the same inequality the set lies within ||theta - center||_H^2 <= 2 (1 + rho S L) level. This and
||theta|| <= S bound the value of every arm from above without a pass over the history. Arms are solved in the order of
these bounds until the best value found exceeds the bounds of all others, and the search for an arm ends when its upper
bound is below that value.

A search starts from the center, which depends only on the history. It never starts from another arm or an earlier
round, so equal arms have equal values.
"""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels.ball import ball_quadratic
from windvane.kernels.elementary import bend_ratio
from windvane.kernels.expansion import LARGEST_BEND, gram_at, mean_at, primitive_at
from windvane.kernels.jit import compiled, compiled_inner
from windvane.kernels.lanes import LEVELS, THETA_HAT, B
from windvane.kernels.linalg import ROUNDING, cholesky, copy, copy_matrix, dot, factorise, norm, solve_lower
from windvane.kernels.scoring import TIE
from windvane.kernels.sums import SLOPE_GRAM

CENTER_IN_BALL, CENTER_AND_ROOT = range(2)  # programs: is the minimiser over all theta needed, too?
LOSS, LEVEL, RESIDUAL = range(3)  # columns of ``centers``; then come theta_hat and the center
CENTER = 3
UPPER, LOWER, PASSES = range(3)  # columns of ``plan``; then comes the point of the set with the lower bound
PLAN = 3
NOT_SOLVED = -1.0  # in the column PASSES: the bound of the screening is below the value of another arm

MOST_STEPS = 100  # of Newton's method, for an arm or a center; it needs about 6
MOST_HALVINGS = 50
SUFFICIENT = 1e-4  # share of the predicted decrease that a step must achieve (Armijo)
UNRESOLVED = 1e-13  # relative to the loss: a smaller decrease is lost in rounding
SMALL_DECREASE = 1e-18  # relative to the level: the decrease of a step that ends the search for a center
STALLED = 1e-9  # relative to the level: below this, a decrease that does not become smaller is rounding
CERTIFIED = 1e-9  # relative to <x, theta - center>: distance of the bounds that ends the search for an arm
NEAR = 1.0 / 16.0  # theta is near theta(s) if the bound on its suboptimality is this share of (C - loss)^2 / level
LOST = 1e-29  # relative to the loss: a smaller decrease moves theta by less than its rounding
FREE_STEPS = 20  # after which s changes only once theta is near theta(s), so that the search must end
MOST_MATCHES = 50
MATCHED = 1e-11  # relative to the level and to s: how exactly the model is matched
LARGEST_FACTOR = 1e3  # by which s changes at once

# Matrices of the workspace. A vector uses the first row of its matrix.
_G, _TRIAL_G, _TRIAL, _CURRENT, _LINEAR, _MODEL, _SCRATCH, _ZERO, _OTHER, _CENTER_G = range(10)
_H, _CENTER_H, _LOWER, _SPARE = range(10, 14)


@compiled_inner
def _evaluate(
    lane: np.void, row: np.ndarray, rows: np.ndarray, expansion: np.ndarray, work: np.ndarray, buffers: np.ndarray
) -> float:
    """Return the loss at the trial point, up to a constant. Its gradient is left in the workspace.

    The constant depends on how many levels of the expansion are used. If another number is needed here than before, the
    lane becomes ``mixed``, and all that was evaluated so far must be evaluated again.
    """
    theta, g, b = work[_TRIAL, 0], work[_TRIAL_G, 0], row[B]
    mean_at(lane, rows, expansion, theta, buffers, g, work[_SPARE])
    if lane["levels"] >= 0 and lane["expanded"] != lane["levels"]:
        lane["mixed"] = 1
        for number in range(LEVELS - min(lane["expanded"], lane["levels"])):
            lane["anchored"][number] = 0
    lane["levels"] = lane["expanded"]
    for j in range(theta.shape[0]):
        g[j] -= b[j]
    own = 0.5 * lane["ridge"] * dot(theta, theta) - dot(b, theta)
    return primitive_at(lane, rows, expansion, theta.shape[0], buffers, work[_SPARE]) + own


@compiled_inner
def _accept(lane: np.void, rows: np.ndarray, expansion: np.ndarray, work: np.ndarray, buffers: np.ndarray) -> None:
    """Make the trial point, which was evaluated last, the current one, and compute H there."""
    copy(work[_TRIAL, 0], work[_CURRENT, 0])
    copy(work[_TRIAL_G, 0], work[_G, 0])
    gram_at(SLOPE_GRAM, lane, rows, expansion, work[_TRIAL, 0], buffers, work[_H])


@compiled_inner
def _minimise_model(s: float, x: np.ndarray, radius: float, work: np.ndarray) -> tuple[float, float]:
    """Minimise Newton's model of loss - s <x, theta> over a ball. Return its decrease and the multiplier of the ball.

    The minimiser is left in the workspace.
    """
    H, g, current, model = work[_H], work[_G, 0], work[_CURRENT, 0], work[_MODEL, 0]
    linear, step = work[_LINEAR, 0], work[_OTHER, 0]
    d = x.shape[0]
    for i in range(d):
        linear[i] = dot(H[i], current) - g[i] + s * x[i]
    kappa = ball_quadratic(H, linear, radius, 0.0, model, work[_SPARE], work[_SCRATCH, 0])
    decrease = 0.0
    for i in range(d):
        step[i] = model[i] - current[i]
        decrease += step[i] * (s * x[i] - g[i])
    for i in range(d):
        decrease -= 0.5 * step[i] * dot(H[i], step)
    return max(decrease, 0.0), kappa


@compiled_inner
def _step(
    lane: np.void, row: np.ndarray, rows: np.ndarray, expansion: np.ndarray, s: float, x: np.ndarray, loss: float,
    decrease: float, work: np.ndarray, buffers: np.ndarray,
) -> float:  # fmt: skip
    """Move towards the minimiser of the model, as far as the objective decreases, and return the loss there."""
    current, model, trial = work[_CURRENT, 0], work[_MODEL, 0], work[_TRIAL, 0]
    along, share = 0.0, 1.0
    for j in range(x.shape[0]):
        along += s * x[j] * (model[j] - current[j])
    for _ in range(MOST_HALVINGS):
        for j in range(x.shape[0]):
            trial[j] = current[j] + share * (model[j] - current[j])
        new = _evaluate(lane, row, rows, expansion, work, buffers)
        change = new - loss - share * along
        if change <= -SUFFICIENT * share * decrease or decrease <= UNRESOLVED * abs(loss):
            break
        share *= 0.5
    _accept(lane, rows, expansion, work, buffers)
    return new


@compiled_inner
def _settle(
    lane: np.void, row: np.ndarray, rows: np.ndarray, expansion: np.ndarray, radius: float, work: np.ndarray,
    buffers: np.ndarray,
) -> tuple[float, float]:  # fmt: skip
    """Minimise the loss over a ball from the trial point. Return the minimum and the last step's decrease."""
    zero = work[_ZERO, 0]
    for j in range(zero.shape[0]):
        zero[j] = 0.0
    loss = _evaluate(lane, row, rows, expansion, work, buffers)
    _accept(lane, rows, expansion, work, buffers)
    decrease, last, level = math.inf, math.inf, max(lane["beta"], 1.0)
    for _ in range(MOST_STEPS):
        decrease, _kappa = _minimise_model(0.0, zero, radius, work)
        if lane["mixed"] == 1:
            break
        if decrease <= SMALL_DECREASE * level or (decrease <= STALLED * level and decrease > 0.5 * last):
            break
        last = decrease
        loss = _step(lane, row, rows, expansion, 0.0, zero, loss, decrease, work, buffers)
    return loss, decrease


@compiled_inner
def _find_center(
    program: int, lane: np.void, row: np.ndarray, rows: np.ndarray, expansion: np.ndarray, center: np.ndarray,
    work: np.ndarray, buffers: np.ndarray,
) -> None:  # fmt: skip
    """Find the center of a lane."""
    d, S, trial, current = row.shape[1], lane["S"], work[_TRIAL, 0], work[_CURRENT, 0]
    loss, decrease, excess = 0.0, 0.0, 0.0
    copy(row[THETA_HAT], trial)
    if program == CENTER_AND_ROOT:
        loss, decrease = _settle(lane, row, rows, expansion, math.inf, work, buffers)
        copy(current, center[CENTER : CENTER + d])
        copy(current, trial)
    length = norm(trial)
    if program == CENTER_IN_BALL or length > S:
        if length > S:
            for j in range(d):
                trial[j] *= S / length
        least = loss
        loss, decrease = _settle(lane, row, rows, expansion, S, work, buffers)
        excess = loss - least
    if program == CENTER_IN_BALL:
        copy(current, center[CENTER : CENTER + d])
        excess = 0.0
    copy(current, center[CENTER + d :])
    center[LOSS], center[LEVEL], center[RESIDUAL] = loss, lane["beta"] - max(excess, 0.0), decrease


@compiled
def center_lanes(
    program: int, centers: np.ndarray, record: np.ndarray, dense: np.ndarray, history: np.ndarray,
    expansions: np.ndarray, work: np.ndarray, buffers: np.ndarray,
) -> None:  # fmt: skip
    """Find the center of every lane: the minimiser of the loss over the ball.

    The level is ``beta``. CENTER_AND_ROOT: the loss may exceed that of theta_hat, its minimiser over all theta, by
    ``beta``, and the level is what is left of it at the center. Otherwise theta_hat is the center. The searches start
    from the root of the estimator.
    """
    for i in range(len(record)):
        lane = record[i]
        for _ in range(1 + LEVELS):
            lane["levels"], lane["mixed"] = -1, 0
            _find_center(program, lane, dense[i], history[i], expansions[i], centers[i], work, buffers)
            if lane["mixed"] == 0:
                break


@compiled_inner
def _response(x: np.ndarray, kappa: float, work: np.ndarray) -> float:
    """Return p, the derivative of the model's loss at its minimiser theta(s) with respect to s^2 / 2.

    It is x'Ax without the part along theta if the multiplier kappa of the ball is positive. A is the inverse of H +
    kappa I.
    """
    H, lower, u, v = work[_H], work[_LOWER], work[_SCRATCH, 0], work[_OTHER, 0]
    if not cholesky(H, kappa, lower):
        factorise(H, lower)
    solve_lower(lower, x, u)
    p = dot(u, u)
    if kappa > 0.0:
        solve_lower(lower, work[_MODEL, 0], v)
        length = dot(v, v)
        if length > 0.0:
            p -= dot(u, v) ** 2 / length
    return p


@compiled_inner
def _match_model(
    s: float, low: float, high: float, x: np.ndarray, loss: float, center: np.ndarray, radius: float, work: np.ndarray
) -> float:
    """Return s between ``low`` and ``high`` at which the minimiser of the model of loss - s <x, theta> has loss C.

    Newton's method for sqrt(2 (loss - loss(center))) = sqrt(2 level), inside a bracket. Without ``high``, s grows
    by at most a factor.
    """
    current, model, level = work[_CURRENT, 0], work[_MODEL, 0], center[LEVEL]
    least, most = max(low, s / LARGEST_FACTOR), min(high, s * LARGEST_FACTOR)
    first, last = least, most
    for _ in range(MOST_MATCHES):
        decrease, kappa = _minimise_model(s, x, radius, work)
        grown = loss - center[LOSS] - decrease + s * (dot(x, model) - dot(x, current))
        if abs(grown - level) <= MATCHED * level or last - first <= MATCHED * s:
            break
        if grown < level:
            first = max(first, s)
        else:
            last = min(last, s)
        p, candidate = _response(x, kappa, work), math.inf
        if grown > 0.0 and p > 0.0:
            y = math.sqrt(2.0 * grown)
            candidate = s + (math.sqrt(2.0 * level) - y) * y / (s * p)
        s = candidate if first < candidate < last else math.sqrt(first * last)
    return min(max(s, least), most)


@compiled_inner
def _loosen(lane: np.void) -> float:
    """Return the factor 1 + rho S L by which H is reduced in bounds, with a margin for the error of an expanded H."""
    reach = lane["S"] * lane["L"]
    return (1.0 + bend_ratio(lane["link"], reach) * reach) * (1.0 + 2.0 * LARGEST_BEND)


@compiled_inner
def _is_farthest_point(
    lane: np.void, row: np.ndarray, rows: np.ndarray, expansion: np.ndarray, x: np.ndarray, C: float, plan: np.ndarray,
    work: np.ndarray, buffers: np.ndarray,
) -> bool:  # fmt: skip
    """Return whether the point of the ball that is best for an arm is in the set. If so, it is the solution."""
    trial, S = work[_TRIAL, 0], lane["S"]
    length = norm(x)
    for j in range(x.shape[0]):
        trial[j] = x[j] * (S / length)
    plan[PASSES] += 1.0
    if _evaluate(lane, row, rows, expansion, work, buffers) > C:
        return False
    plan[UPPER] = plan[LOWER] = S * length
    copy(trial, plan[PLAN:])
    return True


@compiled_inner
def _bound(
    value: float, room: float, gap: float, s: float, center: np.ndarray, x: np.ndarray, current: np.ndarray,
    plan: np.ndarray,
) -> None:  # fmt: skip
    """Improve the bounds on the value of an arm, where <x, current> = ``value`` and C - loss(current) = ``room``."""
    d, level = x.shape[0], center[LEVEL]
    at_center = dot(x, center[CENTER + d :])
    plan[UPPER] = min(plan[UPPER], value + (room + gap) / s)
    share = 1.0 if room >= 0.0 else level / (level - room)  # of the segment from the center that is in the set
    if at_center + share * (value - at_center) > plan[LOWER]:
        plan[LOWER] = at_center + share * (value - at_center)
        for j in range(d):
            plan[PLAN + j] = center[CENTER + d + j] + share * (current[j] - center[CENTER + d + j])
    plan[UPPER] = max(plan[UPPER], plan[LOWER])  # the bounds may cross by a rounding error


@compiled_inner
def _search(
    lane: np.void, row: np.ndarray, rows: np.ndarray, expansion: np.ndarray, x: np.ndarray, center: np.ndarray,
    target: float, plan: np.ndarray, work: np.ndarray, buffers: np.ndarray,
) -> None:  # fmt: skip
    """Bound the value of an arm from both sides until the bounds meet, or the upper one is below ``target``.

    ``plan`` holds the bounds of the screening. The workspace holds the gradient and the Hessian at the center.
    """
    d, S, level, length = x.shape[0], lane["S"], center[LEVEL], norm(x)
    current, at_center, loss = work[_CURRENT, 0], plan[LOWER], center[LOSS]
    C = loss + level
    plan[PASSES] = 0.0
    if level <= 0.0 or length == 0.0:
        return
    if plan[UPPER] >= S * length and _is_farthest_point(lane, row, rows, expansion, x, C, plan, work, buffers):
        return
    copy(center[CENTER + d :], current)
    copy(work[_CENTER_G, 0], work[_G, 0])
    copy_matrix(work[_CENTER_H], work[_H])
    loose = _loosen(lane)
    low, high, s, is_near = 0.0, math.inf, level / (S * length), False
    for number in range(MOST_STEPS):
        if number < FREE_STEPS or is_near:
            s = _match_model(s, low, high, x, loss, center, S, work)
        decrease, _kappa = _minimise_model(s, x, S, work)
        room = C - loss
        if lane["mixed"] == 1:
            return
        _bound(dot(x, current), room, loose * decrease, s, center, x, current, plan)
        accuracy = CERTIFIED * (plan[UPPER] - at_center) + ROUNDING * S * length
        if plan[UPPER] - plan[LOWER] <= accuracy or plan[UPPER] < target:
            return
        is_near = loose * decrease <= NEAR * room * room / level
        if is_near:
            low, high = (s, high) if room > 0.0 else (low, s)
        elif decrease <= LOST * abs(loss):
            return
        loss = _step(lane, row, rows, expansion, s, x, loss, decrease, work, buffers)
        plan[PASSES] += 1.0


@compiled_inner
def _screen(lane: np.void, arms: np.ndarray, center: np.ndarray, work: np.ndarray, plan: np.ndarray) -> None:
    """Bound the values of all arms of a lane by the ball and by an ellipsoid around the center."""
    d, S, lower, scaled = arms.shape[1], lane["S"], work[_LOWER], work[_OTHER, 0]
    reach = math.sqrt(2.0 * _loosen(lane) * max(center[LEVEL], 0.0))
    factorise(work[_CENTER_H], lower)
    for k in range(arms.shape[0]):
        x, bounds = arms[k], plan[k]
        solve_lower(lower, x, scaled)
        bounds[LOWER] = dot(x, center[CENTER + d :])
        bounds[UPPER] = max(min(S * norm(x), bounds[LOWER] + reach * norm(scaled)), bounds[LOWER])
        bounds[PASSES] = NOT_SOLVED
        copy(center[CENTER + d :], bounds[PLAN:])


@compiled_inner
def _find_best(
    lane: np.void, row: np.ndarray, rows: np.ndarray, expansion: np.ndarray, arms: np.ndarray, valid: np.ndarray,
    center: np.ndarray, plan: np.ndarray, work: np.ndarray, buffers: np.ndarray,
) -> None:  # fmt: skip
    """Solve the arms of a lane in the order of their bounds, until no other one can be the best."""
    copy(center[CENTER + arms.shape[1] :], work[_TRIAL, 0])
    center[LOSS] = _evaluate(lane, row, rows, expansion, work, buffers)
    _accept(lane, rows, expansion, work, buffers)
    copy(work[_G, 0], work[_CENTER_G, 0])
    copy_matrix(work[_H], work[_CENTER_H])
    _screen(lane, arms, center, work, plan)
    best, target = -math.inf, -math.inf
    for _ in range(arms.shape[0]):
        first, bound = -1, -math.inf
        for k in range(arms.shape[0]):
            if valid[k] and plan[k, PASSES] == NOT_SOLVED and plan[k, UPPER] > bound:
                first, bound = k, plan[k, UPPER]
        if first < 0 or bound < target:
            break
        _search(lane, row, rows, expansion, arms[first], center, target, plan[first], work, buffers)
        if lane["mixed"] == 1:
            break
        best = max(best, plan[first, LOWER])
        target = best - TIE * max(1.0, abs(best))


@compiled
def maximise_lanes(
    arms: np.ndarray,
    valid: np.ndarray,
    centers: np.ndarray,
    plans: np.ndarray,
    record: np.ndarray,
    dense: np.ndarray,
    history: np.ndarray,
    expansions: np.ndarray,
    work: np.ndarray,
    buffers: np.ndarray,
) -> None:
    """Bound max <x, theta> over the set for all arms of every lane, tightly for the valid arms that can be the best.

    The bounds of the best arm differ by at most CERTIFIED <x, theta - center> unless rounding prevents it. A set whose
    level is not positive is replaced by its center.
    """
    for i in range(len(record)):
        lane = record[i]
        for _ in range(1 + LEVELS):
            lane["levels"], lane["mixed"] = -1, 0
            _find_best(
                lane, dense[i], history[i], expansions[i], arms[i], valid[i], centers[i], plans[i], work, buffers
            )
            if lane["mixed"] == 0:
                break

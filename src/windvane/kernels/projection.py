"""Projection onto the ball ||theta|| <= S: the programs, and one Newton method over the ball that minimises them.

Every program minimises f(theta) = ||rho(theta)||^2 / 2 over the ball:

* P0: rho = M^{-1/2} (g(theta) - b), for the metric M = V or M = V_tilde.
* P0 in H: the same with M = H(theta), a metric that changes with theta.
* P2: rho = V^{-1} (g(theta) - b) + A eta(theta), A = beta V^{-1} V_tilde^{1/2}, where eta(theta) is the best point of
  the unit ball. It solves a least-squares problem over the ball, in closed form up to one scalar equation.

Gradient and Hessian, with u = M^{-1}(g - b) for P0 and u = V^{-1} rho for P2, Q = sum w mu'' <x, u> x x' and
C = sum w mu''' <x, u>^2 x x':

==========  =================  ==========================================  =============================================
program     gradient           Gauss-Newton part of the Hessian            rest of the Hessian
==========  =================  ==========================================  =============================================
P0          H u                J'J, J = M^{-1/2} H                         Q
P0 in H     H u - Q u / 2      H - Q + Q H^{-1} Q                          -C / 2
P2          H u                J' D J, J = V^{-1} H                        Q
==========  =================  ==========================================  =============================================

with D = I - A G A' + (A G eta)(A G eta)' / (eta' G eta), G = (A'A + nu I)^{-1}, the derivative of the residual of the
projection onto the ellipsoid A Ball. (The gradient of P2 follows from the envelope theorem.) The Gauss-Newton parts are
positive semi-definite.

Newton's model over the ball is again a quadratic over a ball, which is minimised globally. If f does not decrease, the
model is damped as in the Levenberg-Marquardt method. On the sphere only the curvature along the sphere matters. If the
Hessian with the multiplier, B + kappa I, is not positive definite there, a multiple of theta theta' is added to B. This
changes the model along the sphere in fourth order only, and prevents its minimiser from jumping across the ball.

The programs are not convex. A solve starts from fixed points of the ball and never from the solution of an earlier
round, so results depend only on the history.
"""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels.ball import ball_quadratic
from windvane.kernels.expansion import apply_at, gram_at, mean_at
from windvane.kernels.jit import compiled, compiled_inner
from windvane.kernels.lanes import THETA_HAT, B, V_of, V_tilde_of
from windvane.kernels.linalg import (
    add_outer,
    cholesky,
    copy,
    copy_matrix,
    dot,
    factorise,
    mirror,
    norm,
    solve_cholesky,
    solve_lower,
)
from windvane.kernels.sums import BEND_GRAM, SLOPE_GRAM, THIRD_GRAM

P0_IN_V, P0_IN_V_TILDE, P0_IN_H, P2 = range(4)  # programs
VALUE, RESIDUAL, STAGE = range(3)  # columns of a report
REPORT = 3

MOST_STEPS = 60  # Newton's method needs about 5; in difficult cases, with damping, a few dozen
SMALL_STEP = 2e-6  # relative to S: after a Newton step this short the error is of order SMALL_STEP^2 = 4e-12
SMALL_RESIDUAL = 1e-12  # relative to S: rounding prevents a much smaller first-order residual
ON_SPHERE = 1.0 - 1e-12  # relative to S: a point at this radius or beyond counts as on the sphere
SUFFICIENT = 1e-4  # share of the predicted decrease that a step must achieve (Armijo)
UNRESOLVED = 1e-13  # relative to f: a smaller predicted decrease is lost in rounding
FIRST_DAMPING, NO_DAMPING = 1e-3, 1e-6  # relative to the Gauss-Newton part: first damping, and where damping ends
BETTER = 1.0 - 1e-9  # a later start replaces an earlier one only if its value is smaller by this factor
MOST_AXES = 4  # number of axes whose two ends are tried as starts

# Matrices of the workspace. A vector uses the first row of its matrix.
_G, _RHO, _U, _GRADIENT, _LINEAR, _TRIAL, _CURRENT, _ETA, _START, _START_ETA, _SCRATCH, _COLUMN = range(12)
_LOWER, _LOWER_M, _A, _GRAM, _H, _J, _DJ, _D, _Q, _B, _SPARE, _MODEL = range(12, 24)


@compiled_inner
def _fit_slack(work: np.ndarray) -> float:
    """Set rho = V^{-1} (g - b) + A eta at the best ||eta|| <= 1. Return the multiplier of eta; if 0, rho is zero."""
    rho, eta, linear = work[_RHO, 0], work[_ETA, 0], work[_LINEAR, 0]
    A = work[_A]
    d = rho.shape[0]
    solve_cholesky(work[_LOWER], work[_G, 0], rho)
    for i in range(d):
        linear[i] = 0.0
        for j in range(d):
            linear[i] -= A[j, i] * rho[j]
    nu = ball_quadratic(work[_GRAM], linear, 1.0, 0.0, eta, work[_SPARE], work[_SCRATCH, 0])
    for i in range(d):
        rho[i] = rho[i] + dot(A[i], eta) if nu > 0.0 else 0.0
    return nu


@compiled_inner
def _evaluate(
    program: int, lane: np.void, row: np.ndarray, rows: np.ndarray, expansion: np.ndarray, work: np.ndarray,
    buffers: np.ndarray,
) -> tuple[float, float]:  # fmt: skip
    """Return f at the trial point and the multiplier of eta. g - b, u and eta are left in the workspace."""
    g, u, b = work[_G, 0], work[_U, 0], row[B]
    mean_at(lane, rows, expansion, work[_TRIAL, 0], buffers, g, work[_SPARE])
    for i in range(b.shape[0]):
        g[i] -= b[i]
    lower = work[_LOWER]
    if program == P2:
        nu = _fit_slack(work)
        solve_cholesky(lower, work[_RHO, 0], u)
        return 0.5 * dot(work[_RHO, 0], work[_RHO, 0]), nu
    if program == P0_IN_H:
        gram_at(SLOPE_GRAM, lane, rows, expansion, u, buffers, work[_SPARE])
        factorise(work[_SPARE], lower)
    solve_cholesky(lower, g, u)
    return max(0.5 * dot(g, u), 0.0), 0.0


@compiled_inner
def _differentiate_distance(work: np.ndarray, eta: np.ndarray, nu: float) -> None:
    """Set D = I - A G A' + (A G eta)(A G eta)' / (eta' G eta) with G = (A'A + nu I)^{-1}."""
    A, lower = work[_A], work[_SPARE]
    half, D = work[_Q], work[_D]
    turned = work[_SCRATCH, 0]
    cholesky(work[_GRAM], nu, lower)  # positive definite because nu > 0
    for i in range(eta.shape[0]):
        solve_lower(lower, A[i], half[i])  # A G A' = half half'
    solve_lower(lower, eta, turned)
    weight = dot(turned, turned)
    for i in range(eta.shape[0]):
        along_i = dot(half[i], turned)
        for j in range(i + 1):
            D[i, j] = (1.0 if i == j else 0.0) - dot(half[i], half[j]) + along_i * dot(half[j], turned) / weight
    mirror(D)


@compiled_inner
def _form_gradient(
    program: int, lane: np.void, rows: np.ndarray, expansion: np.ndarray, work: np.ndarray, buffers: np.ndarray
) -> None:
    """Set H and the gradient at the current point, and for P0 in H also Q."""
    H, gradient, u = work[_H], work[_GRADIENT, 0], work[_U, 0]
    if program == P0_IN_H:
        copy_matrix(work[_SPARE], H)
        gram_at(BEND_GRAM, lane, rows, expansion, u, buffers, work[_Q])
    else:
        gram_at(SLOPE_GRAM, lane, rows, expansion, u, buffers, H)
    for i in range(u.shape[0]):
        gradient[i] = dot(H[i], u)
        if program == P0_IN_H:
            gradient[i] -= 0.5 * dot(work[_Q][i], u)


@compiled_inner
def _form_gauss_newton(program: int, eta: np.ndarray, nu: float, work: np.ndarray) -> float:
    """Set B to the Gauss-Newton part of the Hessian and return its Frobenius norm."""
    H, J, DJ = work[_H], work[_J], work[_DJ]
    hessian, Q = work[_B], work[_Q]
    lower, d = work[_LOWER], H.shape[0]
    source = Q if program == P0_IN_H else H
    for i in range(d):  # row i of J is the derivative along axis i; source is symmetric, so its rows are its columns
        if program == P2:
            solve_cholesky(lower, source[i], J[i])
        else:
            solve_lower(lower, source[i], J[i])
    if program == P2 and nu > 0.0:
        _differentiate_distance(work, eta, nu)
        for i in range(d):
            for j in range(d):
                DJ[i, j] = dot(J[i], work[_D][j])
    else:
        copy_matrix(J, DJ)
    size = 0.0
    for i in range(d):
        for j in range(i + 1):
            hessian[i, j] = dot(J[i], DJ[j])
            if program == P0_IN_H:
                hessian[i, j] += H[i, j] - Q[i, j]
            size += (1.0 if i == j else 2.0) * hessian[i, j] * hessian[i, j]
    mirror(hessian)
    return math.sqrt(size)


@compiled_inner
def _add_curvature(
    program: int, lane: np.void, rows: np.ndarray, expansion: np.ndarray, work: np.ndarray, buffers: np.ndarray
) -> float:
    """Add the rest of the Hessian to B and return the sum of the norms of its rows."""
    hessian, Q, u = work[_B], work[_Q], work[_U, 0]
    factor = -0.5 if program == P0_IN_H else 1.0
    gram_at(THIRD_GRAM if program == P0_IN_H else BEND_GRAM, lane, rows, expansion, u, buffers, Q)
    total = 0.0
    for i in range(u.shape[0]):
        total += abs(factor) * norm(Q[i])
        for j in range(u.shape[0]):
            hessian[i, j] += factor * Q[i, j]
    return total


@compiled_inner
def _take_step(S: float, kappa: float, damping: float, work: np.ndarray) -> tuple[float, float]:
    """Minimise the damped model over the ball. Set the trial point; return its distance and the predicted decrease."""
    hessian, model = work[_B], work[_MODEL]
    current, trial = work[_CURRENT, 0], work[_TRIAL, 0]
    gradient, linear = work[_GRADIENT, 0], work[_LINEAR, 0]
    d = current.shape[0]
    for i in range(d):  # the model around ``current``, as a quadratic in the new point instead of the step
        linear[i] = dot(hessian[i], current) + damping * current[i] - gradient[i]
        for j in range(d):
            model[i, j] = hessian[i, j] + (damping if i == j else 0.0)
    ball_quadratic(model, linear, S, kappa, trial, work[_SPARE], work[_SCRATCH, 0])
    predicted = 0.0
    square = 0.0
    for i in range(d):
        move = trial[i] - current[i]
        square += move * move
        predicted -= move * gradient[i]
        for j in range(d):
            predicted -= 0.5 * move * hessian[i, j] * (trial[j] - current[j])
    return math.sqrt(square), predicted


@compiled_inner
def descend(
    program: int,
    lane: np.void,
    row: np.ndarray,
    rows: np.ndarray,
    expansion: np.ndarray,
    work: np.ndarray,
    buffers: np.ndarray,
    theta: np.ndarray,
    eta: np.ndarray,
) -> tuple[float, float]:
    """Descend from ``theta`` (in the ball) to a stationary point, in place. Return its value and residual.

    The workspace holds the Cholesky factor of the metric M (P0) or of V (P2), and A and A'A (P2). The value is ||rho||,
    not its square. The residual is ||grad f + kappa theta|| divided by the norm of the last Gauss-Newton part, with the
    best multiplier kappa >= 0. It has the units of theta. ``eta`` is set to the best slack (P2) or to g(theta) - b
    (P0).
    """
    S, current, gradient = lane["S"], work[_CURRENT, 0], work[_GRADIENT, 0]
    copy(theta, work[_TRIAL, 0])
    f, residual = math.inf, math.inf
    size, predicted, damping = 0.0, 0.0, 0.0
    kappa = 0.0
    is_last = False
    for _ in range(MOST_STEPS):
        f_trial, nu = _evaluate(program, lane, row, rows, expansion, work, buffers)
        if not f_trial <= f - SUFFICIENT * predicted:  # written as `not x <= y` so that NaN is rejected
            if predicted <= UNRESOLVED * f:
                break
            damping = max(4.0 * damping, FIRST_DAMPING * size)
        else:
            if f < math.inf and f - f_trial > 0.5 * predicted:
                damping = 0.0 if damping < NO_DAMPING * size else damping / 8.0
            f = f_trial
            copy(work[_TRIAL, 0], current)
            copy(work[_ETA, 0] if program == P2 else work[_G, 0], eta)
            if is_last and program != P0_IN_H:
                apply_at(lane, rows, expansion, work[_U, 0], buffers, gradient, work[_SPARE])
            else:
                _form_gradient(program, lane, rows, expansion, work, buffers)
            is_on_sphere = norm(current) >= S * ON_SPHERE
            kappa = max(0.0, -dot(gradient, current) / (S * S)) if is_on_sphere else 0.0
            violation = 0.0
            for i in range(theta.shape[0]):
                violation += (gradient[i] + kappa * current[i]) ** 2
            violation = math.sqrt(violation)
            residual = violation / size if size > 0.0 else math.inf
            if is_last or f == 0.0 or residual <= SMALL_RESIDUAL * S:
                break
            size = _form_gauss_newton(program, eta, nu, work)
            residual = violation / size
            stiffness = size + _add_curvature(program, lane, rows, expansion, work, buffers)
            if is_on_sphere and not cholesky(work[_B], kappa, work[_SPARE]):
                add_outer(work[_B], 2.0 * stiffness / (S * S), current)
        length, predicted = _take_step(S, kappa, damping, work)
        is_last = damping == 0.0 and length <= SMALL_STEP * S
        if length == 0.0 or not predicted > 0.0:
            break
    copy(current, theta)
    return math.sqrt(2.0 * f), residual


@compiled_inner
def _set_start(number: int, theta_hat: np.ndarray, S: float, out: np.ndarray) -> None:
    """Set the ``number``-th start: S theta_hat/||theta_hat||, 0, the opposite of the first, then +-S e_i."""
    for i in range(out.shape[0]):
        out[i] = 0.0
    if number == 0 or number == 2:
        factor = S / norm(theta_hat) if number == 0 else -S / norm(theta_hat)
        for i in range(out.shape[0]):
            out[i] = factor * theta_hat[i]
    elif number > 2:
        out[(number - 3) // 2] = S if number % 2 == 1 else -S


@compiled_inner
def _set_slack_operator(beta: float, work: np.ndarray) -> None:
    """Set A = beta V^{-1} (Cholesky root of V_tilde) and A'A.

    Any root of V_tilde can be used: two roots differ by a rotation of eta, and a rotation maps the unit ball to itself.
    """
    A, gram, lower_M = work[_A], work[_GRAM], work[_LOWER_M]
    column, d = work[_COLUMN, 0], A.shape[0]
    for i in range(d):
        for j in range(d):
            column[j] = beta * lower_M[j, i]
        solve_cholesky(work[_LOWER], column, column)
        for j in range(d):
            A[j, i] = column[j]
    for i in range(d):
        for j in range(d):
            gram[i, j] = 0.0
            for k in range(d):
                gram[i, j] += A[k, i] * A[k, j]


@compiled
def project_lanes(
    program: int,
    theta: np.ndarray,
    eta: np.ndarray,
    report: np.ndarray,
    record: np.ndarray,
    dense: np.ndarray,
    history: np.ndarray,
    expansions: np.ndarray,
    work: np.ndarray,
    buffers: np.ndarray,
) -> None:
    """Find the canonical projection of theta_hat in every lane. ``eta`` refers to the Cholesky root of V_tilde.

    P0: stage 1 if theta_hat is admissible, otherwise stage 2, from the first start only. P2: stage 1 likewise; stage 2
    if the minimiser of P0 in V_tilde is within beta, because it then solves P2 with value 0; otherwise stage 3. Stage 2
    of P2 tries further starts only until a value is within beta. Stage 3 tries all starts, the first of which is the
    minimiser of stage 2.
    """
    d = theta.shape[1]
    lower = work[_LOWER]
    lower_M = work[_LOWER_M]
    start = work[_START, 0]
    start_eta = work[_START_ETA, 0]
    for i in range(len(record)):
        lane, row, rows = record[i], dense[i], history[i]
        S = lane["S"]
        value, residual = 0.0, 0.0
        for j in range(d):
            eta[i, j] = 0.0
            theta[i, j] = row[THETA_HAT, j]
        report[i, STAGE] = 1.0
        last_stage = 0 if norm(row[THETA_HAT]) <= S else 3 if program == P2 else 2
        stage_program, target = program, math.inf
        for stage in range(2, last_stage + 1):
            if stage == 2:
                _set_start(0, row[THETA_HAT], S, theta[i])  # so that theta is admissible in any case
                if program == P2:
                    stage_program, target = P0_IN_V_TILDE, lane["beta"]
                if program != P0_IN_H:
                    factorise(V_of(row) if program == P0_IN_V else V_tilde_of(row), lower)
                    copy_matrix(lower, lower_M)
            else:
                factorise(V_of(row), lower)
                _set_slack_operator(lane["beta"], work)
                stage_program, target = program, 0.0
            value, residual = math.inf, math.inf
            for number in range(3 + 2 * min(d, MOST_AXES)):
                if stage == 3 and number == 0:
                    copy(theta[i], start)
                else:
                    _set_start(number + 2 - stage, row[THETA_HAT], S, start)
                start_value, start_residual = descend(
                    stage_program, lane, row, rows, expansions[i], work, buffers, start, start_eta
                )
                if start_value < value * BETTER:
                    value, residual = start_value, start_residual
                    copy(start, theta[i])
                    copy(start_eta, eta[i])
                if value <= target:
                    break
            report[i, STAGE] = stage
            if program == P2 and stage == 2 and value <= lane["beta"]:
                for j in range(d):
                    eta[i, j] /= -lane["beta"]
                solve_lower(lower_M, eta[i], eta[i])
                value = 0.0
                break
        if program != P2:
            for j in range(d):
                eta[i, j] = 0.0
        report[i, VALUE], report[i, RESIDUAL] = value, residual

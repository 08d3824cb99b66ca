"""P0 and P2: minimisation over the ball ||theta|| <= S, one lane at a time.

Both programs minimise f(theta) = ||rho(theta)||^2 / 2 with

* P0: rho = M^{-1/2} (g(theta) - b), for a metric matrix M = V or V_tilde;
* P2: rho = V^{-1} (g(theta) - b) + A eta(theta), A = beta V^{-1} V_tilde^{1/2}, where eta(theta) is the best point of
  the unit ball: a ball-constrained least squares, closed form up to one scalar equation.

In both, grad f = H(theta) u with u = M^{-1}(g - b) or V^{-1} rho (for P2 by the envelope theorem), and

    Hessian f = J' D J + sum w mu''(<x,theta>) <x, u> x x',     J = M^{-1/2} H or V^{-1} H,

with D = I for P0 and D = I - A G A' + (A G eta)(A G eta)' / (eta' G eta), G = (A'A + nu I)^{-1}, the derivative of the
distance to the ellipsoid A Ball, for P2. Since Newton's model over the ball is itself a ball-constrained quadratic,
solved globally, the method is Newton's with that model, damped a la Levenberg and Marquardt when f does not go down.
On the sphere only the curvature along it counts; where the Hessian with the multiplier, B + kappa I, is not positive
definite, a multiple of theta theta' is added to B. Along the sphere that changes the model in fourth order only, and it
keeps the model's minimiser from jumping across the ball.
"""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels.jit import compiled, compiled_inner
from windvane.kernels.linalg import (
    add_outer,
    ball_quadratic,
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
from windvane.kernels.sums import bend_gram, mean_sums, slope_apply, slope_gram

MAX_STEPS = 60
SMALL_STEP = 2e-6  # a Newton step this short (relative to S) leaves an error of its square
SMALL_RESIDUAL = 1e-12


@compiled_inner
def _slack(
    gap: np.ndarray, lower_V: np.ndarray, A: np.ndarray, gram: np.ndarray, eta: np.ndarray, rho: np.ndarray
) -> float:
    """rho = V^{-1} gap + A eta at the best ||eta|| <= 1; returns eta's multiplier (0: rho is zero)."""
    d = gap.shape[0]
    linear = np.empty(d)
    work = np.empty((d, d))
    solve_cholesky(lower_V, gap, rho)
    for i in range(d):
        linear[i] = 0.0
        for j in range(d):
            linear[i] -= A[j, i] * rho[j]
    nu = ball_quadratic(gram, linear, 1.0, 0.0, eta, work)
    if nu == 0.0:
        rho[:] = 0.0
        return nu
    for i in range(d):
        rho[i] += dot(A[i], eta)
    return nu


@compiled_inner
def _distance_derivative(A: np.ndarray, gram: np.ndarray, eta: np.ndarray, nu: float, D: np.ndarray) -> None:
    """D = I - A G A' + (A G eta)(A G eta)' / (eta' G eta) with G = (A'A + nu I)^{-1}."""
    d = eta.shape[0]
    lower = np.empty((d, d))
    half = np.empty((d, d))  # row i = lower^{-1} (row i of A): A G A' = half half'
    turned = np.empty(d)
    cholesky(gram, nu, lower)  # nu > 0 makes the Gram matrix safely definite
    for i in range(d):
        solve_lower(lower, A[i], half[i])
    solve_lower(lower, eta, turned)
    weight = dot(turned, turned)
    for i in range(d):
        along_i = dot(half[i], turned)
        for j in range(i + 1):
            D[i, j] = (1.0 if i == j else 0.0) - dot(half[i], half[j]) + along_i * dot(half[j], turned) / weight
    mirror(D)


@compiled_inner
def minimise(
    two_metrics: bool,
    link: int,
    X: np.ndarray,
    W: np.ndarray,
    start: int,
    end: int,
    scale: float,
    ridge: float,
    b: np.ndarray,
    lower_M: np.ndarray,
    A: np.ndarray,
    gram: np.ndarray,
    S: float,
    buffers: np.ndarray,
    theta: np.ndarray,
    eta: np.ndarray,
) -> tuple[float, float]:
    """Descend from ``theta`` (in the ball) to a stationary point, in place; returns (value, first-order residual).

    ``lower_M`` is the Cholesky factor of M (P0) or of V (P2). The value is ||rho||, not its square; the residual is
    ||grad f + kappa theta|| / ||J' D J||_F with the best multiplier kappa >= 0 and the last J' D J formed, a length in
    the units of theta.
    ``eta`` receives the best slack (P2), or g(theta) - b (P0).
    """
    d = b.shape[0]
    g = np.empty(d)
    H = np.empty((d, d))
    rho = np.empty(d)
    u = np.empty(d)
    gradient = np.empty(d)
    J = np.empty((d, d))
    DJ = np.empty((d, d))
    D = np.empty((d, d))
    bend = np.empty((d, d))
    B = np.empty((d, d))
    work = np.empty((d, d))
    linear = np.empty(d)
    trial = np.empty(d)
    current = np.empty(d)
    best_eta = np.zeros(d)
    copy(theta, trial)
    f = math.inf
    size = 0.0
    promised = 0.0
    damping = 0.0
    kappa = 0.0
    nu = 0.0
    residual = math.inf
    last = False
    for _ in range(MAX_STEPS):
        mean_sums(link, X, W, start, end, scale, ridge, trial, buffers, g)
        for i in range(d):
            g[i] -= b[i]
        if two_metrics:
            nu = _slack(g, lower_M, A, gram, best_eta, rho)
            solve_cholesky(lower_M, rho, u)
            f_trial = 0.5 * dot(rho, rho)
        else:
            solve_cholesky(lower_M, g, u)
            f_trial = 0.5 * dot(g, u)
        if not f_trial <= f - 1e-4 * promised:
            if promised <= 1e-13 * f:  # below what rounding lets f resolve
                break
            damping = max(4.0 * damping, 1e-3 * size)
        else:
            if f < math.inf and f - f_trial > 0.5 * promised:
                damping = 0.0 if damping < 1e-6 * size else damping / 8.0
            f = f_trial
            copy(trial, current)
            copy(best_eta if two_metrics else g, eta)
            if last:
                slope_apply(X, W, start, end, scale, ridge, u, buffers, gradient)
            else:
                slope_gram(X, W, start, end, scale, ridge, buffers, H)
                mirror(H)
                for i in range(d):
                    gradient[i] = dot(H[i], u)
            kappa = 0.0
            if norm(current) >= S * (1.0 - 1e-12):
                kappa = max(0.0, -dot(gradient, current) / (S * S))
            violation = 0.0
            for i in range(d):
                violation += (gradient[i] + kappa * current[i]) ** 2
            violation = math.sqrt(violation)
            residual = violation / size if size > 0.0 else math.inf
            if last or f == 0.0 or residual <= SMALL_RESIDUAL * S:
                break
            for i in range(d):  # H is symmetric: its rows are its columns
                if two_metrics:
                    solve_cholesky(lower_M, H[i], J[i])
                else:
                    solve_lower(lower_M, H[i], J[i])
            # J now holds the transposed Jacobian: row i = d rho / d theta_i
            if two_metrics and nu > 0.0:
                _distance_derivative(A, gram, eta, nu, D)
                for i in range(d):
                    for j in range(d):
                        DJ[i, j] = dot(J[i], D[j])
            else:
                copy_matrix(J, DJ)
            size = 0.0
            for i in range(d):
                for j in range(i + 1):
                    B[i, j] = dot(J[i], DJ[j])
                    size += (1.0 if i == j else 2.0) * B[i, j] * B[i, j]
            size = math.sqrt(size)
            residual = violation / size
            bend_gram(link, X, W, start, end, scale, u, buffers, bend)
            for i in range(d):
                for j in range(i + 1):
                    B[i, j] += bend[i, j]
            mirror(B)
            if norm(current) >= S * (1.0 - 1e-12) and not cholesky(B, kappa, work):
                stiff = size
                for i in range(d):
                    stiff += norm(bend[i])
                add_outer(B, 2.0 * stiff / (S * S), current)
        # the model around `current`, as a quadratic in the new point itself
        for i in range(d):
            linear[i] = dot(B[i], current) + damping * current[i] - gradient[i]
            for j in range(d):
                bend[i, j] = B[i, j] + (damping if i == j else 0.0)
        ball_quadratic(bend, linear, S, kappa, trial, work)
        promised = 0.0
        length = 0.0
        for i in range(d):
            move = trial[i] - current[i]
            length += move * move
            promised -= move * gradient[i]
            for j in range(d):
                promised -= 0.5 * move * B[i, j] * (trial[j] - current[j])
        last = damping == 0.0 and math.sqrt(length) <= SMALL_STEP * S
        if length == 0.0 or not promised > 0.0:
            break
    copy(current, theta)
    return math.sqrt(2.0 * f), residual


@compiled
def _fixed_start(number: int, theta_hat: np.ndarray, S: float, out: np.ndarray) -> None:
    """The ``number``-th fixed start in the ball: S theta_hat/||theta_hat||, 0, the first's opposite, then +-S e_i."""
    for i in range(out.shape[0]):
        out[i] = 0.0
    if number == 0 or number == 2:
        factor = S / norm(theta_hat) if number == 0 else -S / norm(theta_hat)
        for i in range(out.shape[0]):
            out[i] = factor * theta_hat[i]
    elif number > 2:
        out[(number - 3) // 2] = S if number % 2 == 1 else -S


@compiled_inner
def _slack_operator(beta: float, lower_M: np.ndarray, lower_V: np.ndarray, A: np.ndarray, gram: np.ndarray) -> None:
    """A = beta V^{-1} (Cholesky root of M) and A'A: the ball of slacks as P2 sees it.

    Any root of M will do: roots differ by a rotation of eta, and the unit ball does not mind.
    """
    d = A.shape[0]
    column = np.empty(d)
    for i in range(d):
        for j in range(d):
            column[j] = beta * lower_M[j, i]
        solve_cholesky(lower_V, column, column)
        for j in range(d):
            A[j, i] = column[j]
    for i in range(d):
        for j in range(d):
            gram[i, j] = 0.0
            for k in range(d):
                gram[i, j] += A[k, i] * A[k, j]


@compiled_inner
def project(
    two_metrics: bool,
    link: int,
    X: np.ndarray,
    W: np.ndarray,
    start: int,
    end: int,
    scale: float,
    ridge: float,
    b: np.ndarray,
    M: np.ndarray,
    V: np.ndarray,
    beta: float,
    S: float,
    theta_hat: np.ndarray,
    buffers: np.ndarray,
    theta: np.ndarray,
    eta: np.ndarray,
) -> tuple[float, float, int]:
    """The canonical projection; returns (value, residual, stage). ``eta`` is relative to the Cholesky root of M.

    P0 (``two_metrics`` False): stage 1 if theta_hat is admissible, else 2; value in the metric M^{-1}.
    P2: M = V_tilde; stage 1, then 2 where the P0 minimiser in the metric V_tilde^{-1} lies within beta, then 3.
    """
    d = b.shape[0]
    for i in range(d):
        eta[i] = 0.0
    if norm(theta_hat) <= S:
        copy(theta_hat, theta)
        return 0.0, 0.0, 1
    lower = np.empty((d, d))
    lower_M = np.empty((d, d))
    A = np.empty((d, d))
    gram = np.empty((d, d))
    trial = np.empty(d)
    trial_eta = np.empty(d)
    value = math.inf
    residual = math.inf
    for i in range(d):
        theta[i] = theta_hat[i] * (S / norm(theta_hat))  # admissible whatever happens below
    factorise(M, lower_M)
    copy_matrix(lower_M, lower)
    for stage in range(2, 4):
        if stage == 3:
            factorise(V, lower)
            _slack_operator(beta, lower_M, lower, A, gram)
            value = math.inf
        for number in range(3 + 2 * min(d, 4)):
            if stage == 3 and number == 0:
                copy(theta, trial)  # the minimiser of stage 2 is the first start of stage 3
            else:
                _fixed_start(number + 2 - stage, theta_hat, S, trial)
            trial_value, trial_residual = minimise(
                stage == 3, link, X, W, start, end, scale, ridge, b, lower, A, gram, S, buffers, trial, trial_eta
            )
            if trial_value < value * (1.0 - 1e-9):
                value, residual = trial_value, trial_residual
                copy(trial, theta)
                copy(trial_eta, eta)
            # A stationary point within beta solves P2 exactly: more starts are tried only while there is none.
            if value == 0.0 or (stage == 2 and (not two_metrics or value <= beta)):
                break
        if not two_metrics:
            for i in range(d):
                eta[i] = 0.0
            return value, residual, 2
        if stage == 2 and value <= beta:
            for i in range(d):
                eta[i] /= -beta
            solve_lower(lower_M, eta, eta)
            return 0.0, residual, 2
    return value, residual, 3


@compiled
def project_lanes(
    lo: int,
    hi: int,
    two_metrics: bool,
    link: int,
    ridge: float,
    S: float,
    gamma: np.ndarray,
    clock: np.ndarray,
    span: np.ndarray,
    X: np.ndarray,
    W: np.ndarray,
    b: np.ndarray,
    M: np.ndarray,
    V: np.ndarray,
    beta: np.ndarray,
    theta_hat: np.ndarray,
    theta: np.ndarray,
    eta: np.ndarray,
    value: np.ndarray,
    residual: np.ndarray,
    stage: np.ndarray,
) -> None:
    """:func:`project` for the lanes lo <= lane < hi."""
    longest = 1
    for lane in range(lo, hi):
        longest = max(longest, span[lane, 1] - span[lane, 0])
    buffers = np.empty((3, longest))
    for lane in range(lo, hi):
        scale = gamma[lane] ** (clock[lane, 0] - clock[lane, 1])
        value[lane], residual[lane], stage[lane] = project(
            two_metrics,
            link,
            X[lane],
            W[lane],
            span[lane, 0],
            span[lane, 1],
            scale,
            ridge,
            b[lane],
            M[lane],
            V[lane],
            beta[lane],
            S,
            theta_hat[lane],
            buffers,
            theta[lane],
            eta[lane],
        )

"""P0 in the metric H^{-1}(theta): back to the ball ||theta|| <= S, where the metric moves with the point.

Wang, Zhao and Zhou (AISTATS 2023) project for SCB-WeightUCB by

    argmin over ||theta|| <= S of ||g(theta) - b|| in the metric H(theta)^{-1},

with g, H, b as in :mod:`windvane.estimation`. Write u = H^{-1}(g - b), Q = sum w mu''(z) <x,u> x x' and C =
sum w mu'''(z) <x,u>^2 x x', at z = <x, theta>. Then f = ||g - b||^2 / 2 in that metric has

    grad f = (H - Q/2) u,        Hessian f = H - Q + Q H^{-1} Q - C/2,

because du = (I - H^{-1} Q) dtheta. The first three terms of the Hessian make a positive semi-definite matrix; C needs
mu''', taken by differences, which costs no accuracy: it only steers the steps. As in
:mod:`windvane.kernels.projecting` a step minimises Newton's model over the ball, globally, damped when f does not go
down, and on the sphere only the curvature along it counts.

The program is not convex. A solve starts from S theta_hat/||theta_hat|| and, where more ``starts`` are asked for, from
other fixed points, never from an earlier answer; it ends in a stationary point, with its value (the norm, not its
square) and a first-order ``residual``: the projected gradient of f over the size of H - Q + Q H^{-1} Q, a length in the
units of theta.

It runs in Python on the compiled sums, one lane at a time, and only in lanes whose theta_hat lies outside the ball.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from windvane import kernels
from windvane._linalg import solve
from windvane.arguments import Array, check_positive
from windvane.estimation import DiscountedEstimator
from windvane.links import Link, get_link
from windvane.projection import LaneProjections, Projection, checked_history, solved_root

MAX_STEPS = 60
SMALL_STEP = 2e-6  # a Newton step this short (relative to S) leaves an error of its square
SMALL_RESIDUAL = 1e-12
ON_SPHERE = 1.0 - 1e-12
DIFFERENCE = 1e-4  # the step of the second difference of mu'


class _Program:
    """f, its gradient and its Hessian for one history."""

    def __init__(
        self, k: Any, link: Link, X: Array, W: Array, span: tuple[int, int], scale: float, ridge: float
    ) -> None:
        self.k, self.link, self.ridge = k, link, ridge
        self.history = X, W, span[0], span[1], scale
        self.dim, self.n = X.shape[0], span[1] - span[0]
        self.X, self.W = X[:, span[0] : span[1]], scale * W[span[0] : span[1]]
        self.buffers = np.empty((3, max(1, self.n)))

    def value(self, theta: Array, b: Array) -> float:
        """f at theta; what :meth:`derivatives` needs is kept."""
        self.gap, self.H = np.empty(self.dim), np.empty((self.dim, self.dim))
        self.k.mean_sums(self.link.code, *self.history, self.ridge, theta, self.buffers, self.gap)
        self.k.slope_gram(*self.history, self.ridge, self.buffers, self.H)
        self.k.mirror(self.H)
        self.gap -= b
        self.u = solve(self.H, self.gap)
        return 0.5 * float(self.gap @ self.u)

    def derivatives(self) -> tuple[Array, Array, Array]:
        """The gradient, the positive part of the Hessian and the Hessian, at the last point."""
        Q = np.empty((self.dim, self.dim))
        self.k.bend_gram(self.link.code, *self.history, self.u, self.buffers, Q)
        self.k.mirror(Q)
        model = self.H - Q + Q @ solve(self.H, Q)
        z, slope, h = self.buffers[0, : self.n], self.buffers[2, : self.n], DIFFERENCE
        third = (self.link.slope(z + h) - 2.0 * slope + self.link.slope(z - h)) / h**2
        C = (self.X * (self.W * third * np.square(self.u @ self.X))) @ self.X.T
        return self.H @ self.u - 0.5 * (Q @ self.u), model, model - 0.25 * (C + C.T)


def _minimise(program: _Program, b: Array, S: float, theta: Array) -> tuple[Array, float, float]:
    """Descend from ``theta`` (in the ball) to a stationary point: it, its value and its residual."""
    f, residual, damping, kappa, size = program.value(theta, b), math.inf, 0.0, 0.0, 0.0
    trial, work = np.empty_like(theta), np.empty((len(theta), len(theta)))
    fresh = True  # theta has just been reached
    for _ in range(MAX_STEPS):
        if fresh:
            gradient, positive_part, B = program.derivatives()
            on_sphere = float(np.linalg.norm(theta)) >= S * ON_SPHERE
            kappa = max(0.0, -float(gradient @ theta) / S**2) if on_sphere else 0.0
            size = float(np.linalg.norm(positive_part))
            residual = float(np.linalg.norm(gradient + kappa * theta)) / size
            if f == 0.0 or residual <= SMALL_RESIDUAL * S:
                break
            if on_sphere and not program.k.cholesky(B, kappa, work):
                B = B + 2.0 * (size + float(np.linalg.norm(B))) / S**2 * np.outer(theta, theta)
        damped = B + damping * np.eye(len(theta))
        program.k.ball_quadratic(damped, damped @ theta - gradient, S, kappa, trial, work)
        move = trial - theta
        promised = -float(move @ gradient) - 0.5 * float(move @ B @ move)
        if not promised > 0.0:
            break
        f_trial = program.value(trial, b)
        fresh = f_trial <= f - 1e-4 * promised
        if not fresh:
            if promised <= 1e-13 * f:  # below what rounding lets f resolve
                break
            damping = max(4.0 * damping, 1e-3 * size)
            continue
        if f - f_trial > 0.5 * promised:
            damping = 0.0 if damping < 1e-6 * size else damping / 8.0
        f, theta = f_trial, trial.copy()
    return theta, math.sqrt(2.0 * max(f, 0.0)), residual


def _starts(theta_hat: Array, S: float, count: int) -> list[Array]:
    """S theta_hat/||theta_hat||, 0, the first's opposite, then +-S e_i."""
    ray = S / float(np.linalg.norm(theta_hat)) * theta_hat
    axes = [sign * S * e for e in np.eye(len(theta_hat)) for sign in (1.0, -1.0)]
    return [ray, np.zeros_like(ray), -ray, *axes][:count]


def _project(program: _Program, b: Array, theta_hat: Array, S: float, starts: int) -> tuple[Array, float, float]:
    found = [_minimise(program, b, S, start) for start in _starts(theta_hat, S, starts)]
    return min(found, key=lambda solution: solution[1])


def p0_local(
    features: npt.ArrayLike,
    weights: npt.ArrayLike,
    b: npt.ArrayLike,
    S: float,
    ridge: float,
    link: str | Link,
    *,
    starts: int = 1,
) -> Projection:
    """argmin over ||theta|| <= S of ||g(theta) - b|| in the metric H(theta)^{-1}; arguments as for ``p0``."""
    link = get_link(link)
    S, ridge = check_positive("S", S), check_positive("ridge", ridge)
    X, W, b = checked_history(features, weights, b)
    theta_hat, error = solved_root(X, W, b, ridge, link)
    eta = np.zeros(len(b))
    if float(np.linalg.norm(theta_hat)) <= S:
        return Projection(theta_hat, eta, 0.0, error, 1)
    program = _Program(kernels.load(link), link, X, W, (0, len(W)), 1.0, ridge)
    theta, value, residual = _project(program, b, theta_hat, S, starts)
    return Projection(theta, eta, value, residual, 2)


def project_local(estimator: DiscountedEstimator, theta_hat: Array, S: float) -> LaneProjections:
    """The program for every lane of an estimator, from its current ``theta_hat``."""
    e = estimator
    theta, value, residual = theta_hat.copy(), np.zeros(e.lanes), np.zeros(e.lanes)
    outside = np.linalg.norm(theta_hat, axis=1) > S
    scale = e._gamma ** (e._clock[:, 0] - e._clock[:, 1])
    with e._lock:
        for lane in np.flatnonzero(outside):
            span = int(e._span[lane, 0]), int(e._span[lane, 1])
            program = _Program(e._k, e.link, e._X[lane], e._W[lane], span, float(scale[lane]), e.ridge)
            theta[lane], value[lane], residual[lane] = _project(program, e._b[lane], theta_hat[lane], S, 1)
    return LaneProjections(theta, value, residual, np.where(outside, 2, 1))

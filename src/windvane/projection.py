"""P0 and P2: back to the admissible ball ||theta|| <= S.

With g, b, V, V_tilde as in :mod:`windvane.estimation`:

* **P0** (Filippi et al. 2010): argmin over ||theta|| <= S of ||g(theta) - b|| in the metric M^{-1}, M = V.
* **P2** (Faury et al. 2021, Proposition 1): argmin over ||theta|| <= S, ||eta|| <= 1 of
  || g(theta) + beta V_tilde^{1/2} eta - b || in the metric V^{-2}, that is the 2-norm of V^{-1}(...). The slack eta
  absorbs what noise explains (*learning*, measured in V_tilde^{-1}); what is left is *tracking*, measured in V^{-2}.

P2 usually has many minimisers of value 0. The canonical one, so that results do not hang on a solver's whim:

1. ||theta_hat|| <= S: theta_hat itself, eta = 0, value 0.
2. else theta_1 = argmin over the ball of ||g(theta) - b|| in the metric V_tilde^{-1}; if that norm is at most beta,
   theta_1 with eta = V_tilde^{-1/2}(b - g(theta_1)) / beta solves P2 with value 0.
3. else P2 in full. Its value is then positive.

The programs are not convex in theta. A solve starts from S theta_hat/||theta_hat|| and other fixed points, never from
an earlier round's answer, and a Newton method runs to a stationary point; in stage 2 further starts are tried only
while none has come within beta, in stage 3 all are tried and the best kept. "Value" is the norm, not its square.
``residual`` is the projected gradient of value^2/2 divided by the size of its Gauss-Newton Hessian: a length in the
units of theta that is zero exactly at a stationary point. In stage 1 it is a bound on the error of theta_hat itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from windvane import kernels
from windvane.arguments import Array, check_array, check_positive
from windvane.estimation import DiscountedEstimator
from windvane.kernels.threads import over_lanes
from windvane.links import Link, get_link

PROGRAMS = ("P0", "P0 in V_tilde", "P2")  # P0 itself has the metric V^{-1}
_ROOT_TOLERANCE = 1e-10
_LARGEST = 1e15  # sums of larger numbers leave no digits to solve with


@dataclass(frozen=True)
class Projection:
    """A solution and what shows how good it is."""

    theta: Array
    eta: Array
    value: float
    residual: float
    stage: int


@dataclass(frozen=True)
class LaneProjections:
    """:class:`Projection` for many lanes: theta[lanes, dim], the others [lanes]."""

    theta: Array
    value: Array
    residual: Array
    stage: npt.NDArray[np.int64]


def p0(
    features: npt.ArrayLike,
    weights: npt.ArrayLike,
    b: npt.ArrayLike,
    metric: npt.ArrayLike,
    S: float,
    ridge: float,
    link: str | Link,
) -> Projection:
    """argmin over ||theta|| <= S of ||g(theta) - b|| in the metric ``metric``^{-1} (pass V, or V_tilde).

    A local one: the stationary point reached from S theta_hat/||theta_hat||.

    g(theta) = sum weights mu(<features, theta>) features + ridge theta, with ``features`` [n, d]. eta is zero.
    """
    return _solve(False, features, weights, b, metric, metric, 0.0, S, ridge, link)


def p2(
    features: npt.ArrayLike,
    weights: npt.ArrayLike,
    b: npt.ArrayLike,
    V: npt.ArrayLike,
    V_tilde: npt.ArrayLike,
    beta: float,
    S: float,
    ridge: float,
    link: str | Link,
) -> Projection:
    """The canonical solution of P2 (see the module's notes), with ``features`` [n, d] and ``ridge`` = lam c_mu."""
    beta = check_positive("beta", beta)
    return _solve(True, features, weights, b, V_tilde, V, beta, S, ridge, link)


def _solve(
    two_metrics: bool,
    features: npt.ArrayLike,
    weights: npt.ArrayLike,
    b: npt.ArrayLike,
    M: npt.ArrayLike,
    V: npt.ArrayLike,
    beta: float,
    S: float,
    ridge: float,
    link: str | Link,
) -> Projection:
    link = get_link(link)
    S, ridge = check_positive("S", S), check_positive("ridge", ridge)
    X, W, b = checked_history(features, weights, b)
    d = len(b)
    M, V = _metric("V_tilde" if two_metrics else "metric", M, d), _metric("V", V, d)
    theta_hat, error = solved_root(X, W, b, ridge, link)
    k, history, theta, eta = kernels.load(link), _one_lane(X, W, b), np.empty((1, d)), np.empty((1, d))
    value, residual, stage = np.empty(1), np.empty(1), np.empty(1, dtype=np.int64)
    found = theta, eta, value, residual, stage
    k.project_lanes(
        0, 1, two_metrics, link.code, ridge, S, *history, M[None], V[None], np.array([beta]), theta_hat[None], *found
    )
    if two_metrics:  # the kernel's eta belongs to the Cholesky root of V_tilde; ours to the symmetric one
        eigenvalues, Q = np.linalg.eigh(M)
        eta = (Q / np.sqrt(eigenvalues)) @ Q.T @ np.linalg.cholesky(M) @ eta[0]
    else:
        eta = eta[0]
    doubt = error if stage[0] == 1 else residual[0]
    return Projection(theta[0], eta, float(value[0]), float(doubt), int(stage[0]))


def checked_history(features: npt.ArrayLike, weights: npt.ArrayLike, b: npt.ArrayLike) -> tuple[Array, Array, Array]:
    """Features as [d, n], weights and b, if a program can be solved with them."""
    b = check_array("b", b, (None,))
    if len(b) == 0:
        raise ValueError("b has shape (0,): must have at least one entry")
    X = np.ascontiguousarray(check_array("features", features, (None, len(b))).T)
    W = check_array("weights", weights, (X.shape[1],))
    for name, array in (("features", X), ("weights", W), ("b", b)):
        bad = ~(np.abs(array) <= _LARGEST)  # not a number, too
        if bad.any():
            raise ValueError(f"{name}={float(array[bad][0])!r}: must be finite, at most {_LARGEST:g} in size")
    if (W < 0).any():
        raise ValueError(f"weights={float(W.min())!r}: must be at least 0")
    return X, W, b


def _one_lane(X: Array, W: Array, b: Array) -> tuple[npt.NDArray[Any], ...]:
    """A history as the kernels take it: discount, clock, span, features, weights, b."""
    return np.ones(1), np.zeros((1, 3)), np.array([[0, len(W), 0]]), X[None], W[None], b[None]


def solved_root(X: Array, W: Array, b: Array, ridge: float, link: Link) -> tuple[Array, float]:
    """theta_hat of a checked history, and a bound on its error."""
    d, k = len(b), kernels.load(link)
    longest = max(float(np.linalg.norm(X, axis=0).max()), 1e-300) if len(W) else 1.0
    theta_hat, error = np.zeros((1, d)), np.zeros(1)
    cold = np.zeros((1, d)), np.zeros((1, d, d)), np.full(1, k.LOST, dtype=np.int8), np.zeros(1, dtype=np.int64)
    k.solve_lanes(0, 1, link.code, ridge, longest, _ROOT_TOLERANCE, *_one_lane(X, W, b), theta_hat, *cold, error)
    return theta_hat[0], float(error[0])


def _metric(name: str, matrix: npt.ArrayLike, d: int) -> Array:
    matrix = check_array(name, matrix, (d, d))
    if not np.isfinite(matrix).all() or not np.allclose(matrix, matrix.T, rtol=1e-9, atol=0.0):
        raise ValueError(f"{name}: must be finite and symmetric")
    if np.linalg.eigvalsh(matrix).min() <= 0:
        raise ValueError(f"{name}: must be positive definite")
    return matrix


def project(estimator: DiscountedEstimator, program: str, theta_hat: Array, beta: Array, S: float) -> LaneProjections:
    """A program of :data:`PROGRAMS` for every lane of an estimator, from its current ``theta_hat``."""
    if program not in PROGRAMS:
        raise ValueError(f"program={program!r}: must be one of {', '.join(PROGRAMS)}")
    e, n = estimator, estimator.lanes
    theta, eta = np.empty((n, e.dim)), np.empty((n, e.dim))
    value, residual = np.empty(n), np.empty(n)
    stage = np.empty(n, dtype=np.int64)
    two_metrics = program == "P2"
    with e._lock:
        over_lanes(
            e._k.project_lanes,
            n,
            4 * e.pass_cost,
            two_metrics,
            e.link.code,
            e.ridge,
            S,
            e._gamma,
            e._clock,
            e._span,
            e._X,
            e._W,
            e._b,
            e._V if program == "P0" else e._V_tilde,
            e._V,
            beta,
            theta_hat,
            theta,
            eta,
            value,
            residual,
            stage,
        )
    return LaneProjections(theta, value, residual, stage)

"""The programs P0 and P2, which project theta_hat onto the ball ||theta|| <= S.

With g, b, V, V_tilde, H as in :mod:`windvane.estimation.mle`:

* **P0** (Filippi et al. 2010): argmin over ||theta|| <= S of ||g(theta) - b|| in the metric M^{-1}. M is V, or V_tilde,
  or H(theta) (Wang et al. 2023), which changes with theta.
* **P2** (Faury et al. 2021, Proposition 1): argmin over ||theta|| <= S, ||eta|| <= 1 of
  || g(theta) + beta V_tilde^{1/2} eta - b || in the metric V^{-2}, that is, the 2-norm of V^{-1}(...). The slack eta
  absorbs the part that noise explains (*learning*, measured in V_tilde^{-1}). The rest is *tracking*, measured in
  V^{-2}.

P2 usually has many minimisers, all with value 0. The canonical one is defined as follows, so that results do not depend
on solver internals:

1. If ||theta_hat|| <= S: theta_hat, with eta = 0 and value 0.
2. Otherwise let theta_1 = argmin over the ball of ||g(theta) - b|| in the metric V_tilde^{-1}. If that norm is at most
   beta, theta_1 with eta = V_tilde^{-1/2}(b - g(theta_1)) / beta solves P2 with value 0.
3. Otherwise solve P2 in full. Its value is then positive.

The programs are not convex in theta. A solve starts from S theta_hat/||theta_hat|| and other fixed points, never from
the solution of an earlier round, and Newton's method runs to a stationary point (:mod:`windvane.kernels.projection`).
Stage 2 tries further starting points only until one gives a norm of at most beta. Stage 3 tries all of them and keeps
the best. "Value" is the norm, not its square. ``residual`` is the projected gradient of value^2/2 divided by the norm
of its Gauss-Newton Hessian. It has the units of theta and is zero exactly at a stationary point. In stage 1 it is a
bound on the error of theta_hat.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from windvane.arguments import Array, check_array, check_positive
from windvane.documentation import documented
from windvane.errors import ArgumentError
from windvane.estimation import Projection as Projection
from windvane.estimation.expansion import Expansion
from windvane.kernels.custom import link_kernels
from windvane.kernels.lanes import BUFFERS, CHUNK, LEVELS, LOST, RECORD, VECTORS, WORK, B, dense_rows
from windvane.kernels.projection import P0_IN_H, P0_IN_V, P2, REPORT, RESIDUAL, STAGE
from windvane.linalg import is_symmetric
from windvane.links import Link, get_link

ROOT_TOLERANCE = 1e-10  # of theta_hat in ``p0`` and ``p2``: far below the accuracy that any use of the result needs
LARGEST = 1e15  # with larger numbers, rounding leaves the sums too few correct digits to solve with


@documented
def p0(
    features: ArrayLike, weights: ArrayLike, b: ArrayLike, metric: ArrayLike | None, S: float, ridge: float,
    link: str | Link,
) -> Projection:  # fmt: skip
    """Minimise ||g(theta) - b|| in the inverse of ``metric`` over ||theta|| <= S, to a local minimum.

    The result is the stationary point that Newton's method reaches from S theta_hat/||theta_hat||.

    Parameters
    ----------
    metric
        V or V_tilde, [d, d]; None for H(theta).

    >>> import numpy as np
    >>> p0(np.eye(2), [1.0, 1.0], [5.0, 0.0], np.eye(2), 1.0, 0.2, "logistic").theta.round(2)
    array([ 0.99, -0.12])
    """
    program = P0_IN_H if metric is None else P0_IN_V
    return _solve(program, (features, weights, b), {"metric": metric}, 1.0, S, ridge, link)


@documented
def p2(
    features: ArrayLike, weights: ArrayLike, b: ArrayLike, V: ArrayLike, V_tilde: ArrayLike, beta: float, S: float,
    ridge: float, link: str | Link,
) -> Projection:  # fmt: skip
    """Return the canonical solution of P2, as the module docstring defines it.

    Parameters
    ----------
    V, V_tilde
        The two metrics, [d, d].
    beta
        Confidence radius: how much of the misfit can be noise.

    >>> import numpy as np
    >>> print(p2(np.eye(2), [1.0, 1.0], [5.0, 0.0], np.eye(2), np.eye(2), 0.5, 1.0, 0.2, "logistic").stage)
    3
    """
    beta, metrics = check_positive("beta", beta), {"V": V, "V_tilde": V_tilde}
    return _solve(P2, (features, weights, b), metrics, beta, S, ridge, link)


def _solve(
    program: int, history: tuple[ArrayLike, ...], metrics: Mapping[str, ArrayLike | None], beta: float, S: float,
    ridge: float, link: str | Link,
) -> Projection:  # fmt: skip
    """Solve one program for a history that is passed as arrays, with the kernels for lanes."""
    link, S, ridge = get_link(link), check_positive("S", S), check_positive("ridge", ridge)
    X, W, b = _check_history(*history)
    d, n = X.shape
    longest = max(float(np.linalg.norm(X, axis=0).max()), 1e-300) if n else 1.0
    record, no_forgetting = np.zeros(1, RECORD), {"gamma": 1.0, "window": np.inf, "memory": np.inf, "scale": 1.0}
    settings = {"link": link.code, "S": S, "L": longest, "ridge": ridge, "root_tolerance": ROOT_TOLERANCE}
    for name, value in {**no_forgetting, **settings, "end": n, "status": LOST}.items():
        record[name] = value
    dense, rows = np.zeros((1, dense_rows(d, linearised=True), d)), np.zeros((1, d + 3, max(n, 1)))
    dense[0, B], rows[0, :d, :n], rows[0, d, :n] = b, X, W
    checked = [np.eye(d) if matrix is None else _check_metric(name, matrix, d) for name, matrix in metrics.items()]
    dense[0, VECTORS : VECTORS + d], dense[0, VECTORS + d : VECTORS + 2 * d] = checked[0], checked[-1]
    work, buffers, kernels = np.zeros((WORK, d, d)), np.zeros((BUFFERS, max(n, 1))), link_kernels(link.code, link)
    tables, expansions = Expansion().tables(d), np.zeros((1, LEVELS, 0))
    kernels.solve_lanes(*tables, record, dense, rows, expansions, work, buffers, np.zeros((0, CHUNK)))
    theta, eta, report = np.empty((1, d)), np.empty((1, d)), np.empty((1, REPORT))
    record["beta"] = beta
    kernels.project_lanes(program, theta, eta, report, record, dense, rows, expansions, work, buffers)
    if program == P2:  # the kernel's eta refers to the Cholesky root of V_tilde, ours to the symmetric root
        M = dense[0, VECTORS + d : VECTORS + 2 * d]
        eigenvalues, Q = np.linalg.eigh(M)
        eta[0] = (Q / np.sqrt(eigenvalues)) @ Q.T @ np.linalg.cholesky(M) @ eta[0]
    if report[0, STAGE] == 1:
        report[0, RESIDUAL] = record["error"][0]
    return Projection(theta[0], eta[0], report[0])


def _check_history(features: ArrayLike, weights: ArrayLike, b: ArrayLike) -> tuple[Array, Array, Array]:
    """Return features as [d, n], weights and b, checked."""
    b = check_array("b", b, (None,))
    if len(b) == 0:
        raise ArgumentError("b", b, "of at least one entry")
    X = np.ascontiguousarray(check_array("features", features, (None, len(b))).T)
    W = check_array("weights", weights, (X.shape[1],))
    for name, array in (("features", X), ("weights", W), ("b", b)):
        is_bad = ~(np.abs(array) <= LARGEST)  # written so that NaN is rejected
        if is_bad.any():
            raise ArgumentError(name, float(array[is_bad][0]), f"finite, at most {LARGEST:g} in size")
    if (W < 0).any():
        raise ArgumentError("weights", float(W.min()), "at least 0")
    return X, W, b


def _check_metric(name: str, matrix: ArrayLike, d: int) -> Array:
    matrix = check_array(name, matrix, (d, d))
    if not np.isfinite(matrix).all() or not is_symmetric(matrix) or np.linalg.eigvalsh(matrix).min() <= 0:
        raise ArgumentError(name, matrix, "finite, symmetric and positive definite")
    return matrix

"""The programs P0, P2 and P0 in the metric H(theta)^-1, solved by SciPy's SLSQP."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.linalg import norm, solve
from scipy.optimize import minimize

from naive.history import Array, H, NaiveLink, g, solve_theta_hat


def into_balls(z: Array, radii: list[float]) -> Array:
    pairs = zip(np.split(z, len(radii)), radii, strict=True)
    return np.concatenate([v * (R / max(R, float(norm(v)))) for v, R in pairs])


def slsqp(objective: Callable[[Array], tuple[float, Array]], start: Array, radii: list[float]) -> Array:
    """Minimise over a product of d-balls; objective returns its value and its gradient."""
    blocks = np.repeat(np.eye(len(radii)), len(start) // len(radii), axis=1)  # which ball holds coordinate i
    scale = norm(objective(start)[1]) + 1e-30  # the objective's unit: SLSQP's tolerances are absolute
    balls = {"type": "ineq", "fun": lambda z: np.square(radii) - blocks @ z**2, "jac": lambda z: -2 * blocks * z}
    result = minimize(
        lambda z: tuple(part / scale for part in objective(z)), start, jac=True, method="SLSQP",
        constraints=balls, options={"ftol": 1e-14, "maxiter": 200},
    )  # fmt: skip
    z = into_balls(result.x, radii)  # it may end outside by a rounding error
    step = objective(z)[1] / (norm(objective(z)[1]) + scale)
    if not norm(into_balls(z - step, radii) - z) <= 1e-5:  # a projected gradient step stays at a minimum
        raise RuntimeError(f"SLSQP: {result.message}")
    return z


def p0_objective(
    theta: Array, features: Array, weights: Array, b: Array, metric: Array, ridge: float, link: NaiveLink
) -> tuple[float, Array]:
    """f = |g(theta) - b|^2 / 2 in the norm of M^-1 (M the metric); its gradient is H M^-1 (g(theta) - b)."""
    gap = g(theta, features, weights, ridge, link) - b
    dual = solve(metric, gap)
    return 0.5 * float(gap @ dual), H(theta, features, weights, ridge, link) @ dual


def p0(
    features: Array, weights: Array, b: Array, metric: Array, S: float, ridge: float, link: NaiveLink,
    hat: Array | None = None,
) -> tuple[Array, float]:  # fmt: skip
    """P0 (Filippi's projection): the argmin over |theta| <= S of |g(theta) - b|_{metric^-1}, and the min."""
    if hat is None:  # a caller that has theta_hat need not pay for it again
        hat = solve_theta_hat(features, weights, b, ridge, link)
    if norm(hat) <= S:
        return hat, 0.0
    data = (features, weights, b, metric, ridge, link)
    theta = slsqp(lambda theta: p0_objective(theta, *data), S * hat / norm(hat), [S])
    return theta, float(np.sqrt(2 * p0_objective(theta, *data)[0]))


def symmetric_root(A: Array) -> Array:
    values, vectors = np.linalg.eigh(A)
    return (vectors * np.sqrt(values)) @ vectors.T


def p2_objective(
    theta: Array, eta: Array, features: Array, weights: Array, b: Array, V: Array, V_tilde: Array,
    beta: float, ridge: float, link: NaiveLink,
) -> tuple[float, Array]:  # fmt: skip
    """f = |V^-1 (g(theta) + beta V_tilde^(1/2) eta - b)|^2 / 2, and its gradient in (theta, eta)."""
    R = symmetric_root(V_tilde)
    gap = solve(V, g(theta, features, weights, ridge, link) + beta * R @ eta - b)
    dual = solve(V, gap)
    gradient = np.concatenate([H(theta, features, weights, ridge, link) @ dual, beta * R @ dual])
    return 0.5 * float(gap @ gap), gradient


def p2_full(
    features: Array, weights: Array, b: Array, V: Array, V_tilde: Array, beta: float, S: float, ridge: float,
    link: NaiveLink, starts: list[tuple[Array, Array]],
) -> tuple[Array, Array, float]:  # fmt: skip
    """P2 itself, over |theta| <= S and |eta| <= 1 jointly: the best (theta, eta, value) from the starts."""
    d, data, found = len(b), (features, weights, b, V, V_tilde, beta, ridge, link), []
    for start in starts:
        z = slsqp(lambda z: p2_objective(z[:d], z[d:], *data), np.concatenate(start), [S, 1.0])
        found.append((z[:d], z[d:], float(np.sqrt(2 * p2_objective(z[:d], z[d:], *data)[0]))))
    return min(found, key=lambda solution: solution[2])


def p2(
    features: Array, weights: Array, b: Array, V: Array, V_tilde: Array, beta: float, S: float, ridge: float,
    link: NaiveLink, hat: Array | None = None,
) -> tuple[Array, Array, float, int]:  # fmt: skip
    """P2 by the canonical rule, which settles its ties: (theta, eta, value, stage that settled it)."""
    if hat is None:
        hat = solve_theta_hat(features, weights, b, ridge, link)
    if norm(hat) <= S:
        return hat, np.zeros(len(b)), 0.0, 1  # g(hat) = b
    theta, distance = p0(features, weights, b, V_tilde, S, ridge, link, hat)
    gap = solve(symmetric_root(V_tilde), b - g(theta, features, weights, ridge, link))
    if distance <= beta:
        return theta, gap / beta, 0.0, 2  # g(theta) + beta V_tilde^(1/2) eta = b
    return *p2_full(features, weights, b, V, V_tilde, beta, S, ridge, link, [(theta, gap / norm(gap))]), 3


def h_value(theta: Array, X: Array, w: Array, b: Array, ridge: float, link: NaiveLink) -> float:
    """|g(theta) - b|^2 / 2 in the metric H(theta)^-1."""
    gap = g(theta, X, w, ridge, link) - b
    return 0.5 * float(gap @ solve(H(theta, X, w, ridge, link), gap))


def h_objective(theta: Array, *data: Any) -> tuple[float, Array]:
    """... and its gradient by central differences."""
    step = 1e-5 * np.eye(len(theta))
    gradient = [(h_value(theta + e, *data) - h_value(theta - e, *data)) / 2e-5 for e in step]
    return h_value(theta, *data), np.array(gradient)

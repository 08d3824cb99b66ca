"""Minimise a quadratic over a ball: the trust-region sub-problem."""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels.jit import compiled_inner
from windvane.kernels.linalg import ROUNDING, cholesky, dot, norm, solve_cholesky, solve_lower

MOST_STEPS = 60  # Newton on 1/||y|| needs about 5; bisection of the bracket at most 52
ON_SPHERE = 1e-13  # relative distance from the sphere at which the multiplier is accepted
HARD_CASE = 1e-9  # a larger relative distance from the sphere occurs in the hard case only
NO_MULTIPLIER = 1e-14  # relative to the matrix: a smaller one is rounding, and the minimiser is inside the ball
INVERSE_STEPS = 4  # steps of inverse iteration; few are needed, because the shift equals the eigenvalue up to rounding
ABOVE = 1.0 + 1e-12  # relative to the matrix: with a multiplier this much larger, all pivots stay positive


@compiled_inner
def ball_quadratic(
    matrix: np.ndarray,
    linear: np.ndarray,
    radius: float,
    guess: float,
    out: np.ndarray,
    lower: np.ndarray,
    scratch: np.ndarray,
) -> float:
    """Minimise y' matrix y / 2 - linear' y over ||y|| <= radius and return the multiplier kappa >= 0.

    More and Sorensen (1983): (matrix + kappa I) y = linear, where matrix + kappa I is positive semi-definite and kappa
    (radius - ||y||) = 0. Newton's method on 1/||y(kappa)|| finds the multiplier inside a bracket. The matrix can be
    indefinite. In the "hard case", linear is orthogonal to the eigenvectors of the smallest eigenvalue. Then such an
    eigenvector, found by inverse iteration, is added to reach the sphere.
    """
    d = linear.shape[0]
    size = 0.0
    smallest_diagonal = math.inf
    for i in range(d):
        total = 0.0
        for j in range(d):
            total += abs(matrix[i, j] if j <= i else matrix[j, i])
        size = max(size, total)
        smallest_diagonal = min(smallest_diagonal, matrix[i, i])
    low = max(0.0, -smallest_diagonal)
    high = max(norm(linear) / radius + size * ABOVE, 1e-300)
    kappa = min(max(guess, low), high)
    length = 0.0
    for i in range(d):
        out[i] = 0.0
    is_factored = False
    for _ in range(MOST_STEPS):
        is_factored = cholesky(matrix, kappa, lower)
        if not is_factored:
            low = max(low, kappa)
            kappa = max(math.sqrt(low * high), low + 0.01 * (high - low))
            continue
        solve_cholesky(lower, linear, out)
        length = norm(out)
        if kappa == 0.0 and length <= radius:
            return 0.0
        if abs(length - radius) <= ON_SPHERE * radius:
            break
        if length > radius:
            low = max(low, kappa)
        else:
            high = min(high, kappa)
        if high - low <= ROUNDING * high:
            break
        solve_lower(lower, out, scratch)
        shrink = dot(scratch, scratch)
        step = (length * length / shrink) * (length - radius) / radius if shrink > 0.0 else -kappa
        candidate = kappa + step
        if not (low < candidate < high):
            # Zero is a valid multiplier: the minimiser can be inside the ball.
            candidate = 0.0 if low == 0.0 and candidate <= 0.0 else 0.5 * (low + high)
        kappa = candidate
    if not is_factored and size > 0.0:  # the bracket has closed on an eigenvalue
        kappa = high
        cholesky(matrix, kappa, lower)
        solve_cholesky(lower, linear, out)
        length = norm(out)
    if size > 0.0 and length < radius * (1.0 - HARD_CASE) and kappa > NO_MULTIPLIER * size:
        _add_eigenvector(lower, radius, out, scratch)
        length = norm(out)
    if length > radius or (length > 0.0 and kappa > NO_MULTIPLIER * size):
        for i in range(d):
            out[i] *= radius / length
    return kappa


@compiled_inner
def _add_eigenvector(lower: np.ndarray, radius: float, out: np.ndarray, direction: np.ndarray) -> None:
    """Move ``out`` to the sphere along the eigenvector of the smallest eigenvalue of lower lower'."""
    d = out.shape[0]
    for i in range(d):
        direction[i] = 1.0 + 0.1 * i  # any starting vector that is not orthogonal to the eigenvector
    for _ in range(INVERSE_STEPS):
        solve_cholesky(lower, direction, direction)
        length = norm(direction)
        for i in range(d):
            direction[i] /= length
    along = dot(out, direction)
    reach = math.sqrt(max(along * along + radius * radius - dot(out, out), 0.0))
    step = reach - along if along >= 0.0 else -reach - along
    for i in range(d):
        out[i] += step * direction[i]

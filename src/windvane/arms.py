"""Infinite arm sets, and the best arm in them.

The optimistic index of an arm is mu(<x, theta>) + factor ||x||_M. Maximising it over a ball or a sphere of radius r is
not convex, but it reduces to one dimension. Write x = r (cos(phi) e + sin(phi) y) with e = theta/||theta|| and y
a unit vector orthogonal to e. The prediction depends on phi alone, and for a fixed phi the best y maximises a quadratic
on a sphere: an eigenvalue problem with a solution in closed form up to a scalar secular equation (More and Sorensen
1983). So phi in [0, pi] is searched on a grid that is then refined. For fixed <x, theta> the index is convex in the
rest of x, so the best arm of the ball is on the sphere too (for dim >= 2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from windvane.arguments import Array, check_positive
from windvane.documentation import documented

# The index may have several local maxima in phi: one near theta and one at the widest direction on either side. A grid
# of 2**9 intervals (0.35 degrees) separates them; the three best are refined.
_GRID = 2**9 + 1
_PEAKS = 3
# A refinement splits two intervals into 2**6, that is, makes them 2**5 times narrower. Five of them reduce pi / 2**9 to
# 2e-10, where the index, flat at its maximum, differs from its best value by the square: less than rounding.
_ZOOM = 2**6 + 1
_REFINEMENTS = 5
# Halvings of [0, ||pull||]: 53 for the digits of a double, and 17 more so that a root up to 1e5 times smaller than
# ||pull|| also has all of them.
_BISECTIONS = 70
_NO_DIRECTION = 1e-150  # if ||theta|| r is smaller, its square almost underflows, and every arm predicts mu(0)


@dataclass(frozen=True)
class _HasRadius:
    radius: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", check_positive("radius", self.radius))


@documented
class Sphere(_HasRadius):
    """All arms of norm exactly ``radius``.

    >>> Sphere(0.5)
    Sphere(radius=0.5)
    """


@documented
class Ball(_HasRadius):
    """All arms of norm at most ``radius``.

    >>> Ball(1)
    Ball(radius=1.0)
    """


ArmSet = Ball | Sphere
Function = Callable[[Array], Array]


@documented
def best_arm(arm_set: ArmSet, theta: Array, M: Array, factor: float, mean: Function, coin: float) -> Array:
    """Return the arm in the set that maximises mean(<x, theta>) + factor sqrt(x' M x); arguments are not checked.

    Parameters
    ----------
    theta, M, factor
        The parameter, [dim], the metric of the widths, positive semi-definite, and the factor of the widths.
    mean
        The inverse link function, vectorised.
    coin
        A number in [0, 1) that chooses between mirror images of equal index.

    >>> best_arm(Sphere(2.0), np.array([1.0, 0.0]), np.eye(2), 1.0, lambda z: z, coin=0.0)
    array([2., 0.])
    """
    r, sign, length = arm_set.radius, 1.0 if coin < 0.5 else -1.0, float(np.linalg.norm(theta))
    if len(theta) == 1:
        slope = factor * float(np.sqrt(M[0, 0]))

        def index(x: Array) -> Array:
            return mean(x * theta[0]) + slope * np.abs(x)

        ends = np.array([-r, r])
        x = _maximise(index, np.linspace(-r, r, _GRID)) if isinstance(arm_set, Ball) else ends[np.argmax(index(ends))]
        mirror = sign * abs(x)
        return np.array([mirror if index(np.array([mirror]))[0] >= index(np.array([x]))[0] else x])
    if length * r < _NO_DIRECTION:  # the widest arm is the best
        return np.asarray(sign * r * np.linalg.eigh(M)[1][:, -1])
    circle = _Circle(theta / length, r, r * length, M, factor, mean)
    return circle.arm(_maximise(circle, np.linspace(0.0, np.pi, _GRID)), sign)


def _maximise(function: Function, grid: Array) -> float:
    """Return the maximiser over an interval, by refining the grid around its best local maxima."""
    values = function(grid)
    padded = np.concatenate([[-np.inf], values, [-np.inf]])
    peaks = np.flatnonzero((values >= padded[:-2]) & (values >= padded[2:]))
    best_value, best = -np.inf, float(grid[0])
    for peak in peaks[np.argsort(-values[peaks], kind="stable")][:_PEAKS]:
        low, high = grid[max(peak - 1, 0)], grid[min(peak + 1, len(grid) - 1)]
        for _ in range(_REFINEMENTS):
            fine = np.linspace(low, high, _ZOOM)
            fine_values = function(fine)
            at = int(np.argmax(fine_values))
            low, high = fine[max(at - 1, 0)], fine[min(at + 1, _ZOOM - 1)]
        if fine_values[at] > best_value:
            best_value, best = float(fine_values[at]), float(fine[at])
    return best


class _Circle:
    """The index as a function of the angle phi to theta, maximised over the rest of x."""

    def __init__(self, e: Array, radius: float, reach: float, M: Array, factor: float, mean: Function) -> None:
        self.e, self.radius, self.reach, self.factor, self.mean = e, radius, reach, factor, mean
        basis = np.linalg.svd(e[None])[2][1:].T  # orthonormal basis of the complement of e
        self.along = float(e @ M @ e)
        self.eigenvalues, Q = np.linalg.eigh(basis.T @ M @ basis)
        self.directions = basis @ Q
        self.cross = self.directions.T @ M @ e

    def _best_y(self, phi: Array, sign: float = 1.0) -> Array:
        """Return for each phi the unit y, in eigen-coordinates, that maximises s^2 y'Cy + 2 c s <cross, y>.

        The kernel ``ball_quadratic`` solves the same kind of secular equation for one matrix by Newton's method with a
        factorisation per step. Here the eigenvalues are computed once, and one bisection serves all phi of a grid.
        """
        c, s = np.cos(phi)[:, None], np.sin(phi)[:, None]
        pull = c * s * self.cross
        poles = s * s * self.eigenvalues
        low, high, tiny = np.zeros(len(phi)), np.linalg.norm(pull, axis=1), np.finfo(float).tiny
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            gaps = np.maximum((poles[:, -1:] - poles) + middle[:, None], tiny)
            with np.errstate(over="ignore"):  # an infinite norm counts as outside
                outside = np.sum((pull / gaps) ** 2, axis=1) > 1.0
            low, high = np.where(outside, middle, low), np.where(outside, high, middle)
        gaps = np.maximum((poles[:, -1:] - poles) + high[:, None], tiny)
        y = pull / gaps  # of norm at most 1, since `high` is never outside
        missing = 1.0 - np.sum(y[:, :-1] ** 2, axis=1)  # in the hard case the rest goes along the widest direction
        top = np.sqrt(np.maximum(missing, 0.0))
        y[:, -1] = np.where(y[:, -1] == 0.0, sign, np.sign(y[:, -1])) * top
        return np.asarray(y / np.maximum(np.linalg.norm(y, axis=1, keepdims=True), tiny))

    def __call__(self, phi: Array) -> Array:
        c, s = np.cos(phi), np.sin(phi)
        y = self._best_y(phi)
        square = c * c * self.along + 2 * c * s * (y @ self.cross) + s * s * (y * y @ self.eigenvalues)
        return np.asarray(self.mean(self.reach * c) + self.factor * self.radius * np.sqrt(np.maximum(square, 0.0)))

    def arm(self, phi: float, sign: float) -> Array:
        y = self._best_y(np.array([phi]), sign)[0]
        x = np.cos(phi) * self.e + np.sin(phi) * (self.directions @ y)
        return np.asarray(self.radius * x / np.linalg.norm(x))

"""The best arm of an infinite set by grids and many-start ascent that share nothing with the library."""

import numpy as np
import pytest
from scipy.optimize import minimize

import naive
from windvane import Ball, Sphere

SETS = [Ball, Sphere]
NEUTRAL = {"logistic": 0.5, "probit": 0.5, "poisson": 1.0, "identity": 0.0}  # mu(0)
HIGHEST = {"logistic": 1.0, "probit": 1.0, "poisson": 10.0, "identity": 3.0}
MOST_CONCAVE = {"logistic": 0.0963, "probit": 0.2420, "poisson": 0.0, "identity": 0.0}  # sup of -mu''


class Index:
    """f(x) = mu(<x, theta>) + factor ||x||_M for rows x."""

    def __init__(self, link: str, theta: np.ndarray, M: np.ndarray, factor: float) -> None:
        self.link, self.theta, self.M, self.factor = naive.LINKS[link], theta, (M + M.T) / 2, factor
        self.shift = MOST_CONCAVE[link] * float(theta @ theta)  # f + shift |x|^2 / 2 is convex

    def width(self, x: np.ndarray) -> np.ndarray:
        return np.sqrt(np.maximum(np.einsum("...i,ij,...j->...", x, self.M, x), 0.0))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return self.link.mean(x @ self.theta) + self.factor * self.width(x)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        pull = self.link.slope(x @ self.theta)[..., None] * self.theta
        return pull + self.factor * (x @ self.M) / np.maximum(self.width(x), 1e-300)[..., None]


def on_sphere(x: np.ndarray, r: float) -> np.ndarray:
    return r * x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-300)


def grid_maximum(index: Index, r: float, whole_ball: bool) -> float:
    """The largest f on a fine grid; in three dimensions the grid is refined around its best points."""
    d = len(index.theta)
    if d == 1:
        points = np.linspace(-r, r, 20_001)[:, None] if whole_ball else np.array([[-r], [r]])
        return float(index(points).max())
    if d == 2:
        angle = np.linspace(0, 2 * np.pi, 20_001)
        directions = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    else:
        z, angle = np.meshgrid(np.linspace(-1, 1, 101), np.linspace(0, 2 * np.pi, 201))
        flat = np.sqrt(1 - z**2)
        directions = np.stack([flat * np.cos(angle), flat * np.sin(angle), z], axis=-1).reshape(-1, 3)
    values = index(r * directions)
    best = float(values.max())
    if whole_ball:
        best = max(best, float(index(0 * directions[0])), *(float(index(q * r * directions).max()) for q in (0.3, 0.9)))
    if d == 3:
        steps = np.stack(np.meshgrid(*[np.linspace(-1, 1, 15)] * 3), axis=-1).reshape(-1, 3)
        for start in directions[np.argsort(values)[-8:]]:
            centre = start
            for size in (0.05, 0.01, 2e-3, 4e-4, 8e-5):
                around = on_sphere(centre + size * steps, 1.0)
                values = index(r * around)
                centre = around[np.argmax(values)]
            best = max(best, float(values.max()))
    return best


def ascent_maximum(index: Index, r: float, rng: np.random.Generator, starts: int = 1000) -> float:
    """The best of many monotone ascents on the sphere (x <- the direction of f's gradient + shift x), polished.

    Adding shift |x|^2 / 2, a constant on the sphere, makes f convex, and a convex function never falls when x
    moves to where its linearisation is largest.
    """
    x = on_sphere(rng.normal(size=(starts, len(index.theta))), r)
    x[:2] = on_sphere(np.stack([index.theta, -index.theta]) + 1e-12 * x[:2], r)
    x[2:4] = r * np.linalg.eigh(index.M)[1].T[-1] * np.array([[1.0], [-1.0]])
    for _ in range(60):
        x = on_sphere(index.gradient(x) + (index.shift + 1e-9) * x, r)
    values = index(x)
    best = float(values.max())

    def falling(z: np.ndarray) -> tuple[float, np.ndarray]:
        y = on_sphere(z, r)
        slope = index.gradient(y) * r / np.linalg.norm(z)
        return -float(index(y)) / size, -(slope - (slope @ y) * y / r**2) / size

    size = max(1.0, abs(best))
    for start in x[np.argsort(values)[-3:]]:
        found = minimize(falling, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-12})
        best = max(best, -size * float(found.fun))
    return best


def oracle(index: Index, r: float, whole_ball: bool, rng: np.random.Generator) -> float:
    return grid_maximum(index, r, whole_ball) if len(index.theta) <= 3 else ascent_maximum(index, r, rng)


def assert_best(
    index: Index, x: np.ndarray, arm_set: Ball | Sphere, rng: np.random.Generator, tolerance: float = 1e-6
) -> None:
    """x lies in the set and no arm of the oracle scores more than that above it (plus rounding of huge scores)."""
    r, length = arm_set.radius, np.linalg.norm(x)
    assert length <= r * (1 + 1e-12)
    if isinstance(arm_set, Sphere):
        assert length == pytest.approx(r, rel=1e-12)
    best, mine = oracle(index, r, isinstance(arm_set, Ball), rng), float(index(x))
    assert mine >= best - tolerance - 1e-10 * abs(best), (mine, best)


def rotation(rng: np.random.Generator, d: int) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(d, d)))[0]

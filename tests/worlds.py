"""Small drifting worlds for tests: arms, a moving theta*, rewards through any link."""

from __future__ import annotations

import numpy as np

SIGMA = {"logistic": 0.5, "probit": 0.5, "poisson": 5.0, "identity": 0.5}


def ball(rng: np.random.Generator, shape: tuple[int, ...], dim: int, radius: float = 1.0) -> np.ndarray:
    """Points uniform in the ball."""
    x = rng.normal(size=(*shape, dim))
    return radius * x * rng.random((*shape, 1)) ** (1 / dim) / np.linalg.norm(x, axis=-1, keepdims=True)


def turning_theta(t: float, horizon: float, dim: int, S: float, turns: float = 0.5) -> np.ndarray:
    """theta* of norm S turning in the plane of the first two axes (flipping its sign half-way for dim 1)."""
    angle = 2 * np.pi * turns * t / horizon
    theta = np.zeros(dim)
    if dim == 1:
        theta[0] = S * np.sign(np.cos(angle) + 1e-12)
    else:
        theta[:2] = S * np.cos(angle), S * np.sin(angle)
    return theta


def draw_reward(rng: np.random.Generator, link: str, z: np.ndarray) -> np.ndarray:
    """A reward with mean mu(z), within the link's range (Poisson counts are capped at 10)."""
    if link == "logistic":
        return (rng.random(z.shape) < 1 / (1 + np.exp(-z))).astype(float)
    if link == "probit":
        return (rng.normal(size=z.shape) < z).astype(float)
    if link == "poisson":
        return np.minimum(rng.poisson(np.exp(z)), 10).astype(float)
    return z + 0.5 * rng.normal(size=z.shape)

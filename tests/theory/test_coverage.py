"""The radii cover the noise as often as they say, by simulation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from windvane import theory


def noise_norms(
    rng: np.random.Generator, *, dim: int, gamma: float, lam: float, sigma: float, rounds: int, lanes: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For t = 1..rounds, ||S_t|| in Vtilde_t^-1 and log det(Vtilde_t / lam), one entry a lane.

    S_t = sum_{s<t} gamma^(t-1-s) eps_s x_s with Gaussian noise and arms in the unit ball that depend on the
    past (the lemma allows it): along S_t while the norm is small, else shorter or across it.
    """
    total = np.zeros((lanes, dim))
    spread = np.zeros((lanes, dim, dim))
    for _ in range(rounds):
        tilde = spread + lam * np.eye(dim)
        if dim == 1:
            det = tilde[:, 0, 0]
            norm = np.abs(total[:, 0]) / np.sqrt(det)
            arm = np.where(norm > 1.0, 0.5, 1.0)[:, None]
        else:
            a, b, c = tilde[:, 0, 0], tilde[:, 0, 1], tilde[:, 1, 1]
            det = a * c - b * b
            u, v = total[:, 0], total[:, 1]
            norm = np.sqrt((c * u * u - 2 * b * u * v + a * v * v) / det)
            angle = np.arctan2(v, u) + np.where(norm > 1.5, 0.5 * np.pi, 0.0)
            arm = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        yield norm, np.log(det) - dim * math.log(lam)
        noise = sigma * rng.standard_normal((lanes, 1))
        total = gamma * total + noise * arm
        spread = gamma**2 * spread + arm[:, :, None] * arm[:, None, :]


def noise_radius(rounds: int, **settings_: Any) -> np.ndarray:
    """beta_t without its bias, for t = 1..rounds."""
    bias = math.sqrt(settings_["lam"])
    return np.asarray(theory.radius(np.arange(1, rounds + 1), S=1.0, L=1.0, c_mu=1.0, **settings_)) - bias


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize(("gamma", "lam", "delta"), [(0.5, 1.0, 0.2), (0.9, 0.1, 0.05), (1.0, 1.0, 0.1)])
def test_coverage_holds_at_a_fixed_round(dim: int, gamma: float, lam: float, delta: float) -> None:
    rounds, lanes, sigma = 60, 10_000, 0.7
    rng = np.random.default_rng(2021)
    limits = noise_radius(rounds, dim=dim, gamma=gamma, lam=lam, sigma=sigma, delta=delta)
    allowed = delta + 4 * math.sqrt(delta * (1 - delta) / lanes)
    run = noise_norms(rng, dim=dim, gamma=gamma, lam=lam, sigma=sigma, rounds=rounds, lanes=lanes)
    for t, (norm, _) in enumerate(run, start=1):
        if t in (2, 10, rounds):
            assert np.mean(norm > limits[t - 1]) <= allowed


@pytest.mark.parametrize("dim", [1, 2])
def test_pointwise_radius_fails_uniformly_and_the_union_bounds_do_not(dim: int) -> None:
    rounds, lanes, delta = 2000, 2000, 0.2
    common: dict[str, Any] = {"dim": dim, "gamma": 0.5, "lam": 1.0, "sigma": 1.0}
    limits = {
        c: noise_radius(rounds, delta=delta, confidence=c, horizon=rounds, **common)
        for c in ("pointwise", "horizon", "anytime")
    }
    escaped = {c: np.zeros(lanes, dtype=bool) for c in limits}
    for t, (norm, _) in enumerate(noise_norms(np.random.default_rng(7), rounds=rounds, lanes=lanes, **common)):
        for c, limit in limits.items():
            escaped[c] |= norm > limit[t]
    assert escaped["pointwise"].mean() > 0.9
    assert escaped["horizon"].mean() <= delta
    assert escaped["anytime"].mean() <= delta


def test_oful_radius_covers_all_rounds_at_once() -> None:
    delta, lanes, lam, sigma = 0.2, 2000, 0.5, 0.7
    escaped = np.zeros(lanes, dtype=bool)
    run = noise_norms(np.random.default_rng(11), dim=2, gamma=1.0, lam=lam, sigma=sigma, rounds=600, lanes=lanes)
    for norm, log_det_ratio in run:
        limit = np.asarray(theory.oful_radius(log_det_ratio, S=1.0, lam=lam, sigma=sigma, delta=delta))
        escaped |= norm > limit - math.sqrt(lam)
    assert escaped.mean() <= delta + 4 * math.sqrt(delta * (1 - delta) / lanes)

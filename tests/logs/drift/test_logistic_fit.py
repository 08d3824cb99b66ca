"""Logistic regression against SciPy, and the certified bound on its supremum."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from windvane.logs.drift.logistic_fit import (
    GAP,
    bound_supremum,
    fit_logistic,
    log_likelihoods,
    means,
    pseudo_inverse,
    sandwich,
    saturate_likelihoods,
    weighted_gram,
)


def draw(seed: int, n: int, d: int, scale: float = 1.5, fractional: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) / np.sqrt(d)
    mu = means(x @ (scale * rng.normal(size=d)))
    return x, rng.beta(2.0 * mu, 2.0 * (1.0 - mu)) if fractional else (rng.random(n) < mu).astype(float)


def scipy_maximum(x: np.ndarray, reward: np.ndarray, ridge: float, weight: np.ndarray) -> optimize.OptimizeResult:
    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        z = x @ theta
        value = -(weight * log_likelihoods(z, reward)).sum() + 0.5 * ridge * theta @ theta
        return value, -x.T @ (weight * (reward - means(z))) + ridge * theta

    return optimize.minimize(loss, np.zeros(x.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-9})


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("fractional", [False, True])
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_the_estimate_is_that_of_scipy(seed: int, fractional: bool, ridge: float) -> None:
    x, reward = draw(seed, 300, 1 + seed, fractional=fractional)
    weight = np.random.default_rng(seed).random(300)
    fit, expected = fit_logistic(x, reward, ridge=ridge, weight=weight), scipy_maximum(x, reward, ridge, weight)
    np.testing.assert_allclose(fit.theta, expected.x, rtol=0.0, atol=1e-4)
    assert fit.log_likelihood - 0.5 * ridge * fit.theta @ fit.theta >= -expected.fun - 1e-8
    mu = means(x @ fit.theta)
    np.testing.assert_allclose(fit.score, x.T @ (weight * (reward - mu)), atol=1e-10)
    np.testing.assert_allclose(fit.information, (x.T * (weight * mu * (1 - mu))) @ x, atol=1e-10)


def test_closed_form_with_one_coefficient_per_group() -> None:
    group, reward = np.repeat([0, 1], [40, 60]), np.concatenate([np.arange(40) < 10, np.arange(60) < 45]).astype(float)
    fit = fit_logistic(np.eye(2)[group], reward)
    np.testing.assert_allclose(fit.theta, [np.log(10 / 30), np.log(45 / 15)], atol=1e-6)
    expected = 10 * np.log(0.25) + 30 * np.log(0.75) + 45 * np.log(0.75) + 15 * np.log(0.25)
    assert fit.log_likelihood == pytest.approx(expected, abs=1e-9)


def test_likelihoods_of_large_logits_are_exact() -> None:
    z = np.array([-800.0, -40.0, 0.0, 40.0, 800.0])
    np.testing.assert_allclose(log_likelihoods(z, np.ones(5)), [-800.0, -40.0, -np.log(2.0), -np.exp(-40.0), 0.0])
    np.testing.assert_allclose(log_likelihoods(z, np.zeros(5)), log_likelihoods(-z, np.ones(5)))
    np.testing.assert_allclose(means(z), 1.0 / (1.0 + np.exp(-np.clip(z, -700, 700))), atol=1e-300)


def test_the_saturated_likelihood_is_the_largest() -> None:
    reward, z = np.array([0.0, 0.2, 0.5, 1.0]), np.linspace(-30.0, 30.0, 4001)
    best = log_likelihoods(z[:, None], reward).max(axis=0)
    np.testing.assert_allclose(saturate_likelihoods(reward), best, atol=1e-4)
    assert (saturate_likelihoods(reward) >= best).all()


def test_matrices() -> None:
    x, reward = draw(0, 50, 3)
    weight = np.arange(50.0)
    np.testing.assert_allclose(weighted_gram(x, weight), (x.T * weight) @ x)
    singular = x.T @ x @ np.diag([1.0, 1.0, 0.0])
    singular = 0.5 * (singular + singular.T) * np.outer([1, 1, 0], [1, 1, 0])
    np.testing.assert_allclose(pseudo_inverse(singular), np.linalg.pinv(singular), atol=1e-12)
    mu, inverse = np.full(50, 0.5), np.linalg.inv(x.T @ x)
    np.testing.assert_allclose(sandwich(x, reward, mu, inverse), 0.25 * inverse @ x.T @ x @ inverse)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("fractional", [False, True])
def test_the_bound_is_above_the_maximum_and_close(seed: int, fractional: bool) -> None:
    x, reward = draw(seed, 200, 3, fractional=fractional)
    L = float(np.linalg.norm(x, axis=1).max())
    largest = -scipy_maximum(x, reward, 0.0, np.ones(200)).fun
    for start in (np.zeros(3), np.full(3, 4.0)):
        bound = bound_supremum(x, reward, start, L)
        assert largest - 1e-9 <= bound.upper <= largest + 1.1 * GAP


@pytest.mark.parametrize("seed", range(10))
def test_the_bound_holds_for_few_rows_however_separated(seed: int) -> None:
    """Against a maximum in a large ball, which is never above the supremum."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 5))
    x, reward = draw(seed, int(rng.integers(1, 4 * d)), d, scale=4.0)
    largest = -scipy_maximum(x, reward, 1e-8, np.ones(len(x))).fun
    assert bound_supremum(x, reward, np.zeros(d), 10.0).upper >= largest - 1e-9


def test_separated_rows_count_as_certain() -> None:
    assert bound_supremum(np.array([[1.0], [-2.0]]), np.array([1.0, 0.0]), np.zeros(1), 2.0).upper == pytest.approx(0.0)


def test_the_rows_of_an_arm_without_any_success_count_as_certain_and_the_others_are_bounded_closely() -> None:
    x, reward = draw(3, 500, 2)
    wide = np.concatenate([x, np.zeros((500, 1))], axis=1)
    arm = np.tile([0.3, 0.0, 1.0], (40, 1))
    bound = bound_supremum(np.concatenate([wide, arm]), np.concatenate([reward, np.zeros(40)]), np.zeros(3), 5.0)
    largest = -scipy_maximum(x, reward, 0.0, np.ones(500)).fun  # the arm's own coefficient tends to minus infinity
    assert largest - 1e-9 <= bound.upper <= largest + 0.01


def test_collinear_features_do_no_harm() -> None:
    x, reward = draw(1, 300, 2)
    twice = np.concatenate([x, x], axis=1)
    assert bound_supremum(twice, reward, np.zeros(4), 5.0).upper == pytest.approx(
        bound_supremum(x, reward, np.zeros(2), 5.0).upper, abs=2 * GAP
    )
    np.testing.assert_allclose(twice @ fit_logistic(twice, reward).theta, x @ fit_logistic(x, reward).theta, atol=1e-4)

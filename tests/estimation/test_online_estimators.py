"""The estimators of GLOC and ECOLog: what they add up, in other coordinates, and the states that they refuse."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from support import access
from support.estimators import by_link, relaxed, seeds
from support.refusals import refuses
from support.worlds import BENT, ball, draw_reward
from windvane import state
from windvane.estimation import Discount, ECOLogEstimator, Never, OnlineNewtonEstimator, RejectedRewards, Window
from windvane.links import CustomLink
from windvane.state import CoordinateChange

ONLINE = pytest.mark.parametrize("kind", [OnlineNewtonEstimator, ECOLogEstimator])


def feed(estimators: list[Any], rng: np.random.Generator, rounds: int, link: str = "logistic") -> None:
    n, d = estimators[0].lanes, estimators[0].dim
    for _ in range(rounds):
        x = ball(rng, (n,), d, estimators[0].L)
        reward, weight = draw_reward(rng, link, 2.0 * x[:, 0]), rng.choice([1.0, 1.0, 0.5, 3.0], n)
        for estimator in estimators:
            estimator.advance()
            estimator.observe(x, reward, weight=weight, age=float(rng.integers(0, 2)) * 0.0)


@by_link
@relaxed
@given(seed=seeds, dim=st.integers(1, 5), lam=st.floats(1e-3, 10.0), S=st.floats(0.2, 3.0))
def test_the_misfit_is_the_residual_of_the_ridge_regression(
    link: str, seed: int, dim: int, lam: float, S: float
) -> None:
    """sum w z^2 - <theta_hat, sum w z x>, which the estimator sums without the difference of large numbers."""
    rng, estimator = np.random.default_rng(seed), OnlineNewtonEstimator(dim, link, lam=lam, S=S)
    X, w, z = [], [], []
    for _ in range(40):
        x, weight = ball(rng, (1,), dim), float(rng.choice([0.3, 1.0, 5.0]))
        X, w, z = [*X, x[0]], [*w, weight], [*z, float(x[0] @ estimator.iterate[0])]
        estimator.observe(x, draw_reward(rng, link, x[:, 0]), weight=weight)
    X, w, z = np.array(X), np.array(w), np.array(z)
    V = lam * np.eye(dim) + X.T @ (w[:, None] * X)
    theta_hat = np.linalg.solve(V, X.T @ (w * z))
    np.testing.assert_allclose(estimator.solve()[0], theta_hat, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(estimator.V[0], V, rtol=1e-12)
    residual = w @ (z - X @ theta_hat) ** 2 + lam * theta_hat @ theta_hat
    assert estimator.record["misfit"][0] == pytest.approx(residual, rel=1e-8, abs=1e-12)


def test_a_long_run_keeps_the_digits_of_the_misfit() -> None:
    """After 20,000 equal predictions the difference of sums has lost what the recursion still has."""
    estimator = OnlineNewtonEstimator(1, "identity", lam=1e-6, S=1.0)
    estimator.observe([[1.0]], 1.0, weight=1e9)  # the iterate jumps to 1, and stays
    for _ in range(200):
        estimator.observe([[1.0]], 1.0, weight=1e6)
    first = 1e9 * 0.0**2  # the first prediction was 0
    later = 200 * 1e6
    theta_hat = later / (1e-6 + 1e9 + later)
    exact = first + 1e9 * theta_hat**2 + later * (1 - theta_hat) ** 2 + 1e-6 * theta_hat**2
    assert estimator.record["misfit"][0] == pytest.approx(exact, rel=1e-9)


@by_link
def test_the_regret_of_the_learner_is_below_its_bound(link: str) -> None:
    """Theorem 3: sum l_s(theta_s) - l_s(u) <= G / (2 kappa) + 2 kappa S^2 lam for any u of the ball, with weights."""
    rng, made = np.random.default_rng(6), OnlineNewtonEstimator(3, link, S=1.3, lam=0.4, lanes=40)
    others, kappa = ball(rng, (40,), 3, 1.3), made.constants.c_mu
    regret = np.zeros(40)
    primitive = {"logistic": lambda z: np.logaddexp(0, z), "poisson": np.exp, "identity": lambda z: z * z / 2}
    primitive["probit"] = made.link.primitive
    for _ in range(60):
        x, weight = ball(rng, (40,), 3), rng.choice([0.5, 1.0, 2.0], 40)
        reward = draw_reward(rng, link, np.einsum("ld,ld->l", x, others))
        z, u = np.einsum("ld,ld->l", x, made.iterate), np.einsum("ld,ld->l", x, others)
        regret += weight * (primitive[link](z) - reward * z - primitive[link](u) + reward * u)
        made.observe(x, reward, weight=weight)
        bound = made.record["regret"] / (2 * kappa) + 2 * kappa * 1.3**2 * 0.4
        assert (regret <= bound + 1e-9).all()


def test_for_the_logistic_link_ecolog_takes_one_exact_step() -> None:
    """theta+ and its cost are those of the transcription, also for shares and for many clicks at once."""
    rng, S, lam = np.random.default_rng(1), 2.0, 0.7
    estimator, slow = ECOLogEstimator(3, S=S, lam=lam), naive.NaiveECOLogUCB(3, S=S, lam=lam, delta=1.0)
    for _ in range(60):
        x, r, w = ball(rng, (1,), 3), float(rng.choice([0.0, 1.0, 0.3])), float(rng.choice([1.0, 1e-3, 20.0]))
        estimator.observe(x, r, weight=w)
        slow.update(x[0], r, w)
        np.testing.assert_allclose(estimator.solve()[0], slow.theta, rtol=0, atol=1e-8)
        rho = lam * S**2 + 2 * (1 + S) * estimator.regret[0]
        assert rho == pytest.approx(slow.rho, rel=1e-9)


@ONLINE
def test_they_never_forget(kind: Any) -> None:
    for rule in (Discount(0.9), Window(5.0)):
        with refuses("forgetting"):
            kind(2, forgetting=rule)
    estimator = kind(2, forgetting=Never())
    estimator.observe([[0.6, 0.0]], 1.0)
    before = estimator.dense.copy()
    estimator.advance(1e6)
    assert np.array_equal(estimator.dense, before)


@ONLINE
@pytest.mark.parametrize("scale", [1.0, 0.5, 3.0])
def test_other_coordinates_continue(kind: Any, scale: float) -> None:
    """An estimator that was moved goes on as one that has seen the moved observations."""
    rng, places = np.random.default_rng(4), np.array([1, -1, 0])
    old, new = kind(2, S=2.0, lam=0.5), kind(3, S=2.0 / scale, L=scale, lam=0.5 * scale**2)
    fed, observations = kind(3, S=2.0 / scale, L=scale, lam=0.5 * scale**2), []
    for _ in range(30):
        observations.append((ball(rng, (1,), 2), float(rng.random() < 0.7)))
    change = CoordinateChange(places, scale)
    for x, r in observations:
        old.observe(x, r)
        fed.observe(change.move(x, scale), r)
    access.load(new, state.map_state(old, new, change))
    for each in (old, new, fed):
        each.solve()
    np.testing.assert_allclose(new.solve(), fed.solve(), rtol=0, atol=1e-9)
    np.testing.assert_allclose(new.V, fed.V, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(new.record["regret"], fed.record["regret"], rtol=1e-9)
    if kind is OnlineNewtonEstimator:
        np.testing.assert_allclose(new.iterate, fed.iterate, rtol=0, atol=1e-9)
        np.testing.assert_allclose(new.record["misfit"], fed.record["misfit"], rtol=1e-9)
    x = change.move(ball(rng, (1,), 2), scale)
    for each in (new, fed):
        each.observe(x, 1.0)
    np.testing.assert_allclose(new.solve(), fed.solve(), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("kind", "name", "change"),
    [
        (OnlineNewtonEstimator, "regret", -1.0), (OnlineNewtonEstimator, "misfit", -1e-9),
        (OnlineNewtonEstimator, "dense", 5.0), (ECOLogEstimator, "dense", 5.0), (RejectedRewards, "ridge", 0.0),
    ],
)  # fmt: skip
def test_impossible_states_are_refused(kind: Any, name: str, change: float) -> None:
    source, target = kind(2), kind(2)
    feed([source], np.random.default_rng(0), 5)
    source.solve()
    entries = access.save(source)
    if name == "dense":
        entries[name][0, 0 if kind is ECOLogEstimator else 2] = change  # theta, or the iterate, outside the ball
    else:
        entries[name][:] = change
    before = access.save(target)
    with refuses(f"state['{name}']"):
        access.load(target, entries)
    assert all(np.array_equal(before[key], value) for key, value in access.save(target).items())


def test_a_ridge_that_changes_moves_the_root() -> None:
    """theta_hat is that of an estimator which had this ridge from the start, also after saving."""
    rng, rewards = np.random.default_rng(3), RejectedRewards(2, lanes=2)
    link, history = naive.LINKS["logistic"], ([], [])
    for t in range(40):
        x = ball(rng, (2,), 2)
        reward = (rng.random(2) < 0.6).astype(float)
        rewards.observe(x, reward)
        for lane in range(2):
            history[lane].append((x[lane], reward[lane]))
        ridge = np.array([0.1 + t, 3.0 / (1 + t)])
        rewards.change_ridge(ridge, np.array([True, t % 3 == 0]))
        ridge[1] = 3.0 / (1 + t // 3 * 3)
        theta = rewards.solve()
        for lane in range(2):
            X, r = (np.array([row[k] for row in history[lane]]) for k in (0, 1))
            expected = naive.solve_theta_hat(X, np.ones(len(X)), X.T @ r, ridge[lane], link)
            np.testing.assert_allclose(theta[lane], expected, rtol=0, atol=2e-6)
        twin = RejectedRewards(2, lanes=2)
        access.load(twin, access.save(rewards))
        np.testing.assert_array_equal(twin.solve(), theta)


def test_a_custom_link_that_fails_changes_nothing() -> None:
    def mean(z: np.ndarray) -> np.ndarray:
        return np.where(np.abs(z) > 0.5, np.nan, BENT.mean(z))

    broken = CustomLink("broken", BENT.mean, BENT.slope)
    estimator = OnlineNewtonEstimator(1, broken, lanes=2)
    for _ in range(9):
        estimator.observe([[1.0], [1.0]], [1.0, 0.5])
    broken._mean = mean
    before = access.save(estimator)
    with refuses("link"):
        estimator.observe([[1.0], [1.0]], 1.0)
    assert all(np.array_equal(before[name], value) for name, value in access.save(estimator).items())


def test_a_custom_copy_of_a_link_is_the_same() -> None:
    made = naive.LINKS["logistic"]
    copies = [OnlineNewtonEstimator(2, link) for link in ("logistic", CustomLink("copy", made.mean, made.slope))]
    feed(copies, np.random.default_rng(2), 40)
    np.testing.assert_allclose(copies[0].solve(), copies[1].solve(), rtol=1e-10)
    np.testing.assert_allclose(copies[0].record["regret"], copies[1].record["regret"], rtol=1e-10)


@ONLINE
@pytest.mark.parametrize("weight", [1e-12, 1.0, 1e12])
def test_weights_of_any_size_leave_everything_finite(kind: Any, weight: float) -> None:
    rng, estimator = np.random.default_rng(0), kind(2, S=3.0)
    for t in range(60):
        estimator.observe(ball(rng, (1,), 2), float(rng.integers(0, 2)), weight=weight if t % 3 else 1.0)
        assert np.isfinite(estimator.solve()).all()
    assert np.isfinite(estimator.dense).all()
    assert np.isfinite(estimator.record["regret"]).all()
    access.load(kind(2, S=3.0), access.save(estimator))

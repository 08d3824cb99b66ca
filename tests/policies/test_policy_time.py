"""Time and feedback."""

import numpy as np
import pytest

import naive
from support.cases import every_policy
from support.worlds import SIGMA, ball, draw_reward, same_state
from windvane import BVDGLMUCB, Policy

NAN, INF = float("nan"), float("inf")


def assert_equals_history(policy: Policy, histories: list[naive.NaiveHistory], t: float) -> None:
    """V, V_tilde, b to rounding; theta_hat to what the estimator promises (1e-8 for the root; nothing is dropped)."""
    info = policy.info()
    for lane, history in enumerate(histories):
        np.testing.assert_allclose(info.metric[lane], history.V(t), rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(info.squared_metric[lane], history.V_tilde(t), rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(info.b[lane], history.b(t), rtol=1e-11, atol=1e-13)
        expected = naive.theta_hat(history, t, history.link, history.ridge)
        np.testing.assert_allclose(info.theta_hat[lane], expected, rtol=0, atol=2e-8)


@pytest.mark.parametrize("link", ["logistic", "poisson", "probit", "identity"])
@pytest.mark.parametrize("seed", range(3))
def test_any_course_of_events_equals_the_sums(link: str, seed: int) -> None:
    """Decisions, pauses of any length, rewards late, repeated, weighted, masked: always the sums of the definition."""
    rng = np.random.default_rng(seed)
    gammas, dim, lam = [0.9, 0.985, 1.0], 3, 0.5
    policy = BVDGLMUCB(dim, link, gamma=gammas, lam=lam, sigma=SIGMA[link], lanes=3)
    _, c_mu, _ = naive.constants(naive.LINKS[link], 1.0, 1.0)
    histories = [naive.NaiveHistory(dim, naive.LINKS[link], gamma, lam, lam * c_mu) for gamma in gammas]
    t, last, decisions = 1.0, None, 0
    for _ in range(80):
        event = rng.choice(["select", "advance", "update", "update"])
        if event == "select" or last is None:
            policy.select(ball(rng, (3, 4), dim))
            last, t, decisions = t, t + 1, decisions + 1
        elif event == "advance":
            gap = float(rng.choice([0.0, 0.25, 1.0, 2.0, np.pi]))
            policy.advance(gap)
            t += gap
        else:
            x = ball(rng, (3,), dim)
            reward = draw_reward(rng, link, x[:, 0])
            rounds = None if rng.random() < 0.3 else rng.uniform(max(0.0, t - 30), t - 1, 3)
            weight = rng.choice([0.0, 0.5, 1.0, 3.0], 3) if rng.random() < 0.5 else 1.0
            mask = rng.random(3) < 0.7 if rng.random() < 0.5 else None
            policy.update(x, reward, round=rounds, weight=weight, mask=mask)
            for lane in range(3):
                if mask is None or mask[lane]:
                    moment = last if rounds is None else rounds[lane]
                    histories[lane].append(x[lane], reward[lane], moment, np.broadcast_to(weight, 3)[lane])
        assert policy.t == pytest.approx(t, rel=1e-14)
        assert policy.decisions == decisions
    assert_equals_history(policy, histories, t)


@every_policy
def test_update_never_moves_time(cls, settings) -> None:
    """Only select (by one) and advance (by n) do."""
    policy = cls(2, **settings)
    assert policy.t == 1.0
    policy.select(np.full((1, 2, 2), 0.1))
    assert policy.t == 2.0
    for moment in (None, 1.0, 0.5, -3.0):
        policy.update([[0.1, 0.1]], 1.0, round=moment)
        assert policy.t == 2.0
    policy.advance(0.75)
    assert policy.t == 2.75
    policy.advance()
    assert policy.t == 3.75
    policy.select(np.full((1, 2, 2), 0.1))
    assert policy.t == 4.75


@every_policy
def test_the_default_round_is_the_last_decided_one(cls, settings) -> None:
    """However long ago that was: its reward enters with the weight of its age."""
    x = np.array([[0.6, -0.3]])
    implicit, explicit = (cls(2, **settings) for _ in range(2))
    for policy in (implicit, explicit):
        policy.advance(1.5)
        policy.select(x[:, None])
        policy.advance(3.25)
    implicit.update(x, 1.0)
    explicit.update(x, 1.0, round=2.5)
    assert same_state(implicit.state(), explicit.state())
    info = implicit.info()
    gamma = info.gamma[0]
    np.testing.assert_allclose(info.metric[0], np.eye(2) + gamma**3.25 * x.T @ x, rtol=1e-14)
    np.testing.assert_allclose(info.squared_metric[0], np.eye(2) + gamma**6.5 * x.T @ x, rtol=1e-14)
    np.testing.assert_allclose(info.b[0], gamma**3.25 * x[0], rtol=1e-14)


@every_policy
def test_the_last_round_can_be_rewarded_at_any_fractional_time(cls, settings) -> None:
    """(t + 1) - 1 may round below t: the round just decided must still not count as the future."""
    rng, policy = np.random.default_rng(0), cls(2, **settings)
    for _ in range(100):
        policy.advance(rng.random())
        policy.select(np.full((1, 2, 2), 0.5))
        policy.update([[0.5, 0.5]], 1.0)

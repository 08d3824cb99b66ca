"""Time and feedback, lanes and ties."""

from typing import Any

import numpy as np
import pytest

import naive
from support.cases import PLAIN, every_policy
from support.policies import ESTIMATES, decision
from support.worlds import SIGMA, ball, draw_reward, same_state
from windvane import BVDGLMUCB, OFUL, MaximumLikelihoodEstimator, Policy
from windvane.policies.optimism import EstimatingPolicy


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
    policy, arms = cls(2, **settings), np.full((1, 2, 2), 0.1)
    assert policy.t == 1.0
    policy.select(arms)
    for moment in (None, 1.0, 0.5, -3.0):
        assert policy.t == 2.0
        policy.update(arms[:, 0], 1.0, round=moment)
    for move, t in ((policy.advance, 2.0), (lambda: policy.advance(0.75), 3.0), (lambda: policy.select(arms), 3.75)):
        assert policy.t == t
        move()
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


@every_policy
def test_lanes_with_one_id_and_one_setting_are_one_bandit(cls, settings) -> None:
    policy, rng, parted = cls(2, **settings, lanes=[5, 1, 5], seed=3), np.random.default_rng(0), False
    for _ in range(60):
        arms = np.repeat(ball(rng, (1, 1), 2), 4, axis=1)  # all arms equal: every choice is a tie
        index = policy.select(np.repeat(arms, 3, axis=0))
        assert index[0] == index[2]
        parted |= bool(index[0] != index[1])
        policy.update(np.repeat(arms[:, 0], 3, axis=0), draw_reward(rng, "logistic", np.zeros(1)).repeat(3))
    assert parted  # 60 ties among 4: another id agrees throughout with probability 4^-60
    info = policy.info()
    assert all((getattr(info, name)[0] == getattr(info, name)[2]).all() for name in ESTIMATES)


def chi_square(counts: np.ndarray) -> float:
    expected = counts.sum() / counts.size
    return float(((counts - expected) ** 2).sum() / expected)


@every_policy
def test_ties_are_broken_uniformly_and_independently(cls, settings) -> None:
    """Among K equal arms each is chosen equally often, whatever was chosen in the lane's last decision.

    A chi-square statistic with k degrees of freedom exceeds k + 8 sqrt(k) + 16 with probability below 1e-6.
    """
    lanes, K = 4000, 5
    policy = cls(2, **settings, lanes=lanes)
    arms = np.full((lanes, K, 2), 0.5)
    first, second = policy.select(arms), policy.select(arms)
    for index in (first, second):
        assert chi_square(np.bincount(index, minlength=K)) < 4 + 8 * 2 + 16
    assert chi_square(np.bincount(K * first + second, minlength=K * K)) < 24 + 8 * np.sqrt(24) + 16
    neighbours = K * first[:-1:2] + first[1::2]
    assert chi_square(np.bincount(neighbours, minlength=K * K)) < 24 + 8 * np.sqrt(24) + 16


def test_ties_among_valid_arms_only() -> None:
    lanes = 3000
    policy, arms = OFUL(2, lanes=lanes), np.full((lanes, 5, 2), 0.5)
    valid = np.array([False, True, True, False, True]) & np.ones((lanes, 1), dtype=bool)
    arms[:, 0], arms[:, 3] = 9.0, np.nan
    counts = np.bincount(policy.select(arms, valid), minlength=5)
    assert counts[0] == counts[3] == 0
    assert chi_square(counts[[1, 2, 4]]) < 2 + 8 * np.sqrt(2) + 16


def test_ties_depend_on_seed_lane_id_and_decision_only() -> None:
    """Not on the policy, the place of the lane, its companions, the clock, nor on the rewards."""
    ids = [9, 2, 2**32 - 1, 40, 0]
    arms = np.full((5, 7, 2), 0.5)

    def ties(policy: Policy, between=None, shown: np.ndarray = arms) -> np.ndarray:
        choices = []
        for _ in range(30):
            choices.append(policy.select(shown))
            if between is not None:
                between(policy)
        return np.array(choices)

    expected = ties(OFUL(2, lanes=ids, seed=6))
    for cls, settings in PLAIN.values():
        assert (ties(cls(2, **settings, lanes=ids, seed=6)) == expected).all()
    assert (ties(OFUL(2, lanes=ids[::-1], seed=6))[:, ::-1] == expected).all()
    assert (ties(OFUL(2, lanes=[40], seed=6), shown=arms[:1])[:, 0] == expected[:, 3]).all()
    rewards = [0.0, 1.0, 1.0, 0.0, 1.0]
    for between in (lambda p: p.advance(2.5), lambda p: p.update(arms[:, 0], rewards), lambda p: p.info()):
        assert (ties(OFUL(2, lanes=ids, seed=6), between) == expected).all()
    for seed in (7, 6 + 2**32):
        assert (ties(OFUL(2, lanes=ids, seed=seed)) != expected).any()


def test_what_counts_as_a_tie() -> None:
    """Scores within 1e-12 max(1, |best|) of the best are equal; a relative 1e-9 is a difference."""
    lanes = 400
    close, apart = (np.full((lanes, 2, 1), 1.0) for _ in range(2))
    close[:, 1] -= 1e-14
    apart[:, 1] -= 1e-9
    index = OFUL(1, lanes=lanes).select(close)
    assert 0 < index.sum() < lanes
    assert (OFUL(1, lanes=lanes).select(apart) == 0).all()
    assert (OFUL(1, lanes=lanes).select(apart[:, ::-1]) == 1).all()


class Steep(EstimatingPolicy):
    """Scores that are what the test says."""

    name = "steep"
    scores: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.estimator = MaximumLikelihoodEstimator(self.dim)

    def select(self, arms: Any, valid: Any = None) -> Any:
        _, valid = self.check_arms(arms, valid)
        return self.play(np.array([self.scores]), valid)


@pytest.mark.parametrize("scores", [(np.inf, np.inf), (1.0, np.inf), (np.nan, np.nan)])
def test_infinite_scores_never_play_an_absent_arm(scores: tuple[float, float]) -> None:
    policy, arms, valid = Steep(2, scores=scores), np.eye(2)[None], np.array([[False, True]])
    assert policy.select(arms, valid) == [1]
    record = decision(policy)
    policy.select(arms, valid)
    assert decision(policy) is not record  # every decision has a record of its own

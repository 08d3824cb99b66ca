"""The drift estimate of AdaptiveGLMUCB: verdict, false alarms, memory, scale and rate."""

import math

import numpy as np
import pytest

from support.worlds import train
from windvane import AdaptiveGLMUCB
from windvane.environments import Arc, BallArms, Environment, Static
from windvane.policies.adaptive_glm_ucb import DRIFT, NO_DRIFT, UNKNOWN

SCALES = [None, 1.0]


def test_a_restart_forgets_the_drift() -> None:
    policy = train(AdaptiveGLMUCB(2, lanes=2), Environment(Arc(), BallArms(), horizon=60, lanes=2))
    policy.restart([True, False])
    assert policy.info().drift.variation[0] == 0.0
    assert policy.info().drift.evidence[0] == 0.0


def test_too_little_data_to_tell() -> None:
    before = AdaptiveGLMUCB(2, lanes=3).info().drift
    assert (before.verdict == UNKNOWN).all()
    assert (before.memory_high == math.inf).all()
    assert (before.rate_low == 0).all()
    for drift in (Static(), Arc()):
        env = Environment(drift, BallArms(), horizon=3000, lanes=20)
        assert (train(AdaptiveGLMUCB(2, S=1.0, lanes=20), env, 40).info().drift.verdict == UNKNOWN).all()


def test_nothing_is_said_of_a_speed_that_nothing_is_known_of() -> None:
    """Arms that are zero and decisions without rewards give no information."""
    silent, empty = AdaptiveGLMUCB(2), AdaptiveGLMUCB(2)
    for _ in range(300):
        silent.select(np.full((1, 2, 2), 0.3))
        empty.select(np.zeros((1, 2, 2)))
        empty.update(np.zeros((1, 2)), 1.0)
    for policy in (silent, empty):
        told = policy.info().drift
        assert told.verdict[0] == UNKNOWN
        assert told.rate[0] == told.variation[0] == 0.0


@pytest.mark.parametrize("S", SCALES)
def test_no_drift_seen(S) -> None:
    env = Environment(Static(), BallArms(), horizon=1500, lanes=20)
    told = train(AdaptiveGLMUCB(2, S=S, lanes=20), env).info().drift
    assert (told.verdict == NO_DRIFT).mean() >= 0.9
    assert (told.rate_low == 0).mean() >= 0.9
    assert np.median(told.rate) < 0.001


def claimed_at_any_time(policy, world, horizon):
    claimed = np.zeros(policy.lane_count, dtype=bool)
    for t in range(1, horizon + 1):
        arms, draw = world(t)
        chosen = policy.select(arms)
        x = arms[np.arange(policy.lane_count), chosen]
        policy.update(x, draw(x))
        if t % 20 == 0:
            claimed |= policy.info().drift.verdict == DRIFT
    return claimed


@pytest.mark.parametrize("S", SCALES)
def test_drift_is_rarely_claimed_where_there_is_none(S) -> None:
    """If the model is right, at most one run in 20 ever claims drift: the evidence is a likelihood ratio of 20."""
    env = Environment(Static(), BallArms(), horizon=1200, lanes=120, seed=3)

    def world(t):
        offer = env.round(t)
        theta = offer.theta
        return offer.arms, lambda x: env.reward(t, env.link.mean(np.einsum("li,li->l", x, theta)))

    assert claimed_at_any_time(AdaptiveGLMUCB(2, S=S, lanes=120), world, 1200).mean() <= 0.05


def clicks_by_arm(lanes, seed):
    """Return a static world with 4 to 6 % clicks: ten arms with the vectors of two declared by_arm fields."""
    rng, K, fields = np.random.default_rng(seed), 10, 2
    dim, block = 1 + K * (1 + fields), 1 + fields
    theta = np.zeros((lanes, dim))
    theta[:, 0] = -3.4
    theta[:, 1:] = rng.normal(size=(lanes, dim - 1)) * np.tile([0.3, 0.5, 0.5], K)

    def world(t):
        context = rng.uniform(-1, 1, (lanes, fields))
        arms = np.zeros((lanes, K, dim))
        arms[:, :, 0] = 1.0
        for k in range(K):
            arms[:, k, 1 + k * block] = 1.0
            arms[:, k, 2 + k * block : 1 + (k + 1) * block] = context
        luck = rng.random(lanes)
        root = math.sqrt(2 + fields)
        return arms / root, lambda x: (luck < 1 / (1 + np.exp(-root * np.einsum("li,li->l", x, theta)))).astype(float)

    return dim, world


@pytest.mark.parametrize("S", [None, 1.0, 5.0])
def test_rare_clicks_and_a_scale_that_is_too_small_are_not_drift(S) -> None:
    """The norm of theta* is about 8 here. An earlier version mistook the shrinkage of a small S for drift."""
    dim, world = clicks_by_arm(60, seed=1)
    assert claimed_at_any_time(AdaptiveGLMUCB(dim, S=S, lanes=60), world, 2500).mean() <= 0.05


@pytest.mark.parametrize("sigma", [0.5, 20.0])
def test_rare_large_rewards_are_not_drift(sigma) -> None:
    """Two arms that pay 50 once in 100 or 50 rounds: heavy tails, nothing moves."""
    lanes, rng = 40, np.random.default_rng(2)
    arms = np.tile(np.eye(2), (lanes, 1, 1))

    def world(t):
        luck = rng.random(lanes)
        return arms, lambda x: 50.0 * (luck < np.where(x[:, 0] == 1.0, 0.01, 0.02))

    policy = AdaptiveGLMUCB(2, link="identity", sigma=sigma, lanes=lanes)
    assert claimed_at_any_time(policy, world, 1500).mean() <= 0.05


@pytest.mark.parametrize(("size", "noise", "sigma"), [(1.0, 0.5, 0.5), (10.0, 3.0, 0.5), (1000.0, 300.0, 0.5)])
def test_a_wrong_sigma_is_not_drift(size, noise, sigma) -> None:
    lanes, rng = 40, np.random.default_rng(4)
    theta = size * np.array([0.8, 0.6])

    def world(t):
        arms = rng.uniform(-0.7, 0.7, (lanes, 4, 2))
        return arms, lambda x: x @ theta + noise * rng.normal(size=lanes)

    policy = AdaptiveGLMUCB(2, link="identity", sigma=sigma, lanes=lanes)
    assert claimed_at_any_time(policy, world, 800).mean() <= 0.05


@pytest.mark.parametrize("S", SCALES)
def test_drift_is_seen_and_its_size_is_about_right(S) -> None:
    env = Environment(Arc(), BallArms(), horizon=3000, lanes=20)
    told = train(AdaptiveGLMUCB(2, S=S, lanes=20), env).info().drift
    assert (told.verdict == DRIFT).all()
    assert (told.rate_low <= told.rate).all()
    assert (told.rate <= told.rate_high).all()
    assert 1 / 3 < np.median(told.variation) / env.variation[0] < 3
    assert 1 / 3 < np.median(told.rate) / (env.variation[0] / 3000) < 3


@pytest.mark.parametrize("S", [8.0, 50.0])
def test_the_scale_is_learned(S) -> None:
    """A scale that is too small is refuted. One that is too large, with a longer memory, predicts about as well."""
    env = Environment(Arc(), BallArms(), S=S, horizon=2000, lanes=20)
    info = train(AdaptiveGLMUCB(2, lanes=20), env).info()
    assert np.median(info.weights[:, :, :1].sum(axis=(1, 2))) < 0.05
    assert np.median(info.drift.scale) >= S / 8


def test_the_memory_is_that_of_a_discounted_mean() -> None:
    """For one coordinate that is observed every round, the weights decay as the effective memory predicts."""
    m, S, sigma = 200.0, 2.0, 0.5
    policy = AdaptiveGLMUCB(1, link="identity", memories=[m, math.inf], S=S, sigma=sigma)
    for _ in range(3000):
        policy.select([[[1.0]]])
        policy.update([[1.0]], 0.0)
    bank = policy.bank
    policy.select([[[1.0]]])
    policy.update([[1.0]], 1.0)
    first = bank.theta[0, 0, 0]
    policy.select([[[1.0]]])
    policy.update([[1.0]], 0.0)
    second = bank.theta[0, 0, 0]
    assert 1.0 / (1.0 - second / first) == pytest.approx(bank.effective_memory(np.array([0]))[0], rel=1e-6)

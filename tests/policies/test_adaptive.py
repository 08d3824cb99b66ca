"""AdaptiveGLMUCB: against its transcription, its contract, what it says about the drift, and what it achieves."""

import math

import numpy as np
import pytest

import naive
from support.cases import LINK_SETTINGS
from support.policies import admissible_estimates
from support.worlds import regret, train
from windvane import AdaptiveGLMUCB, Greedy
from windvane.environments import Arc, BallArms, Environment, FixedArms, Static, Switches
from windvane.policies.adaptive_glm_ucb import DRIFT, MEMORIES, NO_DRIFT, UNKNOWN

LINKS = LINK_SETTINGS | {"identity": {"link": "identity", "sigma": 0.3}}


@pytest.mark.parametrize("settings", LINKS.values(), ids=LINKS)
def test_it_decides_as_the_literal_rule(settings) -> None:
    rng = np.random.default_rng(5)
    policy, literal = AdaptiveGLMUCB(3, **settings), naive.NaiveAdaptiveGLMUCB(3, **settings)
    L, top = settings.get("L", 1.0), settings.get("sigma", 0.5) * 2
    for _ in range(150):
        arms = rng.normal(size=(1, 6, 3))
        arms *= L / np.linalg.norm(arms, axis=2, keepdims=True)
        scores = literal.index(arms[0])
        chosen = int(policy.select(arms)[0])
        assert scores[chosen] >= scores.max() - 1e-8
        reward = min(float(rng.poisson(0.4)), top) if settings.get("link") != "identity" else rng.normal()
        policy.update(arms[:, chosen], [reward])
        literal.learn(arms[0, chosen], reward)
        np.testing.assert_allclose(policy.info().weights[0], literal.weights(), atol=1e-8)


def test_the_sums_of_late_and_weighted_rewards() -> None:
    """For the identity link H, G and b are sums over the history, in whatever order rewards come."""
    rng = np.random.default_rng(2)
    policy, told = AdaptiveGLMUCB(2, link="identity", lanes=2), []
    for t in range(1, 41):
        policy.select(np.full((2, 1, 2), 0.1))
        x, reward = rng.uniform(-0.5, 0.5, (2, 2)), rng.normal(size=2)
        moment, weight = float(rng.integers(1, t + 1)), float(rng.uniform(0, 3))
        policy.update(x, reward, round=moment, weight=weight)
        told.append((x, reward, moment, weight))
    policy.advance(2.5)
    ages = [policy.t - 1 - moment for _, _, moment, _ in told]
    ridge = 0.25 * 2 * np.eye(2)
    for lane in range(2):
        for g, gamma in enumerate(1 - 1 / np.array(MEMORIES)):
            row = lane * len(MEMORIES) + g
            outer = [w * np.outer(x[lane], x[lane]) for x, _, _, w in told]
            pairs = list(zip(outer, ages, strict=True))
            np.testing.assert_allclose(policy.estimator.V[row], ridge + sum(gamma**a * o for o, a in pairs))
            squared = ridge + sum(gamma ** (2 * a) * o for o, a in pairs)
            np.testing.assert_allclose(policy.estimator.V_tilde[row], squared)


@pytest.mark.parametrize("S", [1.0, 12.0])
def test_the_loss_is_the_primitive(S) -> None:
    policy, rng = AdaptiveGLMUCB(1, S=S, lanes=3), np.random.default_rng(1)
    for _ in range(60):
        policy.select(np.ones((3, 1, 1)))
        policy.update(np.ones((3, 1)), (rng.random(3) < [0.02, 0.5, 1.0]).astype(float))
    z = admissible_estimates(policy)[:, :, 0]
    expected = np.logaddexp(0, z) - math.log(2) - np.array([[0.0], [1.0], [0.0]]) * z
    np.testing.assert_allclose(policy.measure_loss(np.ones((3, 1)), np.array([0.0, 1.0, 0.0])), expected, atol=1e-9)


def test_a_restart_forgets_the_drift() -> None:
    policy = train(AdaptiveGLMUCB(2, lanes=2), Environment(Arc(), BallArms(), horizon=60, lanes=2))
    policy.restart([True, False])
    assert policy.info().drift.variation[0] == 0


def test_constant_memory_and_what_info_shows() -> None:
    env = Environment(Static(), BallArms(), horizon=300, lanes=2)
    policy = AdaptiveGLMUCB(2, lanes=2)
    size = sum(array.nbytes for array in policy.state().values())
    info = train(policy, env).info()
    assert sum(array.nbytes for array in policy.state().values()) == size
    assert info.weights.shape == (2, len(MEMORIES))
    np.testing.assert_allclose(info.weights.sum(axis=1), 1.0)
    assert set(info.acting_memory) <= set(info.memories)
    assert info.memory.shape == info.gamma.shape == (2,)
    assert info.remembered is None


def test_one_memory_is_a_policy_with_that_discount() -> None:
    """It acts by the estimate of OnePassEstimator, plus so many standard errors; alone it cannot tell of drift."""
    env = Environment(Arc(), BallArms(), horizon=80, lanes=2)
    policy = train(AdaptiveGLMUCB(2, memories=[50], bonus_scale=[0.0, 2.5], lanes=2), env)
    assert (policy.info().gamma == 0.98).all()
    arms, info = env.round(80).arms, policy.info()
    z, inverse = np.einsum("lki,li->lk", arms, info.theta_hat), np.linalg.inv(info.metric)
    variance = np.einsum("lki,lij,ljm,lmn,lkn->lk", arms, inverse, info.squared_metric, inverse, arms)
    index = policy.link.mean(z) + policy.link.slope(z) * np.array([[0.0], [2.5]]) * np.sqrt(variance)
    np.testing.assert_array_equal(policy.select(arms), index.argmax(axis=1))
    assert policy.info().drift is None


CIRCLE = FixedArms([[math.cos(a), math.sin(a)] for a in np.arange(10) * math.pi / 5])
JUMPS = Switches(times=(1001, 2001), thetas=((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0)))


@pytest.mark.slow
@pytest.mark.parametrize("drift", [Arc(), JUMPS], ids=["smooth", "switching"])
def test_greedy_fails_where_the_arms_are_always_the_same(drift) -> None:
    """The best arm changes while it is not being played: without a bonus that is never noticed."""
    ids = list(range(40))
    adaptive, greedy = (
        regret(policy, Environment(drift, CIRCLE, horizon=3000, lanes=ids, seed=12)).mean()
        for policy in (AdaptiveGLMUCB(2, lanes=ids), Greedy(2, gamma=0.99, lanes=ids))
    )
    assert adaptive <= 130
    assert greedy >= 1.5 * adaptive


def test_the_rate_is_about_the_same_whatever_the_longest_memory() -> None:
    env = Environment(Arc(), BallArms(), horizon=1500, lanes=10)
    forever, longest = (
        train(AdaptiveGLMUCB(2, memories=memories, lanes=10), env).info().drift
        for memories in (MEMORIES, (32, 80, 200, 500))
    )
    np.testing.assert_allclose(np.median(longest.rate), np.median(forever.rate), rtol=0.5)


def test_too_little_data_to_tell() -> None:
    before = AdaptiveGLMUCB(2, lanes=3).info().drift
    assert (before.verdict == UNKNOWN).all()
    assert (before.memory_high == math.inf).all()
    assert (before.rate_low == 0).all()
    for drift in (Static(), Arc()):
        env = Environment(drift, BallArms(), horizon=3000, lanes=20)
        assert (train(AdaptiveGLMUCB(2, lanes=20), env, 40).info().drift.verdict == UNKNOWN).all()


def test_nothing_is_said_of_a_speed_that_nothing_is_known_of() -> None:
    """Zero arms teach nothing, and neither do decisions without rewards."""
    silent, empty = AdaptiveGLMUCB(2), AdaptiveGLMUCB(2)
    for _ in range(300):
        silent.select(np.full((1, 2, 2), 0.3))
        empty.select(np.zeros((1, 2, 2)))
        empty.update(np.zeros((1, 2)), 1.0)
    for policy in (silent, empty):
        told = policy.info().drift
        assert told.verdict[0] == UNKNOWN
        assert told.rate[0] == told.variation[0] == 0.0


def test_no_drift_seen() -> None:
    env = Environment(Static(), BallArms(), horizon=1500, lanes=20)
    told = train(AdaptiveGLMUCB(2, lanes=20), env).info().drift
    assert (told.verdict == NO_DRIFT).mean() >= 0.9
    assert np.median(told.variation) < 0.5
    assert (told.rate_low == 0).mean() >= 0.9


def test_drift_is_rarely_claimed_where_there_is_none() -> None:
    """At no time in more than one run of 20, if the model is right: the evidence is a likelihood ratio of 20."""
    env = Environment(Static(), BallArms(), horizon=1200, lanes=120, seed=3)
    policy, lanes = AdaptiveGLMUCB(2, lanes=120), np.arange(120)
    claimed, most = np.zeros(120, dtype=bool), np.full(120, -math.inf)
    for t in range(1, 1201):
        offer = env.round(t)
        chosen = policy.select(offer.arms)
        policy.update(offer.arms[lanes, chosen], env.reward(t, offer.means[lanes, chosen]))
        if t % 20 == 0:
            told = policy.info().drift
            claimed |= told.verdict == DRIFT
            most = np.maximum(most, told.evidence)
    assert claimed.mean() <= 0.05
    assert np.array_equal(claimed, most >= math.log(20.0))


def test_drift_is_seen_and_its_size_is_about_right() -> None:
    env = Environment(Arc(), BallArms(), horizon=3000, lanes=20)
    told = train(AdaptiveGLMUCB(2, lanes=20), env).info().drift
    assert (told.verdict == DRIFT).all()
    assert (told.rate_low <= told.rate).all()
    assert (told.rate <= told.rate_high).all()
    assert 1 / 3 < np.median(told.variation) / env.variation[0] < 3
    assert 1 / 3 < np.median(told.rate) / (env.variation[0] / 3000) < 3

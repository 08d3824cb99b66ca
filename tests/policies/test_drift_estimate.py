"""What AdaptiveGLMUCB says about the drift."""

from __future__ import annotations

import math

import numpy as np

from support.worlds import train
from windvane import AdaptiveGLMUCB
from windvane.environments import Arc, BallArms, Environment, Static
from windvane.policies.adaptive_glm_ucb import DRIFT, MEMORIES, NO_DRIFT, UNKNOWN


def test_the_rate_is_about_the_same_whatever_the_longest_memory() -> None:
    env = Environment(Arc(), BallArms(), horizon=1500, lanes=10)
    forever, longest = (
        train(AdaptiveGLMUCB(2, memories=memories, lanes=10), env).drift_estimate()
        for memories in (MEMORIES, (32, 80, 200, 500))
    )
    np.testing.assert_allclose(np.median(longest.rate), np.median(forever.rate), rtol=0.5)


def test_too_little_data_to_tell() -> None:
    before = AdaptiveGLMUCB(2, lanes=3).drift_estimate()
    assert (before.verdict == UNKNOWN).all()
    assert (before.memory_high == math.inf).all()
    assert (before.rate_low == 0).all()
    for drift in (Static(), Arc()):
        env = Environment(drift, BallArms(), horizon=3000, lanes=20)
        assert (train(AdaptiveGLMUCB(2, lanes=20), env, 40).drift_estimate().verdict == UNKNOWN).all()


def test_nothing_is_said_of_a_speed_that_nothing_is_known_of() -> None:
    """Zero arms teach nothing, and neither do decisions without rewards."""
    silent, empty = AdaptiveGLMUCB(2), AdaptiveGLMUCB(2)
    for _ in range(300):
        silent.select(np.full((1, 2, 2), 0.3))
        empty.select(np.zeros((1, 2, 2)))
        empty.update(np.zeros((1, 2)), 1.0)
    for policy in (silent, empty):
        told = policy.drift_estimate()
        assert told.verdict[0] == UNKNOWN
        assert told.rate[0] == told.variation[0] == 0.0


def test_no_drift_seen() -> None:
    env = Environment(Static(), BallArms(), horizon=1500, lanes=20)
    told = train(AdaptiveGLMUCB(2, lanes=20), env).drift_estimate()
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
            told = policy.drift_estimate()
            claimed |= told.verdict == DRIFT
            most = np.maximum(most, told.evidence)
    assert claimed.mean() <= 0.05
    assert np.array_equal(claimed, most >= math.log(20.0))


def test_drift_is_seen_and_its_size_is_about_right() -> None:
    env = Environment(Arc(), BallArms(), horizon=3000, lanes=20)
    told = train(AdaptiveGLMUCB(2, lanes=20), env).drift_estimate()
    assert (told.verdict == DRIFT).all()
    assert (told.rate_low <= told.rate).all()
    assert (told.rate <= told.rate_high).all()
    assert 1 / 3 < np.median(told.variation) / env.variation[0] < 3
    assert 1 / 3 < np.median(told.rate) / (env.variation[0] / 3000) < 3

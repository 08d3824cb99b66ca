"""From settings to a policy: its class, link, reward range, prior, and the settings that are refused."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from policy_skeleton import Skeleton

from support.agents import INF, LIVE, NAN, RED, build_agent, refuses, required_settings
from support.refusals import rejects
from windvane import Agent, ArgumentError, DLinUCB, Policy
from windvane.kernels.scoring import LARGEST_REWARD

PRIOR = sorted(name for name, cls in LIVE.items() if cls.takes_prior)


def test_the_default_is_the_adaptive_policy() -> None:
    agent = Agent(dim=3)
    assert agent.policy.name == "AdaptiveGLMUCB"
    assert agent.policy.S is None  # the scale is learned
    np.testing.assert_array_equal(agent.policy.info().scales, [1.0, 8.0, 64.0])
    assert agent.policy.link.name == "logistic"
    np.testing.assert_array_equal(Agent(dim=3, S=2.0).policy.info().scales, [2.0])
    assert Agent(dim=3, policy="GLM-UCB").policy.S == 1.0


def test_a_class_of_ones_own_and_its_settings() -> None:
    agent = Agent(dim=2, policy=Skeleton, gamma=0.9, bonus_scale=0.5)
    assert isinstance(agent.policy, Skeleton)
    assert agent.policy.bonus_scale == 0.5

    class Open(DLinUCB):
        def __init__(self, dim: int, **settings) -> None:
            super().__init__(dim, gamma=0.9, **settings)

    assert Agent(dim=2, policy=Open, delta=0.5).policy.delta == 0.5


# fmt: off
DURATIONS = ["", "d", "2", "2 moons", "-1d", "1e3s", "0s", "1d!", "9" * 400 + "d", "0.001ms", NAN, [], timedelta(-2)]
WRONG_VALUES: dict[str, list[Any]] = {
    "dim": [None, 0, 2.0, True, "2"], "clip": [1], "intercept": ["yes"], "link": ["logit", 3], "S": [-1.0], "L": [0.0],
    "policy": ["LinUCB", 3, int, Policy, "Oracle"], "seed": [-1], "lanes": [2], "sigma": [0.5], "truth": [2],
    "nonsense": [2], "half_life": [0, 1e-9, *DURATIONS], "gamma": [1.5, 0.0], "drift": [1.0], "horizon": [100],
    "prior_weight": [{}, 0.0], "reward_timeout": [timedelta(days=2e5), -1, *DURATIONS], "max_pending": [0],
    "epsilon": [1.5, [0.1], np.array([0.1])], "default_reward": [0.5],
    "scaling": [
        "fix", (1, 2), ([0.0, 0.0],), ([0.0, 0.0], [1.0, 0.0]), ([NAN, 0.0], [1.0, 1.0]), 5, {"center": 1}, [[1], [1]],
    ],
    "prior": [
        [0.1], [[0.1, 0.2]], [NAN, 0.0], [INF, 0.0], "ab", ["a", "b"], [None, 1.0], 1.0, (None, np.ma.masked),
    ],
    "reward_range": [
        1.0, "01", (0,), (0, 1, 2), (1, 0), (0, 0), (0, NAN), (0, INF), (-1, 1), (0.5, 1), (0, 1e101), ["0", "1"],
        (0, 5),
    ],
}
NAMED = {"dim": None, "features": {"shared": ["a"]}}
WRONG = [(argument, {argument: value}) for argument, values in WRONG_VALUES.items() for value in values] + [
    ("dim", NAMED | {"dim": 2}), ("clip", NAMED | {"clip": True}), ("intercept", NAMED | {"intercept": True}),
    ("features", NAMED | {"features": 5}), ("features", NAMED | {"features": {"fields": []}}),
    ("link", {"link": "poisson", "policy": "OFUL"}), ("link", {"link": "nonsense", "policy": "OFUL"}),
    ("S", {"S": "x", "policy": "UniformRandom"}), ("memories", {"memories": [10.0], "half_life": 5}),
    ("gamma", {"half_life": 5, "gamma": 0.9}), ("drift", {"gamma": 0.9, "drift": 1.0, "horizon": 100}),
    ("half_life", {"half_life": "2d", "policy": "OFUL"}), ("horizon", {"policy": "BOB"}),
    ("half_life", {"half_life": 9, "policy": "SW-LinUCB", "window": 5}), ("gamma", {"policy": "BVD-GLM-UCB"}),
    *(("default_reward", {"default_reward": value, "reward_timeout": 1}) for value in (1.5, NAN)),
    ("prior", {"S": 5.0, "prior": [4.0, 4.0]}),
    *(("prior", {"policy": p, **required_settings(p), "prior": [0.1, 0.1]}) for p in LIVE if p not in PRIOR),
    ("reward_range", {"reward_range": (-1, 5), "link": "poisson"}),
    ("reward_range", {"reward_range": (0, 5), "link": "probit"}),
]
# fmt: on


@pytest.mark.parametrize(("argument", "settings"), WRONG)
def test_wrong_settings_are_named(argument: str, settings: dict) -> None:
    with rejects(argument):
        Agent(**{"dim": 2} | settings)


@pytest.mark.parametrize(
    ("settings", "given", "accepted", "sigma"),
    [
        ({}, None, (0, 1), 0.5),
        ({}, (0, 0.5), (0, 0.5), 0.25),
        ({"link": "probit"}, None, (0, 1), 0.5),
        ({"link": "poisson"}, (0, 3), (0, 3), 1.5),
        ({"link": "poisson", "policy": "GLM-UCB"}, np.array([0, 4]), (0, 4), 2.0),
        ({"link": "identity"}, None, (-LARGEST_REWARD, LARGEST_REWARD), 0.5),
        ({"link": "identity"}, (-2, 10), (-2, 10), 6.0),
        ({"policy": "OFUL"}, (-2, 10), (-2, 10), 6.0),
        ({"policy": "UniformRandom"}, (-2, 10), (-2, 10), 1.0),  # it takes none
    ],
)
def test_the_range_of_rewards_sets_sigma(settings: dict, given: object, accepted: tuple, sigma: float) -> None:
    agent = Agent(dim=2, reward_range=given, **settings)
    assert agent.reward_range == accepted
    assert agent.policy.sigma == sigma
    decision = agent.decide(RED)
    for end, beyond in zip(accepted, (-1.0, 1.0), strict=True):
        for factor in (1e-9, 1.0):
            bad = end + beyond * factor * max(1.0, abs(end))
            refuses(agent, "value", lambda bad=bad: agent.reward(decision, bad))
            refuses(agent, "rewards[0]", lambda bad=bad: agent.history([bad], [[0.1, 0.1]]), pointer="#/rewards/0")
        assert agent.history([end], [[0.1, 0.1]]) == 1
        assert agent.reward(agent.decide(RED), end) == "recorded"
    again = Agent.from_bytes(agent.to_bytes())
    assert (again.reward_range, again.settings) == (agent.reward_range, agent.settings)
    assert agent.settings["reward_range"] == (None if given is None else list(map(float, accepted)))


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [({"link": "poisson"}, "reward_range"), ({}, "poisson"), ({"link": "poisson", "reward_range": (0, 2)}, "")],
    ids=["counts", "clicks", "a given range"],
)
def test_a_reward_above_the_default_range_gets_a_hint(settings, remedy) -> None:
    agent = Agent(dim=1, **settings)
    decision = agent.decide([[0.5]])
    for value in (7, 7.0, "seven", math.nan):
        with pytest.raises(ArgumentError) as caught:
            agent.reward(decision, value)
        is_large = value in (7, 7.0)
        assert (remedy in caught.value.hint) if is_large and remedy else not caught.value.hint


def test_a_prior_of_a_linear_model_in_closed_form() -> None:
    """theta = prior g^n (w L^2 + lam) / (w g^n L^2 + lam): observations of weight w at L e_i, n rounds ago, whose
    rewards make up for the ridge at first."""
    prior, L, w, g = np.array([0.5, -0.3, 0.2]), 2.0, 7.0, 0.9
    agent = Agent(dim=3, policy="D-LinUCB", gamma=g, L=L, prior=prior, prior_weight=w)
    np.testing.assert_allclose(agent.theta, prior, rtol=1e-12)
    for n in range(30):
        np.testing.assert_allclose(agent.theta, prior * g**n * (w * L**2 + 1.0) / (w * g**n * L**2 + 1.0), rtol=1e-12)
        agent.decide(np.zeros((1, 3)))


@pytest.mark.parametrize("name", PRIOR)
@pytest.mark.parametrize("weight", [0.1, 10.0])
def test_a_prior_is_where_the_estimate_begins(name: str, weight: float) -> None:
    """Whatever the ridge: also of a rate near 0, where the rewards that say so would lie below 0."""
    np.testing.assert_allclose(build_agent(name, prior=[0.4, -0.9], prior_weight=weight).theta, [0.4, -0.9], atol=1e-7)


def test_priors_that_are_far_from_zero() -> None:
    agent = Agent(dim=4, intercept=True, prior=[0, 0, 0, 0, -3])
    assert agent.decide([[0.0] * 4]).prediction == pytest.approx(1 / (1 + math.exp(3)), abs=1e-9)
    free = Agent(dim=2, prior=[4.0, 4.0])  # no S is given
    assert free.decide([[0.6, 0.3]]).prediction == pytest.approx(1.0 / (1.0 + math.exp(-3.6)), rel=1e-12)


def test_a_prior_beyond_the_rewards_is_refused() -> None:
    with rejects("prior", value=[1.0, -0.5]) as caught:
        Agent(dim=2, link="poisson", prior=[1, -0.5], S=2)
    assert "2.718" in caught.value.got
    wider = Agent(dim=2, link="poisson", prior=[1, -0.5], S=2, reward_range=(0, 4))
    np.testing.assert_allclose(wider.theta, [1, -0.5], atol=1e-9)


@pytest.mark.parametrize("name", ["AdaptiveGLMUCB", "BVD-GLM-UCB", "OnePassGLM"])
def test_a_prior_decides_at_first_and_fades(name: str) -> None:
    settings = {"gamma": 0.9} if name != "AdaptiveGLMUCB" else {}
    agent = Agent(dim=2, policy=name, intercept=True, prior=[0.8, -0.4, 0.2], prior_weight=2000.0, **settings)
    expected = 1.0 / (1.0 + math.exp(-0.56))
    assert agent.decide([[0.6, 0.3]]).prediction == pytest.approx(expected, abs=0.02)
    for _ in range(400):  # rewards of 0 soon win
        agent.reward(agent.decide([[0.6, 0.3]]), 0.0)
    assert agent.decide([[0.6, 0.3]]).prediction < expected - 0.1

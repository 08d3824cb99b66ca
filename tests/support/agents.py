"""What the tests of the agent share."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from support.refusals import rejects
from support.worlds import ball
from windvane import POLICIES, Agent, Policy
from windvane.agent.vectors import Offer
from windvane.errors import ArgumentError, WindvaneError

NAN, INF = float("nan"), float("inf")
NOON = 1_700_000_000.0
RED = {"red": [0.6, 0.1], "blue": [0.2, 0.7]}
LIVE = {name: cls for name, cls in POLICIES.items() if not cls.needs_truth and not cls.needs_one_hot}
INDEXED = {name: cls for name, cls in POLICIES.items() if cls.needs_one_hot}  # their arms are names, not vectors
MASTERS = ("MASTER-OFUL", "MASTER-GLM-UCB", "MASTER-Logistic-UCB-1")
RESTARTING = ("BOB", "BOB-BVD-GLM-UCB", *MASTERS, "dLinUCB")  # policies that begin again by themselves


def required_settings(name: str) -> dict[str, Any]:
    """Return the settings that a policy needs, and no more."""
    accepted = inspect.signature(LIVE[name]).parameters
    settings: dict[str, Any] = {"horizon": 100} if "horizon" in accepted else {}
    return settings | {key: 1.0 for key in ("drift", "switches") if key in accepted}


def build_agent(policy: str, **settings: Any) -> Agent:
    return Agent(dim=2, policy=policy, **required_settings(policy) | settings)


def build_policy(name: str, **settings: Any) -> Policy:
    """Return the policy as an agent builds it, without the settings that it does not accept."""
    accepted, settings = inspect.signature(LIVE[name]).parameters, required_settings(name) | settings
    given = {"dim": 2, "L": 1.0, "sigma": 0.5} | settings
    return LIVE[name](**{key: value for key, value in given.items() if key in accepted})


def arm_sets(seed: int, rounds: int, K: int = 4, dim: int = 2) -> np.ndarray:
    return ball(np.random.default_rng(seed), (rounds, K), dim)


def refuses(agent: Agent, argument: str | None, call, error: type[WindvaneError] = ArgumentError, **attributes) -> Any:
    """Expect ``call`` to raise ``error`` about ``argument`` and to change nothing. Returns the error."""
    before = agent.to_bytes()
    with rejects(argument, error=error, **attributes) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    assert agent.to_bytes() == before
    return caught.value


def assert_trustworthy(agent: Agent, offer: Offer) -> None:
    """Expect the vectors of an offer to pass the check of the policy, which trusts them, and to suit its kernels."""
    arms = offer.vectors[None]
    assert arms.flags.carray
    assert arms.dtype == np.float64
    agent.policy.check_arms(arms.copy(), None)


def assert_same_policy(one: Agent | Policy, other: Agent | Policy) -> None:
    """Expect the states of two policies to be equal to the last bit."""
    states = [(each.policy if isinstance(each, Agent) else each).state() for each in (one, other)]
    assert states[0].keys() == states[1].keys()
    for name, array in states[0].items():
        assert array.tobytes() == states[1][name].tobytes(), name


def weighted_sums(x: np.ndarray, rewards: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return lam I + sum w x x', and sum w r x."""
    return np.eye(x.shape[1]) + (x * weights[:, None]).T @ x, (x * weights[:, None]).T @ rewards

"""What the tests of the agent share."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from support.refusals import rejects
from support.worlds import ball
from windvane import (
    POLICIES,
    Agent,
    Policy,
)
from windvane.agent import DecisionError
from windvane.errors import ArgumentError, WindvaneError

NAN, INF = float("nan"), float("inf")
NOON = 1_700_000_000.0
RED = {"red": [0.6, 0.1], "blue": [0.2, 0.7]}
LIVE = {name: cls for name, cls in POLICIES.items() if not cls.needs_truth}
ANEW = [
    LIVE[name] for name in ("BOB", "BOB-BVD-GLM-UCB", "MASTER-OFUL", "MASTER-GLM-UCB")
]  # they begin again by themselves


def needed(cls: type[Policy]) -> dict:
    """What a policy must be told, and no more."""
    taken = inspect.signature(cls).parameters
    told = {"horizon": 100} if "horizon" in taken else {}
    return told | {name: 1.0 for name in ("drift", "switches") if name in taken}


def as_policy(cls: type[Policy], **given) -> Policy:
    """``cls`` as an agent builds it."""
    taken = inspect.signature(cls).parameters
    return cls(**{name: value for name, value in given.items() if name in taken})


def arm_sets(seed: int, rounds: int, K: int = 4, dim: int = 2) -> np.ndarray:
    return ball(np.random.default_rng(seed), (rounds, K), dim)


def refuses(agent: Agent, argument: str | None, call, error: type[WindvaneError] = ArgumentError, **attributes) -> Any:
    """``call`` raises ``error`` about ``argument``, and nothing of the agent has changed. Returns the error."""
    before = agent.to_bytes()
    with rejects(argument, error=error, **attributes) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    assert agent.to_bytes() == before
    return caught.value


def refuses_decision(agent: Agent, decision: str, call, error: type[DecisionError]) -> None:
    """``call`` raises ``error`` about ``decision``, and nothing of the agent has changed."""
    refuses(agent, None, call, error, decision=decision)


def by_hand(x: np.ndarray, rewards: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """lam I + sum w x x', and sum w r x."""
    return np.eye(x.shape[1]) + (x * weights[:, None]).T @ x, (x * weights[:, None]).T @ rewards

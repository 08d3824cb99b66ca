"""What the tests of the agent share."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from support.worlds import ball
from windvane import (
    POLICIES,
    Agent,
    Policy,
)

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


def refuses(agent: Agent, match: str, call, error: type[Exception] = ValueError) -> None:
    """``call`` raises one line that begins like ``match``, and nothing of the agent has changed."""
    before = agent.to_bytes()
    with pytest.raises(error, match=rf"^{match}") as caught:
        call()
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600
    assert agent.to_bytes() == before


def by_hand(x: np.ndarray, rewards: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """lam I + sum w x x', and sum w r x."""
    return np.eye(x.shape[1]) + (x * weights[:, None]).T @ x, (x * weights[:, None]).T @ rewards

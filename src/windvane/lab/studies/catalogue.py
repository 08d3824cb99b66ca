"""Measure how long a round of every registered policy takes on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from windvane.environments import Round
from windvane.lab.spec.experiment_spec import PolicySpec
from windvane.lab.studies.paper import HORIZON, paper_spec
from windvane.policies.registry import POLICIES

if TYPE_CHECKING:
    from windvane.policies.base import Card

ROUNDS = 200  # of the paper's world, from its first: what grows with t is still cheap then
UNCOUNTED = 3  # the first rounds pay for what is done once
LONGEST = 0.3  # seconds after which a measurement ends before its last round
LANES = (1, 50)


class PolicyCost(NamedTuple):
    """A policy, and the microseconds of a decision and its update: of one lane alone, and of each among fifty."""

    name: str
    card: Card
    alone: float
    together: float


class _World:
    """The first rounds of the paper's experiment, drawn in advance."""

    def __init__(self, lanes: int) -> None:
        spec = paper_spec()
        self.environment = spec.environments[0].build(horizon=HORIZON, lanes=range(lanes), seed=spec.seed)
        self.rounds: list[Round] = [self.environment.round(t) for t in range(1, ROUNDS + 1)]

    def measure(self, name: str) -> float:
        """Return the microseconds of a round and lane of this policy."""
        policy = PolicySpec(name).build(self.environment)
        lanes, clock, spent, counted = np.arange(self.environment.lanes), time.perf_counter, 0.0, 0
        for offer in self.rounds:
            began = clock()
            choice = policy.select(offer.arms, offer.valid)
            spent += clock() - began
            reward = self.environment.play(offer, choice).reward
            x = offer.arms[lanes, choice]
            began = clock()
            policy.update(x, reward)
            spent += clock() - began
            counted += 1
            if offer.t == UNCOUNTED:
                spent, counted = 0.0, 0
            if spent > LONGEST and offer.t > UNCOUNTED:
                break
        return 1e6 * spent / (counted * len(lanes))


def count_measured_rounds() -> int:
    """Return the rounds that ``tick`` of :func:`measure_policies` reaches at the end."""
    return ROUNDS * len(LANES) * len(POLICIES)


def measure_policies(tick: Callable[[int], None] | None = None) -> Iterator[PolicyCost]:
    """Measure the registered policies in their order, each when it is asked for; ``tick`` is told the rounds done."""
    worlds = [_World(lanes) for lanes in LANES]
    for number, (name, policy) in enumerate(POLICIES.items()):
        costs = []
        for i, world in enumerate(worlds):
            costs.append(world.measure(name))
            if tick is not None:
                tick(ROUNDS * (len(worlds) * number + i + 1))
        yield PolicyCost(name, policy.card, *costs)

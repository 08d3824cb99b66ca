"""Every registered policy: its card, and what a round of it costs here and now."""

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


class Entry(NamedTuple):
    """A policy, and microseconds of a decision and its update: of one lane alone, and of each among fifty."""

    name: str
    card: Card
    alone: float
    together: float


class _World:
    """The first rounds of the paper's experiment, drawn beforehand."""

    def __init__(self, lanes: int) -> None:
        spec = paper_spec()
        self.environment = spec.environments[0].build(horizon=HORIZON, lanes=range(lanes), seed=spec.seed)
        self.rounds: list[Round] = [self.environment.round(t) for t in range(1, ROUNDS + 1)]

    def microseconds(self, name: str) -> float:
        """Of a round and lane of this policy, told what the environment knows."""
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


def measured_rounds() -> int:
    """What ``tick`` of :func:`catalogue` is told at the end."""
    return ROUNDS * len(LANES) * len(POLICIES)


def catalogue(tick: Callable[[int], None] | None = None) -> Iterator[Entry]:
    """The registered policies in their order, each measured as it is asked for; ``tick`` is told the rounds done."""
    worlds = [_World(lanes) for lanes in LANES]
    for number, (name, policy) in enumerate(POLICIES.items()):
        found = []
        for i, world in enumerate(worlds):
            found.append(world.microseconds(name))
            if tick is not None:
                tick(ROUNDS * (len(worlds) * number + i + 1))
        yield Entry(name, policy.card, *found)

"""Measure how long a round of every registered policy takes on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from windvane.environments import AnyEnvironment, Round
from windvane.lab.spec.experiment_spec import PolicySpec
from windvane.lab.studies.paper import HORIZON, paper_spec
from windvane.policies.registry import POLICIES

if TYPE_CHECKING:
    from windvane.policies.base import Card

ROUNDS = 200  # of the paper's world, from its first: costs that grow with t are still small
UNCOUNTED = 3  # the first rounds include costs that occur once
LONGEST = 0.3  # seconds after which a measurement ends before its last round
LANES = (1, 50)


class PolicyCost(NamedTuple):
    """A policy, and the microseconds of a decision and its update: of one lane alone, and of each among fifty."""

    name: str
    card: Card
    alone: float
    together: float


def _measure(name: str, world: AnyEnvironment, rounds: list[Round]) -> float:
    """Return the microseconds of a round and lane of this policy."""
    policy = PolicySpec(name).build(world)
    lanes, clock, spent, counted = np.arange(world.lanes), time.perf_counter, 0.0, 0
    for offer in rounds:
        began = clock()
        choice = policy.select(offer.arms, offer.valid)
        spent += clock() - began
        x, reward = offer.arms[lanes, choice], world.play(offer, choice).reward
        began = clock()
        policy.update(x, reward)
        spent, counted = spent + clock() - began, counted + 1
        if offer.t == UNCOUNTED:
            spent, counted = 0.0, 0
        if spent > LONGEST and offer.t > UNCOUNTED:
            break
    return 1e6 * spent / (counted * len(lanes))


def count_measured_rounds() -> int:
    """Return the rounds that ``tick`` of :func:`measure_policies` reaches at the end."""
    return ROUNDS * len(LANES) * len(POLICIES)


def measure_policies(tick: Callable[[int], None] = lambda _rounds: None) -> Iterator[PolicyCost]:
    """Measure the registered policies in their order, each when it is asked for; ``tick`` gets the rounds done."""
    spec, done = paper_spec(), 0
    worlds = [spec.environments[0].build(horizon=HORIZON, lanes=range(n), seed=spec.seed) for n in LANES]
    drawn = [(world, [world.round(t) for t in range(1, ROUNDS + 1)]) for world in worlds]
    for name, policy in POLICIES.items():
        costs = []
        for world, rounds in drawn:
            costs.append(_measure(name, world, rounds))
            tick(done := done + ROUNDS)
        yield PolicyCost(name, policy.card, *costs)

"""The registered policies: their table, and how long a round of each takes on this machine."""

from __future__ import annotations

import re
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

COLUMNS = {
    "rewards": "rewards", "forgetting": "forgets by", "needs": "needs", "guarantee": "regret proven",
    "reference": "reference", "cost": "cost",
}  # fmt: skip
"""The heading of each field of a card."""
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


def card_row(card: Card, fields: tuple[str, ...] = tuple(COLUMNS)) -> list[str]:
    """Return the cells of ``card`` for ``fields``."""
    return [str(getattr(card, field)) for field in fields]


def markdown_table() -> str:
    """Return the table of all registered policies in Markdown, a line for each in the order of the registry.

    Examples
    --------
    >>> print(markdown_table().splitlines()[0])
    | policy | class | rewards | forgets by | needs | regret proven | reference | cost |
    """
    headings = ["policy", "class", *COLUMNS.values()]
    lines = [headings, ["---"] * len(headings)]
    for name, policy in POLICIES.items():
        escaped = [re.sub(r"[\\*_|]", r"\\\g<0>", text) for text in (name, *card_row(policy.card))]
        lines.append([escaped[0], f"`{policy.__name__}`", *escaped[1:]])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


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

"""The registered policies: their table, and how long a round of each takes on this machine."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from windvane.bibliography import label_references
from windvane.environments import AnyEnvironment, FixedArms, Round
from windvane.lab.run.build import list_unit_vectors
from windvane.lab.spec.experiment_spec import EnvironmentSpec, PolicySpec
from windvane.lab.studies.paper import paper_spec
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
    """Return the cells of ``card`` for ``fields``; references by their labels."""
    shown = card._replace(reference=label_references(card.reference))
    return [str(getattr(shown, field)) for field in fields]


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
    """Measure the registered policies in their order, each when it is asked for; ``tick`` gets the rounds done.

    The paper's world has new arms in every round. Policies that know arms by their index are measured with those of its
    first round in all rounds.
    """
    done, drawn = 0, {is_fixed: _draw_rounds(is_fixed=is_fixed) for is_fixed in (False, True)}
    for name, policy in POLICIES.items():
        costs = []
        for world, rounds in drawn[policy.needs_one_hot]:
            costs.append(_measure(name, world, rounds))
            tick(done := done + ROUNDS)
        yield PolicyCost(name, policy.card, *costs)


def _draw_rounds(*, is_fixed: bool) -> list[tuple[AnyEnvironment, list[Round]]]:
    """Return the paper's world with one lane and with fifty, and its first rounds; ``is_fixed``: with the same arms."""
    spec = paper_spec()
    world = spec.environments[0]
    assert isinstance(world, EnvironmentSpec)  # the paper's world is simulated
    if is_fixed:
        arms = world.build(horizon=spec.horizon, lanes=1, seed=spec.seed).round(1).arms[0]
        world = replace(world, arms=FixedArms(arms.tolist()))
    worlds = [world.build(horizon=spec.horizon, lanes=range(n), seed=spec.seed) for n in LANES]
    return [(world, [world.round(t) for t in range(1, ROUNDS + 1)]) for world in worlds]


def _measure(name: str, world: AnyEnvironment, rounds: list[Round]) -> float:
    """Return the microseconds of a round and lane of this policy."""
    policy = PolicySpec(name).build(world)
    unit_vectors = list_unit_vectors(policy, world)
    lanes, clock, spent, counted = np.arange(world.lanes), time.perf_counter, 0.0, 0
    for offer in rounds:
        arms = offer.arms if unit_vectors is None else unit_vectors
        began = clock()
        choice = policy.select(arms, offer.valid)
        spent += clock() - began
        x, reward = arms[lanes, choice], world.play(offer, choice).reward
        began = clock()
        policy.update(x, reward)
        spent, counted = spent + clock() - began, counted + 1
        if offer.t == UNCOUNTED:
            spent, counted = 0.0, 0
        if spent > LONGEST and offer.t > UNCOUNTED:
            break
    return 1e6 * spent / (counted * len(lanes))

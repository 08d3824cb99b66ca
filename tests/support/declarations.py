"""Random declarations of features with their fields in random order, and lives of agents and streams under them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from support.agents import NOON

names = st.text("abcdefghijklmnopqrstuvwxyzåß _-0123456789", min_size=1, max_size=6)
fields = st.one_of(
    st.tuples(st.floats(-50, 0), st.floats(1, 100)).map(lambda ends: {"low": ends[0], "high": ends[1]}),
    st.lists(names, min_size=1, max_size=4, unique=True).map(lambda values: {"values": values}),
)


@st.composite
def declarations(draw: st.DrawFn) -> dict[str, Any]:
    """Up to four fields in each group; in orders, and with names, that no sorting would give."""
    groups: dict[str, Any] = {}
    for group in ("shared", "per_arm", "by_arm"):
        keys = draw(st.lists(names.map(lambda name, group=group: f"{name}/{group}"), max_size=4, unique=True))
        groups[group] = {key: draw(fields) for key in keys}
    arms = draw(st.lists(names, min_size=2, max_size=4, unique=True))
    return {**groups, "arms": arms, "intercept": draw(st.booleans()), "clip": False}


def value_of(field: dict[str, Any], rng: np.random.Generator) -> float | str:
    if "values" in field:
        return str(rng.choice(field["values"]))
    return float(np.clip(rng.uniform(field["low"], field["high"]), field["low"], field["high"]))


def contexts_of(declaration: dict[str, Any], seed: int, count: int) -> list[tuple[dict[str, Any], Any]]:
    """Contexts and arms as a caller gives them, each in an order of its own."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        context = {name: value_of(f, rng) for g in ("shared", "by_arm") for name, f in declaration[g].items()}
        order = list(context)
        rng.shuffle(order)
        arms: Any = list(declaration["arms"])
        rng.shuffle(arms)
        if declaration["per_arm"]:
            arms = {arm: {name: value_of(f, rng) for name, f in declaration["per_arm"].items()} for arm in arms}
        found.append(({name: context[name] for name in order}, arms))
    return found


def live(agent: Any, seed: int, rounds: range) -> list[Any]:
    """Decisions with some rewards at once, some late, some never; what was decided."""
    decisions = []
    for i, (context, arms) in zip(rounds, contexts_of(agent.settings["features"], seed, len(rounds)), strict=True):
        decisions.append(agent.decide(arms, context=context, now=NOON + i, id=str(i)))
        luck = np.random.default_rng([seed, i]).integers(4)
        if luck == 0:
            agent.reward(str(i), 1.0)
        elif luck == 1 and i - 3 >= rounds[0] and agent.core.is_pending(str(i - 3)):
            agent.reward(str(i - 3), float(i % 2))
    return decisions

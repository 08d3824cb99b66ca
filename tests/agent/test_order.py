"""The declared order of fields, arms and values survives whatever an agent is stored in, compared by meaning."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.agents import NOON
from support.declarations import contexts_of, declarations, live
from support.refusals import rejects
from windvane import Agent, Features
from windvane.agent import FileError


def test_fields_that_are_not_in_alphabetical_order_keep_their_coefficients() -> None:
    """The issue's example: predicted 0.507 when saved and 0.016 when loaded."""
    features = {"by_arm": {"device": ["phone", "desktop"], "basket": (0, 100)}, "arms": ["red", "blue"]}
    agent = Agent(features=features)
    rng = np.random.default_rng(0)
    for i in range(300):
        context = {"device": ["phone", "desktop"][i % 2], "basket": float(rng.integers(100))}
        decision = agent.decide(context=context, now=NOON + i)
        agent.reward(decision, float(rng.random() < (0.9 if context["device"] == "phone" else 0.1)))
    loaded = Agent.from_bytes(agent.to_bytes())
    assert loaded.feature_names == agent.feature_names
    assert loaded.feature_names[2:5] == ["red: device = phone", "red: device = desktop", "red: basket"]
    context = {"device": "phone", "basket": 20.0}
    before, after = (one.decide(["red"], context=context, now=NOON + 300) for one in (agent, loaded))
    assert before.prediction == after.prediction > 0.5


def copies() -> dict[str, Callable[[Agent], Agent]]:
    import copy

    return {
        "bytes": lambda agent: Agent.from_bytes(agent.to_bytes()),
        "twice": lambda agent: Agent.from_bytes(Agent.from_bytes(agent.to_bytes()).to_bytes()),
        "deepcopy": copy.deepcopy,
    }


@pytest.mark.parametrize("way", copies())
@settings(max_examples=60, deadline=None)
@given(declaration=declarations(), seed=st.integers(0, 2**32 - 1))
def test_what_is_stored_and_read_back_means_the_same(way: str, declaration: dict, seed: int) -> None:
    """Same names, same vectors, same predictions and decisions, with rewards that are pending and held."""
    agent = Agent(features=declaration, wait=6, missing=0.0, seed=seed % 1000, randomize=0.1)
    live(agent, seed, range(25))
    again = copies()[way](agent)
    assert again.feature_names == agent.feature_names == Features(**declaration).names
    assert again.features is not None
    assert again.features.declared() == Features(**declaration).declared()
    assert list(again.features.declared()["by_arm"]) == list(declaration["by_arm"])
    for context, arms in contexts_of(declaration, seed + 1, 5):
        one, other = agent.offer(arms, context), again.offer(arms, context)
        assert one.names == other.names
        np.testing.assert_array_equal(one.rows, other.rows)
    assert agent.info()["theta"] == again.info()["theta"]
    assert list(agent.info()["theta"]) == list(again.info()["theta"])
    assert live(agent, seed + 2, range(25, 40)) == live(again, seed + 2, range(25, 40))


@settings(max_examples=60, deadline=None)
@given(declaration=declarations(), seed=st.integers(0, 2**32 - 1))
def test_declared_features_are_the_same_again(declaration: dict, seed: int) -> None:
    """Through plain data and through JSON, as HTTP and exports carry them."""
    import json

    features = Features(**declaration)
    for again in (Features(**features.declared()), Features(**json.loads(json.dumps(features.declared())))):
        assert again.names == features.names
        for context, arms in contexts_of(declaration, seed, 3):
            offered = arms if arms is not None else list(features.arms)
            np.testing.assert_array_equal(again.vectors(context, offered), features.vectors(context, offered))


def test_a_file_whose_fields_were_reordered_is_refused() -> None:
    """By whatever tool: the names of the coordinates are in the file too."""
    from test_agent_file import resealed

    agent = Agent(features={"shared": {"b": (0, 1), "a": (0, 1)}})

    def reorder(head: dict) -> None:
        head["features"]["shared"] = dict(sorted(head["features"]["shared"].items()))

    with rejects(error=FileError, code="state") as caught:
        Agent.from_bytes(resealed(agent.to_bytes(), {}, reorder))
    assert caught.value.__cause__.argument == "feature_names"

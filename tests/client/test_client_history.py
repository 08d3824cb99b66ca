"""History from frames, as an agent learns it, and in several requests."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import windvane
from support.clients import Connect, refused
from support.network import ScriptedServer, make_answer
from support.refusals import rejects
from windvane.client import history

RNG = np.random.default_rng(3)
VECTORS = RNG.uniform(-0.6, 0.6, (12, 2))
REWARDS = (RNG.random(12) < 0.5).astype(float)
CONTEXTS = pd.DataFrame({"age": RNG.integers(0, 100, 12), "device": RNG.choice(["phone", "desk"], 12)})
FRAMES = [pd.DataFrame, pl.DataFrame]
FIELDS = {"shared": {"age": (0, 100)}, "by_arm": {"device": ["phone", "desk"]}, "per_arm": {"price": (0, 9)}}


def learned(client: Any, name: str) -> dict[str, float]:
    return client.info(name).theta  # type: ignore[no-any-return]


@pytest.mark.parametrize("frame", FRAMES, ids=["pandas", "polars"])
def test_frames_of_vectors(client: Any, name: str, frame: Any) -> None:
    agent = windvane.Agent(dim=2, seed=1)
    client.create(name, dim=2, seed=1)
    first = frame({"x": VECTORS[:, 0], "y": VECTORS[:, 1]})
    later = frame({"y": VECTORS[:, 1], "arm": ["a"] * 12, "x": VECTORS[:, 0]})  # in the order of the first
    weights = frame({"w": np.ones(12)})["w"]
    for table in (first, later):
        rewards = frame({"r": REWARDS})["r"]
        assert agent.history(REWARDS, table) == client.history(name, rewards, table, weights=weights) == 12
    assert list(learned(client, name).values()) == list(agent.info().theta.values())
    with rejects("vectors"):
        client.history(name, REWARDS, frame({"x": VECTORS[:, 0], "z": VECTORS[:, 1]}))


@pytest.mark.parametrize("frame", FRAMES, ids=["pandas", "polars"])
def test_flags_are_numbers_as_they_are_for_an_agent(client: Any, name: str, frame: Any) -> None:
    """A column that says who clicked holds true and false."""
    agent, clicked, is_new, x = windvane.Agent(dim=2, seed=1, L=2), REWARDS == 1.0, VECTORS[:, 1] > 0.0, VECTORS[:, 0]
    client.create(name, dim=2, seed=1, L=2)
    table = frame({"x": x, "is_new": is_new, "clicked": clicked})
    assert client.history(name, table["clicked"], table[["x", "is_new"]]) == 12
    assert client.history(name, list(clicked), list(map(list, zip(x, is_new, strict=True)))) == 12
    for _ in range(2):
        agent.history(REWARDS, np.column_stack([x, is_new]))
    assert list(learned(client, name).values()) == list(agent.info().theta.values())


def test_a_number_that_is_missing_is_named(client: Any, name: str) -> None:
    client.create(name, dim=2)
    gap = pd.DataFrame({"x": [0.1, np.nan], "y": [0.1, 0.2]})
    with rejects("vectors[1][0]"):
        client.history(name, [1, 0], gap)
    with rejects("rewards[1]"):
        client.history(name, [1, np.nan], gap.fillna(0.0))
    cycle: list[Any] = []
    cycle.append(cycle)
    with rejects():
        client.history(name, cycle, gap)


@pytest.mark.parametrize("frame", FRAMES, ids=["pandas", "polars"])
def test_frames_of_contexts_and_arms(client: Any, name: str, frame: Any) -> None:
    features = windvane.Features(**FIELDS, arms=["red", "blue"])
    agent = windvane.Agent(features=features, seed=1)
    client.create(name, features=features, seed=1)
    contexts = frame(CONTEXTS.to_dict("list"))
    arms = frame({"arm": ["red", "blue"] * 6, "price": list(range(1, 7)) * 2})
    assert agent.history(REWARDS, contexts=contexts, arms=arms) == 12
    assert client.history(name, REWARDS, contexts=contexts, arms=arms) == 12
    assert learned(client, name) == agent.info().theta
    with rejects("arms[0]"):
        client.history(name, REWARDS, contexts=contexts, arms=frame({"arm": [3] * 12, "price": [1.0] * 12}))
    for column, table in (("contexts", {"contexts": pd.DataFrame([[1, 2]], columns=["a", "a"])}), ("rewards", {})):
        with rejects(column):
            client.history(name, None if column == "rewards" else REWARDS, **table)


def test_more_rows_than_a_request_holds(client: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service learns the same, in the order of the times."""
    now, agent = datetime.now(UTC), windvane.Agent(dim=2, seed=1)
    times = [now - timedelta(hours=1 + (5 * row) % 12) for row in range(12)]
    texts = [time.isoformat() if row % 2 else time for row, time in enumerate(times)]
    assert agent.history(REWARDS, VECTORS, times=times) == 12
    monkeypatch.setattr(history, "MOST_ROWS", 5)
    client.create(name, dim=2, seed=1)
    assert client.history(name, REWARDS, VECTORS, times=texts, key="bulk") == 12
    assert learned(client, name) == agent.info().theta
    assert [event["key"] for event in client.events(name)] == ["bulk", "bulk-1", "bulk-2"]
    assert client.history(name, REWARDS, VECTORS, times=texts, key="bulk") == 12  # nothing counts twice
    assert client.info(name).counts.history_rows == 12
    monkeypatch.setattr(history, "MOST_BYTES", 200)
    assert client.history(name, REWARDS, VECTORS) == 12
    assert client.info(name).events > 6
    with rejects("weights"):
        client.history(name, REWARDS, VECTORS, weights=[1.0])
    with rejects("times[2]"):
        client.history(name, REWARDS, VECTORS, times=[*texts[:2], "today", *texts[3:]])


def test_an_error_in_a_later_request(client: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_ROWS", 5)
    client.create(name, dim=2)
    rewards = REWARDS.copy()
    rewards[8] = 7.0
    error = refused(lambda: client.history(name, rewards, VECTORS), 422, "invalid")
    assert (error.pointer, error.message.endswith("; 5 rows were learned before")) == ("#/rewards/8", True)
    assert client.info(name).counts.history_rows == 5


def test_every_part_has_a_key_that_is_kept(connect: Connect, monkeypatch: pytest.MonkeyPatch, pauses: list) -> None:
    monkeypatch.setattr(history, "MOST_ROWS", 2)
    good = make_answer({"rows": 2})
    with ScriptedServer(good, b"", b"", good) as server, connect(server.address) as client:
        assert client.history("a", [0.0, 1.0, 1.0, 0.0], [[0.1]] * 4) == 4
    assert [len(json.loads(body)["rewards"]) for body in server.bodies] == [2] * 4
    first, *second = server.keys
    assert set(second) == {f"{first}-1"}
    with ScriptedServer(good) as server, connect(server.address) as client, rejects("key"):
        client.history("a", [0.0, 1.0, 1.0, 0.0], [[0.1]] * 4, key="k" * 199)  # too long with "-1": nothing is sent
    assert server.requests == []

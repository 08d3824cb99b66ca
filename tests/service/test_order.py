"""A stream means the same after whatever its store goes through: names, vectors, predictions, decisions.

The measure is a twin: an Agent of the library with the same declaration, decisions and rewards, which is never stored.
Timeouts and forgetting count decisions, so that the twin does not need the clock of the server.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.declarations import contexts_of, declarations
from support.server import ForkServer, Server, run_command
from windvane import Agent, Client
from windvane.records import to_plain

TIMED = ("half_life", "decisions_per_second")
SETTINGS: dict[str, Any] = {"reward_timeout": 6, "default_reward": 0.0, "epsilon": 0.1, "seed": 5}
UNSORTED: dict[str, Any] = {
    "shared": {"hour": {"low": 0, "high": 24}, "age": {"low": 18, "high": 99}},
    "per_arm": {"price": {"low": 0, "high": 10}, "colour": {"values": ["red", "blue"]}},
    "by_arm": {"device": {"values": ["phone", "desk"]}, "basket": {"low": 0, "high": 100}},
    "arms": ["second", "first"],
    "intercept": True,
    "clip": False,
}


class Pair:
    """A stream of a server and its twin, which live the same life."""

    def __init__(self, declaration: dict[str, Any]) -> None:
        self.declaration = declaration
        self.twin = Agent(features=declaration, **SETTINGS)

    def live(self, server: Server, seed: int, rounds: int) -> None:
        """Decide, with rewards at once, late and never; every decision must be the twin's, to the last bit."""
        ids: list[str] = []
        with Client(server.address) as client:
            for i, (context, arms) in enumerate(contexts_of(self.declaration, seed, rounds)):
                decision = client.decide("shop", arms, context=context)
                assert decision == self.twin.decide(arms, context=context, id=decision.id, now=decision.time)
                ids.append(decision.id)
                if (seed + i) % 3 == 0 or i == rounds - 1:  # the last one closes what has expired, here and there
                    self.reward(client, ids[-1], 1.0)
                if (seed + i) % 4 == 1 and len(ids) > 3 and ids[-3] in {d.id for d in self.twin.pending()}:
                    self.reward(client, ids[-3], float(i % 2))
            self.compare(client)

    def reward(self, client: Client, decision: str, value: float) -> None:
        assert client.reward("shop", decision, value) == self.twin.reward(decision, value) == "recorded"

    def compare(self, client: Client, *, is_same_time: bool = True) -> None:
        """Compare all that is known about both, the order of names included."""
        info, expected = to_plain(client.info("shop")), to_plain(self.twin.info())
        if not is_same_time:  # the pace of decisions is another
            expected = {name: value for name, value in expected.items() if name not in TIMED}
        assert {name: info[name] for name in expected} == expected
        assert list(info["theta"]) == list(expected["theta"])
        for group in ("shared", "per_arm", "by_arm"):
            assert list(info["settings"]["features"][group]) == list(self.declaration[group])


def check_sound(store: Path) -> None:
    result = run_command("verify", "--store", store, "--json")
    assert result.returncode == 0, result.stdout


def restart(fork_server: ForkServer, server: Server, store: Path) -> tuple[Server, Path]:
    """Stop as the docs advise: a snapshot of every stream is written."""
    server.stop()
    check_sound(store)
    return fork_server.serve(store), store


def kill(fork_server: ForkServer, server: Server, store: Path) -> tuple[Server, Path]:
    server.kill()
    return fork_server.serve(store), store


def restore(fork_server: ForkServer, server: Server, store: Path) -> tuple[Server, Path]:
    """Copy the running store, and start a server on the copy."""
    copy = store.with_name("backup.db")
    source, target = sqlite3.connect(store), sqlite3.connect(copy)
    with source, target:
        source.backup(target)
    source.close()
    target.close()
    server.kill()
    return fork_server.serve(copy), copy


Way = Callable[[ForkServer, Server, Path], tuple[Server, Path]]
WAYS: dict[str, Way] = {"restart": restart, "kill": kill, "backup": restore}


@pytest.mark.sqlite
@pytest.mark.parametrize("way", WAYS)
def test_fields_in_no_alphabetical_order(way: str, fork_server: ForkServer, tmp_path: Path) -> None:
    """After a restart from a snapshot, a prediction of 0.588 was 0.016."""
    live_through(WAYS[way], fork_server, tmp_path, UNSORTED, seed=1)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(declaration=declarations(), seed=st.integers(0, 10_000))
def test_a_stream_means_the_same_afterwards(way: str, fork_server: ForkServer, declaration: dict, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        live_through(WAYS[way], fork_server, Path(folder), declaration, seed)


def live_through(way: Way, fork_server: ForkServer, folder: Path, declaration: dict[str, Any], seed: int) -> None:
    store, pair = folder / "w.db", Pair(declaration)
    server = fork_server.serve(store)
    try:
        with Client(server.address) as client:
            client.create("shop", features=declaration, **SETTINGS)
        for part in range(3):
            pair.live(server, seed + part, 12)
            server, store = way(fork_server, server, store)
        pair.live(server, seed + 9, 6)
    finally:
        server.kill()
    check_sound(store)


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(declaration=declarations(), seed=st.integers(0, 10_000))
def test_what_is_exported_makes_the_same_stream_elsewhere(
    fork_server: ForkServer, declaration: dict, seed: int
) -> None:
    """From the settings as they are answered and the events as they are exported, in another store."""
    pair = Pair(declaration)
    with tempfile.TemporaryDirectory() as folder:
        servers = [fork_server.serve(Path(folder) / f"{name}.db") for name in ("one", "other")]
        try:
            with Client(servers[0].address) as source, Client(servers[1].address) as target:
                source.create("shop", features=declaration, **SETTINGS)
                pair.live(servers[0], seed, 20)
                exported = {name: value for name, value in source.info("shop").settings.items() if value is not None}
                target.create("shop", **exported)
                ids: dict[str, str] = {}
                for event in source.events("shop"):
                    if event["kind"] == "decided":
                        request = event["request"]
                        decision = target.decide("shop", request.get("arms"), context=request.get("context"))
                        assert (decision.arm, decision.prediction) == (event["arm"], event["prediction"])
                        ids[event["decision"]] = decision.id
                    elif event["kind"] == "rewarded":
                        target.reward("shop", ids[event["decision"]], event["value"])
                pair.compare(target, is_same_time=False)
        finally:
            for server in servers:
                server.kill()

"""Nodes that are killed or stopped under load: nothing acknowledged is lost, done twice or contradicted."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import threading
import time
from typing import Any

import pytest

from support.cluster_drill import ClusterLoad
from support.nodes import SHARDS, Node, ServiceCluster, name_streams
from support.server import ARMS, until
from windvane.cluster_map import shard_of

NAMES = ("a", "b", "c")
SHORT_LEASE = {"lease": 0.6, "tick": 0.12}
STREAMS = {"vectors": {"dim": 2, "reward_timeout": "300ms"}, "rounds": {"dim": 2, "reward_timeout": 25}}


def start(nodes: ServiceCluster, count: int = 10, **settings: Any) -> ClusterLoad:
    """Start three nodes, create streams, and return a load on them."""
    nodes.settings = settings
    nodes.start(*NAMES)
    names = [nodes.create_streams([name], **given)[0] for name, given in STREAMS.items()]
    names += nodes.create_streams((f"s{i}" for i in range(count - len(names))), reward_timeout=30, default_reward=0.0)
    return ClusterLoad(nodes, names)


def finish(nodes: ServiceCluster, load: ClusterLoad) -> None:
    """End the load, and compare what was acknowledged with the log."""
    load.end()
    load.check()
    nodes.verify()


# --- kill -9 -------------------------------------------------------------------------------------------------------


PROMISED_SECONDS = 5.0  # within which every stream is served again
BUSY_SECONDS = 20.0  # the same on a machine that does much else


def kill_owners(nodes: ServiceCluster, kills: int, seed: int, most_seconds: float) -> None:
    load, rng, seconds = start(nodes), random.Random(seed), list[float]()
    load.begin(seed)
    for _ in range(kills):
        load.wait(rng.randrange(20, 200))
        victim = rng.choice(NAMES)
        nodes.nodes[victim].kill()
        seconds.append(load.wait_for_all())
        nodes.restart(victim)
    finish(nodes, load)
    slowest = max(seconds)
    print(f"{kills} kills, {load.acknowledged} acknowledged; all streams served again after at most {slowest:.1f} s")
    assert slowest < most_seconds  # without other load it takes 2.5 s
    assert load.acknowledged > 50 * kills


def test_owners_are_killed(nodes: ServiceCluster) -> None:
    kill_owners(nodes, 3, 1, BUSY_SECONDS)


@pytest.mark.slow
def test_owners_are_killed_many_times(nodes: ServiceCluster) -> None:
    """This needs a machine with little other load."""
    kill_owners(nodes, 100, 2, PROMISED_SECONDS)


# --- SIGSTOP -------------------------------------------------------------------------------------------------------


class Probe:
    """A request to a node that is stopped: it is in its buffers when the node goes on."""

    def __init__(self, node: Node, method: str, path: str, body: Any = None, key: str | None = None) -> None:
        self.key = key
        self._connection = http.client.HTTPConnection(node.address, timeout=10.0)
        headers = {"content-type": "application/json"} | ({} if key is None else {"idempotency-key": key})
        self._connection.request(method, path, None if body is None else json.dumps(body), headers)

    def read(self) -> tuple[int, Any]:
        with contextlib.closing(self._connection):
            answer = self._connection.getresponse()
            return answer.status, json.loads(answer.read())


class Stops:
    """Stops two of three nodes at a time, lets the third one take over, and lets them go on."""

    def __init__(self, nodes: ServiceCluster, load: ClusterLoad, seed: int) -> None:
        self.nodes, self.load, self.rng = nodes, load, random.Random(seed)
        names = nodes.create_streams(name_streams(range(0, SHARDS, 4)))
        self.streams = {name: shard_of(name, SHARDS) for name in names}
        self.fenced, self.statuses = 0, list[int]()
        self.decided: dict[tuple[str, str], str] = {}  # by stream and key: the decision that a stopped node answered

    def read_map(self) -> dict[str, tuple[str, int]]:
        """Return the owner and the epoch of the streams."""
        query = "SELECT shard, name, epoch FROM shards JOIN nodes ON node = instance"
        rows = {shard: (name, epoch) for shard, name, epoch in self.nodes.execute(query)}
        return {name: rows[shard] for name, shard in self.streams.items() if shard in rows}

    def run(self, survivor: Node) -> None:
        """Stop the two other nodes, once they own streams."""
        victims = [node for node in self.nodes.nodes.values() if node is not survivor]
        names = {node.name for node in victims}
        until(lambda: {owner for owner, _ in self.read_map().values()} >= names, 30.0)
        for node in victims:
            node.pause()
        before = {owner: (stream, epoch) for stream, (owner, epoch) in self.read_map().items()}
        until(lambda: {owner for owner, _ in self.read_map().values()} == {survivor.name}, 30.0)
        victims = [node for node in victims if node.name in before]  # else its lease had just run out
        probes = [self.probe(node, before[node.name][0], survivor) for node in victims]
        after = self.read_map()
        for node, probe in zip(victims, probes, strict=True):
            stream, epoch = before[node.name]
            assert after[stream][1] > epoch
            node.resume()
            self.check(stream, *probe)
        for name in names:
            self.nodes.nodes[name].resume()
        self.fenced += len(victims)

    def probe(self, node: Node, stream: str, owner: Node) -> tuple[Probe, Probe]:
        """Ask a stopped node for a decision that the new owner has just acknowledged, and to decide."""
        decision, path = self.nodes.decide(stream, node=owner)["id"], f"/v1/streams/{stream}/decisions"
        key = f"{node.name}{self.fenced}"
        return Probe(node, "GET", f"{path}/{decision}"), Probe(node, "POST", path, ARMS, key)

    def check(self, stream: str, read: Probe, write: Probe) -> None:
        status, answer = read.read()
        assert status in (200, 503, 504), (status, answer)  # 404 would contradict the new owner
        assert write.key is not None
        status, answer = write.read()
        assert status in (201, 503, 504), (status, answer)
        if status == 201:
            self.decided[stream, write.key] = answer["id"]
        self.statuses.append(status)

    def check_log(self) -> None:
        for stream, key in self.decided:
            events = [event for event in self.nodes.read_log(stream) if event["key"] == key]
            assert [event["decision"] for event in events] == [self.decided[stream, key]]


def stop_owners(nodes: ServiceCluster, stops: int, seed: int) -> None:
    load = start(nodes, 4, **SHORT_LEASE)
    drill = Stops(nodes, load, seed)
    load.begin(seed, workers=2)
    while drill.fenced < stops:
        drill.run(drill.rng.choice(list(nodes.nodes.values())))
    finish(nodes, load)
    drill.check_log()
    counts = {status: drill.statuses.count(status) for status in sorted(set(drill.statuses))}
    print(f"{drill.fenced} stops, {load.acknowledged} acknowledged, the stopped nodes answered {counts}")


def test_owners_are_stopped(nodes: ServiceCluster) -> None:
    stop_owners(nodes, 50, 3)


@pytest.mark.slow
def test_owners_are_stopped_a_thousand_times(nodes: ServiceCluster) -> None:
    stop_owners(nodes, 1000, 4)


# --- the same key ---------------------------------------------------------------------------------------------------


def hammer(nodes: ServiceCluster, stream: str, keys: list[str], rounds: int) -> dict[str, set[str]]:
    """Ask for decisions with the same keys at all nodes at once; return the answers by key."""
    answers: dict[str, set[str]] = {key: set() for key in keys}
    errors: list[Any] = []

    def work(node: Node) -> None:
        with contextlib.closing(http.client.HTTPConnection(node.address, timeout=5.0)) as connection:
            for key in keys * rounds:
                headers = {"content-type": "application/json", "idempotency-key": key}
                try:
                    connection.request("POST", f"/v1/streams/{stream}/decisions", json.dumps(ARMS), headers)
                    answer = connection.getresponse()
                    status, body = answer.status, json.loads(answer.read())
                except (OSError, http.client.HTTPException):
                    connection.close()
                    continue
                if status == 201:
                    answers[key].add(body["id"])
                elif status not in (503, 504):
                    errors.append((status, body))

    threads = [threading.Thread(target=work, args=(node,)) for node in nodes.nodes.values() for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]
    return answers


def test_the_same_keys_everywhere_while_the_owner_is_killed(nodes: ServiceCluster) -> None:
    """Each key gets one decision, whoever asks for it where, before and after the failover."""
    nodes.settings = SHORT_LEASE
    nodes.start(*NAMES)
    (stream,) = nodes.create_streams(["shop"])
    keys = [f"key-{i}" for i in range(40)]
    answers: dict[str, set[str]] = {}
    hammering = threading.Thread(target=lambda: answers.update(hammer(nodes, stream, keys, 12)))
    hammering.start()
    until(lambda: len(nodes.read_log(stream)) > 10)
    owner = nodes.wait_for_owner(stream)
    owner.kill()
    hammering.join()
    for key in keys:
        answers[key].add(nodes.decide(stream, key)["id"])
    log = nodes.read_log(stream)
    assert {event["key"]: {event["decision"]} for event in log} == answers
    assert len(log) == len(keys)


def test_timeouts_pass_after_a_failover(nodes: ServiceCluster) -> None:
    """The new owner closes decisions of the old one, though nobody asks for the stream."""
    nodes.settings = SHORT_LEASE
    nodes.start(*NAMES)
    (stream,) = nodes.create_streams(["shop"], reward_timeout="2s", default_reward=0.0)
    decision = nodes.decide(stream)["id"]
    began = time.monotonic()
    nodes.wait_for_owner(stream).kill()
    until(lambda: nodes.read_log(stream)[-1]["kind"] == "closed", 20.0)
    print(f"closed {time.monotonic() - began:.1f} s after the owner was killed")
    assert nodes.ask("GET", f"/v1/streams/{stream}/decisions/{decision}")["status"] == "expired"
    late = nodes.ask("PUT", f"/v1/streams/{stream}/decisions/{decision}/reward", {"value": 1.0})
    assert late["status"] == "expired"
    nodes.verify()
